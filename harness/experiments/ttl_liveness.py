"""Experiment 6: how long a killed holder blocks its lock, and whether a short TTL is safe."""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import asyncdlock
from harness.durations import format_duration
from harness.faults import kill_process
from harness.lab import Lab, Plan, Scene
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, answer
from harness.lab.registry import experiment
from harness.servers.catalogue import SHARED

TTLS = (0.5, 2.0, 10.0)
QUICK_TTLS = TTLS[:2]
REPETITIONS = 3
NOT_POSSIBLE = "not possible"

# What a server adds to the TTL: etcd looks for expired leases every half second, ZooKeeper counts in
# ticks, a waiter of plain Redis asks again a moment after the lease ran out. The rest of the second is
# for a busy machine; the measured figure is in the table.
_SLACK = 1.5
# Long enough that the watchdog has renewed at least once before the kill, which it does every third.
_HELD = (0.4, 1.0)
_FOR_EVER = 600.0
_SLOW = 3.0


@experiment(
    number=6,
    name="ttl-liveness",
    question="A holder is killed with kill -9. How long does its lock stay blocked at a TTL of 500 ms, 2 s "
    "and 10 s, and what does the short TTL cost in safety?",
    expectation="Blocked for what is left of the lease: at most the TTL and what the server takes to notice. "
    "With the fence on the short TTL costs nothing in safety: a holder that was merely slow is pre-empted, "
    "and its write is refused.",
)
async def run(lab: Lab) -> ExperimentResult:
    ttls, reps = (QUICK_TTLS, 1) if lab.quick else (TTLS, REPETITIONS)
    plans = []
    for backend, ttl in product(SHARED, ttls):
        held = [lab.rng.uniform(*_HELD) * ttl for _ in range(reps)]
        lab.plan(backend=backend, ttl=ttl, killed_after_s=[round(seconds, 3) for seconds in held])
        name = f"{backend}, TTL {format_duration(ttl)}"
        plans.append(Plan(name, "ok", partial(_kills, lab, backend, name, ttl, held)))
    for backend in SHARED:
        lab.plan(backend=backend, slow_holder=True, pause_in_ttl=_SLOW)
        name = f"{backend}, slow holder"
        plans.append(Plan(name, "ok", partial(_slow_holder, lab, backend, name, ttls)))
    cases = await lab.cases(plans)
    lab.picture(*(_attempt(f"redis, TTL {format_duration(ttl)}", reps, reps) for ttl in ttls))
    return ExperimentResult(cases=cases, answer=conclude(cases), figures={"blocked_s": _blocked(cases)})


def _attempt(name: str, number: int, of: int) -> str:
    return name if of == 1 else f"{name}, kill {number}"


async def _kills(lab: Lab, backend: str, name: str, ttl: float, held: Sequence[float]) -> Case:
    """Kill a holder, several times one after the other; each time another client is already waiting."""
    server = await lab.lock_server(backend)
    if (impossible := await _impossible(server.url, name, ttl)) is not None:
        return impossible
    blocked: list[float] = []
    cases: list[Case] = []
    for number, after in enumerate(held, 1):
        scene = lab.scene(_attempt(name, number, len(held)), await lab.resource("on"), ttl=ttl)
        seconds, case = await _kill(scene, server.url, after)
        blocked.append(seconds)
        cases.append(case)
    facts: dict[str, Fact] = {
        "blocked for": f"{statistics.median(blocked):.2f} s",
        "in TTLs": f"{statistics.median(blocked) / ttl:.2f}",
        "longest": f"{max(blocked):.2f} s",
    }
    worst = next((case for case in cases if not case.as_predicted), cases[0])
    return replace(worst, name=name, facts=facts)


async def _kill(scene: Scene, url: str, after: float) -> tuple[float, Case]:
    """A is killed `after` seconds with the lock, B waits: for how long, and the verdict."""
    async with scene.worker("A", url, work=_FOR_EVER) as a, scene.worker("B", url) as b:
        await scene.begin()
        a.go()
        granted = await a.track.until("granted")
        b.go()
        await scene.until(granted.at / 1e9 + after)
        too_early = b.track.has("granted")
        kill_process(scene.journal, a.pid, who="A")
        got = await b.track.until("granted")
        wrote = await b.track.until("accepted", "stale", "unknown", "failed")
        await b.ended()
    blocked = (got.at - scene.journal.faults[0].at) / 1e9
    case = await scene.judge(
        shown={
            "A held the lock until it was killed": not too_early,
            "B was granted it within the TTL and what the server takes": blocked <= scene.ttl + _SLACK,
            "B wrote": wrote.name == "accepted",
        },
    )
    return blocked, case


async def _impossible(url: str, name: str, ttl: float) -> Case | None:
    """The case of a TTL that the backend cannot do: tried, and refused before anything is sent."""
    async with asyncdlock.connect(url) as client:
        if ttl >= client.capabilities.min_ttl:
            return None
        try:
            await client.try_acquire("never sent", ttl=ttl)
        except ValueError as refused:
            return Case(name=name, expected=NOT_POSSIBLE, observed=NOT_POSSIBLE, reason=str(refused))
        return Case(name=name, expected=NOT_POSSIBLE, observed="accepted")


async def _slow_holder(lab: Lab, backend: str, name: str, ttls: Sequence[float]) -> Case:
    """At the shortest TTL: A lives, but its event loop stands still; B takes over; A's write is refused."""
    url = (await lab.lock_server(backend)).url
    async with asyncdlock.connect(url) as client:
        ttl = next(ttl for ttl in ttls if ttl >= client.capabilities.min_ttl)
    scene = lab.scene(name, await lab.resource("on"), ttl=ttl)
    async with scene.worker("A", url, pause=_SLOW * ttl) as a, scene.worker("B", url) as b:
        await scene.begin()
        a.track.paused = True
        a.go()
        await a.track.until("pausing")
        b.go()
        wrote = await b.track.until("accepted", "stale", "unknown", "failed")
        in_time = not a.track.has("resumed")
        told = await a.track.until("accepted", "stale")
        await asyncio.gather(a.ended(), b.ended())
    value = await scene.value()
    return await scene.judge(
        facts={"TTL": format_duration(ttl), "slow holder was told": _told(told.details)},
        shown={
            "B wrote while A stood still": wrote.name == "accepted" and in_time,
            "A's write was refused": told.name == "stale",
            "B's result is intact": value == scene.bodies["B"],
        },
    )


def _told(details: Mapping[str, object]) -> str:
    return f"409 seen {details.get('seen')} got {details.get('fence')}" if "seen" in details else "200"


def _blocked(cases: Sequence[Case]) -> dict[str, Fact]:
    return {case.name: case.facts["blocked for"] for case in cases if "blocked for" in case.facts}


def conclude(cases: Sequence[Case]) -> str:
    measured = [case for case in cases if "in TTLs" in case.facts]
    shares = [float(str(case.facts["in TTLs"])) for case in measured]
    slow = [case for case in cases if "slow holder was told" in case.facts]
    refused = sum(str(case.facts["slow holder was told"]).startswith("409") for case in slow)
    span = f"{min(shares):.2f} to {max(shares):.2f} TTLs" if shares else "nothing was measured"
    impossible = "; ".join(case.reason for case in cases if case.observed == NOT_POSSIBLE)
    return answer(
        f"A killed holder blocked its lock for {span}, over {len(measured)} pairs of backend and TTL. At "
        f"the shortest TTL the resource refused the write of a slow but living holder that had been "
        f"pre-empted on {refused} of {len(slow)} backends.",
        Conclusion(
            "That is what was left of the lease, and nothing shortens it but a shorter TTL: no server can "
            "tell a dead process from a silent one. The lease had last been renewed up to a third of a TTL "
            "before the kill, which is why less than a whole TTL is common; more than one is the server's "
            "own slack (etcd looks for expired leases twice a second, ZooKeeper counts in ticks).",
            measured,
        ),
        Conclusion(
            "So with a fence the TTL is chosen for liveness alone; without one, every second taken off the "
            "TTL is taken off the safety margin.",
            slow,
        ),
        f"Not possible, and refused before anything was sent: {impossible}." if impossible else "",
    )
