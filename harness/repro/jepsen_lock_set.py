"""Jepsen's lock-set on etcd: a set that is guarded by a lock, updated while clients of etcd are paused."""

import asyncio
import contextlib
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import aiohttp

from harness import servers
from harness.faults import FaultJournal, frozen_process, frozen_server
from harness.lab import Lab
from harness.lab.event import Event
from harness.lab.participant import Participant
from harness.lab.resource_view import ResourceView
from harness.lab.shared_set import RESOURCE_FENCE, Mode, SharedSet
from harness.lab.track import NeverHappened
from harness.load.clock import now
from harness.repro.etcd_lock import EtcdLock, EtcdLockFailed
from harness.repro.finding import Figure, Finding
from harness.repro.lock_set import lock_set
from harness.repro.registry import reproduction
from harness.servers import EtcdCluster

TTL = 2
LONGEST_WAIT = 2.0
PROCESSES = 5
MEMBERS = 3
SETS, QUICK_SETS = 8, 4
SECONDS, QUICK_SECONDS = 90.0, 25.0
_PAUSE = (2.5, 5.0)
_BETWEEN = (1.0, 3.0)
_ENDS_WITHIN = 30.0


class _Variant(NamedTuple):
    name: str
    lock: str
    mode: Mode


ARMS = (
    _Variant("etcd's own lock, no fence", "etcd", "none"),
    _Variant("asyncdlock, no fence", "ours", "none"),
    _Variant("asyncdlock, every operation fenced", "ours", "every operation"),
)


@reproduction(
    name="jepsen-lock-set",
    about="Five processes add to a set under etcd's lock: read, wait up to 2 s, write; TTL 2 s, with pauses.",
    published="about 18 % of acknowledged updates lost (etcd 3.4.3, no fencing)",
    source="Jepsen: etcd 3.4.3, 2020, and etcd-io/etcd#11456",
    claim="With every operation fenced none is lost, whatever the lock does. Without a fence it depends on "
    "the lock and on the pauses, and our lock is no exception.",
)
async def run(lab: Lab) -> Finding:
    seconds = QUICK_SECONDS if lab.quick else SECONDS
    pauses = _draw_pauses(lab.rng, seconds)
    for pause in pauses:
        lab.plan(**pause._asdict())
    acknowledged: dict[str, list[str]] = defaultdict(list)
    refused = defaultdict[str, int](int)

    def heard(event: Event) -> None:
        key = event.details["key"]
        if event.name == "accepted":
            acknowledged[key].append(event.details["element"])
        refused[key] += event.name == "stale"

    async with contextlib.AsyncExitStack() as stack:
        forkserver = await lab.forkserver()
        cluster = await stack.enter_async_context(servers.etcd(MEMBERS))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        etcd = await _described(cluster, session)
        resources = {arm.mode: await lab.resource(RESOURCE_FENCE[arm.mode]) for arm in ARMS}
        sets = QUICK_SETS if lab.quick else SETS
        clients = [
            await stack.enter_async_context(
                forkserver.participant(
                    f"process {number}", lock_set, _spec(lab, cluster, resources, number, sets), heard
                )
            )
            for number in range(PROCESSES)
        ]
        lab.say(f"{seconds:g} s of updates and pauses")
        await _pause(pauses, cluster, clients, seconds)
        for client in clients:
            client.tell("stop")
        with contextlib.suppress(NeverHappened):  # one that is stuck is killed: what it was told counts
            await asyncio.gather(*(client.ended(_ENDS_WITHIN) for client in clients))
        figures = [await _figure(arm, sets, resources[arm.mode], acknowledged, refused) for arm in ARMS]
    return Finding(
        figures=figures,
        differs=[
            f"{etcd} Jepsen's 3.4.3 does, and a good part of its loss comes from that; ours looks at its "
            "lease again after every wait.",
            "Jepsen paused clients of etcd, every five seconds. We pause clients and clients by turns: a "
            "client that stands still is what stays unsafe with any lock.",
            f"{MEMBERS} clients on one machine instead of five on five; {sets} sets at a time, not one.",
            "The set is in a resource of its own process, not in the test's memory, so that it can refuse.",
        ],
    )


async def _described(cluster: EtcdCluster, session: aiohttp.ClientSession) -> str:
    """Which etcd this is, and whether its Lock has the defect that Jepsen found: tried, not looked up."""
    member = cluster[0]
    version = (await member.call("maintenance/status"))["version"]
    patient = EtcdLock(member.client_url, session, ttl=60)
    defect = False
    async with patient.hold("probe"):
        waiting = asyncio.create_task(patient.lock("probe", await patient.grant(ttl=TTL)))
        await asyncio.sleep(2 * TTL)  # its lease, which nobody keeps alive, runs out while it waits
    try:
        await waiting
        defect = True
    except EtcdLockFailed:
        pass
    tells = "tells" if defect else "does not tell"
    return f"etcd {version} instead of 3.4.3: it {tells} a waiter whose lease ran out that it holds the lock."


class _Pause(NamedTuple):
    at: float
    seconds: float
    client: bool
    number: int


def _draw_pauses(rng: random.Random, seconds: float) -> list[_Pause]:
    pauses: list[_Pause] = []
    at = rng.uniform(*_BETWEEN)
    while at + _PAUSE[1] < seconds:
        client = bool(len(pauses) % 2)
        number = rng.randrange(PROCESSES if client else MEMBERS)
        pauses.append(_Pause(round(at, 3), round(rng.uniform(*_PAUSE), 3), client, number))
        at += pauses[-1].seconds + rng.uniform(*_BETWEEN)
    return pauses


async def _pause(
    pauses: Sequence[_Pause], cluster: EtcdCluster, clients: Sequence[Participant], seconds: float
) -> None:
    journal = FaultJournal(now())
    for pause in pauses:
        await asyncio.sleep(max(0.0, pause.at - (now() - journal.origin) / 1e9))
        if pause.client:
            async with frozen_process(journal, clients[pause.number].pid, who=clients[pause.number].name):
                await asyncio.sleep(pause.seconds)
        else:
            async with frozen_server(journal, cluster[pause.number]):
                await asyncio.sleep(pause.seconds)
    await asyncio.sleep(max(0.0, seconds - (now() - journal.origin) / 1e9))


def _spec(
    lab: Lab, cluster: EtcdCluster, resources: Mapping[Mode, ResourceView], number: int, sets: int
) -> dict[str, Any]:
    member = cluster[number % len(cluster)]  # as Jepsen's, each client knows one member only
    return {
        "lock_url": f"etcd://{member.address}",
        "member_url": member.client_url,
        "arms": [
            {"name": arm.name, "lock": arm.lock, "mode": arm.mode, "resource": resources[arm.mode].url}
            for arm in ARMS
        ],
        "ttl": TTL,
        "longest_wait": LONGEST_WAIT,
        "sets": sets,
        "seed": lab.seed,
        "process": number,
    }


async def _figure(
    arm: _Variant,
    sets: int,
    resource: ResourceView,
    acknowledged: Mapping[str, Sequence[str]],
    refused: Mapping[str, int],
) -> Figure:
    shared = SharedSet(resource, arm.mode)
    missing = total = stale = 0
    for number in range(sets):
        key = f"{arm.name}, set {number}"
        told = acknowledged.get(key, [])
        missing += len(await shared.lost(key, told))
        total += len(told)
        stale += refused.get(key, 0)
    fenced = arm.mode == "every operation"
    return Figure(
        name=arm.name,
        events=missing,
        trials=total,
        what="acknowledged updates lost",
        detail=f"{stale} stale operations refused" if fenced else "",
        holds=total > 0 and not (fenced and missing),
    )
