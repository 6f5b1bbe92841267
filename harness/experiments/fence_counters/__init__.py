"""Experiment 11: where the fence's number comes from, what it costs, and what happens when it is lost."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

import aiohttp

import asyncdlock
from harness import servers
from harness.experiments.fence_counters.cost import AfterLoss, NumberingCost
from harness.experiments.fence_counters.numberings import NUMBERINGS, Numbering, take, take_many
from harness.lab import Lab, Plan
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, answer
from harness.lab.registry import experiment
from harness.lab.resource_view import ResourceView
from harness.lab.scale.etcd_growth import Gateway, many
from harness.lab.scale.expiry import sample
from harness.lab.scale.pipe import open_pipe
from harness.report.charts import bars

ETCD = "etcd revision"
SAFE_BUT_DEAD = "backwards, and refused"
ABOVE = "still above"
_KEY = "account:42"
_GRANTS = 5
"""Of that key before the loss, so that a counter that starts again is seen to."""


@experiment(
    number=11,
    name="fence-counters",
    question="A counter per key, per shard, one that may expire, or etcd's revision: which fence costs what, "
    "and what happens when the counter is lost?",
    expectation="All count as fast as the lock itself. A counter per key stays in memory for ever; shards do "
    "not grow with the keys, and counters that follow the clock may expire. When the data is lost, "
    "counters per key and revisions run backwards and the resource refuses everybody: safe, but dead. What "
    "begins at the clock goes on.",
)
async def run(lab: Lab) -> ExperimentResult:
    keys = 20_000 if lab.quick else 200_000
    locks = 300 if lab.quick else 2_000
    lab.plan(keys=keys, etcd_locks=locks)
    figures: dict[str, NumberingCost] = {}
    cases: list[Case] = []
    for numbering in NUMBERINGS:
        expected = ABOVE if numbering.survives_loss else SAFE_BUT_DEAD
        run_one = partial(_redis, lab, numbering, keys, figures)
        cases += await lab.cases([Plan(numbering.name, expected, run_one)])
    cases += await lab.cases([Plan(ETCD, SAFE_BUT_DEAD, partial(_etcd, lab, locks, figures))])
    _pictures(lab, figures)
    told = {name: asdict(found) for name, found in figures.items()}
    return ExperimentResult(
        cases=cases, answer=_answer(cases, figures), figures={"numberings": told, "keys": keys}
    )


async def _redis(lab: Lab, numbering: Numbering, keys: int, figures: dict[str, NumberingCost]) -> Case:
    node = await lab.enter(servers.redis())
    resource = await lab.resource("on")
    async with open_pipe(node.url) as pipe:
        empty = await sample(pipe)
        # Short-lived locks, long enough to be there together.
        rate = await take_many(pipe, numbering, keys, ttl_ms=1500)
        full = await sample(pipe)
        limit = time.monotonic() + 30
        left = full
        while time.monotonic() < limit:
            await asyncio.sleep(0.25)
            left = await sample(pipe)
            if not left.with_ttl:
                break
        for _ in range(_GRANTS):
            before = await take(pipe, numbering, _KEY)
            await pipe.ask("DEL", _KEY)
        await node.restart(wipe=True)
    async with open_pipe(node.url) as pipe:
        after = await take(pipe, numbering, _KEY)
    loss = await _after_loss(resource, f"{numbering.name}:{_KEY}", before, after)
    found = figures[numbering.name] = NumberingCost(
        locks_per_s=round(rate, 1),
        bytes_per_key=round((full.used_memory - empty.used_memory) / keys, 1),
        bytes_per_key_after=round(max(left.used_memory - empty.used_memory, 0) / keys, 2),
        counters_left=left.keys,
        **asdict(loss),
    )
    case = _case(numbering.name, ABOVE if numbering.survives_loss else SAFE_BUT_DEAD, found, keys)
    if (left.keys >= keys) != numbering.stays:
        return replace(case, observed=f"{left.keys:,} counters left")
    return case


async def _etcd(lab: Lab, locks: int, figures: dict[str, NumberingCost]) -> Case:
    """The library's own backend: the fence is the revision of the winning key."""
    cluster = await lab.enter(servers.etcd())
    resource = await lab.resource("on")
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(cluster[0], session)
        empty = await gateway.size()
        async with asyncdlock.connect(cluster.url) as client:

            async def lock(number: int) -> None:
                held = await client.acquire(f"account:{number}", ttl=10.0, renew=False)
                await held.release()

            rate = await many(locks, lock)
            handle = await client.acquire(_KEY, ttl=10.0)
            before = handle.fence
            await handle.release()
        full = await gateway.size()
    await cluster[0].restart(wipe=True)
    async with asyncdlock.connect(cluster.url) as client:
        handle = await client.acquire(_KEY, ttl=10.0, timeout=30.0)
        after = handle.fence
        await handle.release()
    loss = await _after_loss(resource, f"{ETCD}:{_KEY}", before, after)
    figures[ETCD] = NumberingCost(
        locks_per_s=round(rate, 1),
        bytes_per_key=round((full.in_use - empty.in_use) / locks, 1),
        bytes_per_key_after=None,
        counters_left=0,
        **asdict(loss),
    )
    return _case(ETCD, SAFE_BUT_DEAD, figures[ETCD], locks)


async def _after_loss(resource: ResourceView, key: str, before: int, after: int) -> AfterLoss:
    """Write with the fence of before the loss, then with the one after."""
    first = await resource.put(key, b"before", fence=before, owner="before")
    assert first.write == "accepted", first
    second = await resource.put(key, b"after", fence=after, owner="after")
    return AfterLoss(
        fence_before_loss=before,
        fence_after_loss=after,
        accepted_after_loss=second.write == "accepted",
    )


def _case(name: str, expected: str, found: NumberingCost, keys: int) -> Case:
    observed = ABOVE if found.goes_on else SAFE_BUT_DEAD
    facts: dict[str, Fact] = {
        "keys": f"{keys:,}",
        "locks per second": found.locks_per_s,
        "bytes while held": found.bytes_per_key,
        "bytes for ever": found.bytes_per_key_after,
        "counters left": found.counters_left,
        "fence before loss": str(found.fence_before_loss),
        "and after": str(found.fence_after_loss),
        "the resource": "accepts" if found.accepted_after_loss else "409",
    }
    return Case(name=name, expected=expected, observed=observed, facts=facts)


def _pictures(lab: Lab, figures: dict[str, NumberingCost]) -> None:
    def column(read: Callable[[NumberingCost], float]) -> dict[str, dict[str, float]]:
        return {name: {"": read(found)} for name, found in figures.items()}

    lab.chart(
        "bytes-for-ever",
        bars(
            "What a lock leaves in memory for ever",
            column(lambda found: found.bytes_per_key_after or 0.0),
            y_label="bytes per key that was ever locked",
        ),
    )
    lab.chart(
        "locks-per-second",
        bars(
            "Locks per second with each numbering",
            column(lambda found: found.locks_per_s),
            y_label="per second",
            subtitle="Redis: ready-made scripts on one connection. etcd: the library, 32 tasks.",
        ),
    )


def _answer(cases: list[Case], figures: dict[str, NumberingCost]) -> str:
    said = []
    for name, found in figures.items():
        after = found.bytes_per_key_after
        stays = "" if after is None else f", {after:.1f} bytes per key for ever"
        fate = "still accepted" if found.accepted_after_loss else "refused with 409"
        said.append(
            f"- **{name}**: {found.locks_per_s:,.0f} locks per second{stays}; data lost: fence "
            f"{found.fence_before_loss} became {found.fence_after_loss}, {fate}."
        )
    return answer(
        "\n".join(said),
        Conclusion(
            "A fence has to increase for its key, nothing else: a counter that many keys share serves as "
            "well, and takes no memory per key. A counter that follows the clock may be forgotten; "
            "its price is that a clock set back by more than the counter's life makes it run backwards, "
            "which the resource then refuses like any other stale fence.",
            cases,
        ),
        "The scripts are the library's: `fence_counter=per-key|per-shard|expiring`. A shard is a slot of a "
        "Redis Cluster, so that its counter lies with its keys.",
    )
