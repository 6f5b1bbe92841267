"""Experiment 6: how long a killed holder blocks its lock, and whether a short TTL is safe."""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import product

import asyncdlock
from harness.durations import format_duration
from harness.experiments.lab import BACKENDS, Lab, Plan, Scene, Track
from harness.experiments.outcome import Case, Fact, Outcome
from harness.experiments.registry import experiment
from harness.experiments.trials.contender import ROLE
from harness.experiments.trials.crew import Crew, Member, into, open_crew
from harness.faults import kill_process
from harness.report.timeline import Panel

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

MODULES = (
    "asyncdlock.backends.redis",
    "asyncdlock.backends.redlock",
    "asyncdlock.backends.etcd",
    "asyncdlock.backends.zookeeper",
    "harness.experiments.trials.contender",
)
"""What the processes have loaded before they are forked."""


@experiment(
    number=6,
    name="ttl-liveness",
    question="A holder is killed with kill -9. How long does its lock stay blocked at a TTL of 500 ms, 2 s "
    "and 10 s, and what does the short TTL cost in safety?",
    expectation="Blocked for what is left of the lease: at most the TTL and what the server takes to notice. "
    "With the fence on the short TTL costs nothing in safety: a holder that was merely slow is pre-empted, "
    "and its write is refused.",
)
async def run(lab: Lab) -> Outcome:
    ttls = QUICK_TTLS if lab.quick else TTLS
    panels: dict[float, Panel | None] = {}
    plans = []
    crew = await lab.enter(open_crew(*MODULES, log=lab.folder / "processes.log"))
    for backend, ttl in product(BACKENDS, ttls):
        held = [lab.rng.uniform(*_HELD) * ttl for _ in range(1 if lab.quick else REPETITIONS)]
        lab.plan(backend=backend, ttl=ttl, killed_after_s=[round(seconds, 3) for seconds in held])
        name = f"{backend}, TTL {format_duration(ttl)}"
        plans.append(Plan(name, "ok", partial(_kills, lab, crew, backend, name, ttl, held, panels)))
    for backend in BACKENDS:
        lab.plan(backend=backend, slow_holder=True, pause_in_ttl=_SLOW)
        name = f"{backend}, slow holder"
        plans.append(Plan(name, "ok", partial(_slow_holder, lab, crew, backend, name, ttls)))
    cases = await lab.cases(plans)
    lab.picture([panels.get(ttl) for ttl in ttls])
    return Outcome(cases=cases, answer=_answer(cases), figures={"blocked_s": _blocked(cases)})


async def _kills(
    lab: Lab,
    crew: Crew,
    backend: str,
    name: str,
    ttl: float,
    held: Sequence[float],
    panels: dict[float, Panel | None],
) -> Case:
    """Kill a holder, several times one after the other; each time another client is already waiting."""
    server = await lab.lock_server(backend)
    if (impossible := await _impossible(server.url, name, ttl)) is not None:
        return impossible
    blocked: list[float] = []
    cases: list[Case] = []
    for number, after in enumerate(held, 1):
        once = name if len(held) == 1 else f"{name}, kill {number}"
        scene = lab.scene(once, await lab.resource("on"), ttl=ttl)
        seconds, case = await _kill(scene, crew, server.url, after)
        blocked.append(seconds)
        cases.append(case)
        if backend == "redis":
            panels[ttl] = scene.panel
    facts: dict[str, Fact] = {
        "blocked for": f"{statistics.median(blocked):.2f} s",
        "in TTLs": f"{statistics.median(blocked) / ttl:.2f}",
        "longest": f"{max(blocked):.2f} s",
    }
    worst = next((case for case in cases if not case.as_predicted), cases[0])
    return replace(worst, name=name, facts=facts)


async def _kill(scene: Scene, crew: Crew, url: str, after: float) -> tuple[float, Case]:
    """A is killed `after` seconds with the lock, B waits: for how long, and the verdict."""
    async with AsyncExitStack() as stack:
        a, holder = await _contender(stack, scene, crew, "A", url, stay=_FOR_EVER)
        b, successor = await _contender(stack, scene, crew, "B", url)
        await scene.begin()
        a.tell({"go": True})
        granted = await holder.until("granted")
        b.tell({"go": True})
        await scene.until(granted.at / 1e9 + after)
        too_early = successor.has("granted")
        kill_process(scene.journal, a.pid, who="A")
        got = await successor.until("granted")
        wrote = await successor.until("accepted", "stale", "unknown", "failed")
        await b.ended()
    blocked = (got.at - scene.journal.faults[0].at) / 1e9
    case = await scene.judge(
        "ok",
        shown={
            "A held the lock until it was killed": not too_early,
            "B was granted it within the TTL and what the server takes": blocked <= scene.ttl + _SLACK,
            "B wrote": wrote.name == "accepted",
        },
    )
    return blocked, case


async def _contender(
    stack: AsyncExitStack, scene: Scene, crew: Crew, name: str, url: str, **more: float
) -> tuple[Member, Track]:
    """A process that is connected and waits for the sign."""
    assert scene.resource is not None
    track = Track(name, scene.key)
    scene.tracks.append(track)
    scene.bodies[name] = f"result of {name}"
    spec = {
        "url": url,
        "resource": scene.resource.url,
        "key": scene.key,
        "ttl": scene.ttl,
        "body": scene.bodies[name],
        **more,
    }
    member = await stack.enter_async_context(crew.member(name, ROLE, spec, into(track, scene.journal)))
    await track.until("ready")
    return member, track


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


async def _slow_holder(lab: Lab, crew: Crew, backend: str, name: str, ttls: Sequence[float]) -> Case:
    """At the shortest TTL: A lives, but its event loop stands still; B takes over; A's write is refused."""
    server = await lab.lock_server(backend)
    async with asyncdlock.connect(server.url) as client:
        ttl = next(ttl for ttl in ttls if ttl >= client.capabilities.min_ttl)
    resource = await lab.resource("on")
    scene = lab.scene(name, resource, ttl=ttl)
    async with AsyncExitStack() as stack:
        a, slow = await _contender(stack, scene, crew, "A", server.url, stall=_SLOW * ttl)
        b, successor = await _contender(stack, scene, crew, "B", server.url)
        await scene.begin()
        slow.paused = True
        a.tell({"go": True})
        await slow.until("pausing")
        b.tell({"go": True})
        wrote = await successor.until("accepted", "stale", "unknown", "failed")
        in_time = not slow.has("resumed")
        told = await slow.until("accepted", "stale")
        await asyncio.gather(a.ended(), b.ended())
    value = await resource.value(scene.key)
    return await scene.judge(
        "ok",
        facts={"TTL": format_duration(ttl), "slow holder was told": _told(told.details)},
        shown={
            "B wrote while A stood still": wrote.name == "accepted" and in_time,
            "A's write was refused": told.name == "stale",
            "B's result is intact": value.text == scene.bodies["B"],
        },
    )


def _told(details: Mapping[str, object]) -> str:
    return f"409 seen {details.get('seen')} got {details.get('fence')}" if "seen" in details else "200"


def _blocked(cases: Sequence[Case]) -> dict[str, Fact]:
    return {case.name: case.facts["blocked for"] for case in cases if "blocked for" in case.facts}


def _answer(cases: Sequence[Case]) -> str:
    measured = [case for case in cases if "in TTLs" in case.facts]
    shares = [float(str(case.facts["in TTLs"])) for case in measured]
    slow = [case for case in cases if "slow holder was told" in case.facts]
    refused = sum(str(case.facts["slow holder was told"]).startswith("409") for case in slow)
    impossible = [case for case in cases if case.observed == NOT_POSSIBLE]
    span = f"{min(shares):.2f} to {max(shares):.2f} TTLs" if shares else "nothing was measured"
    parts = [
        f"A killed holder blocked its lock for what was left of its lease: {span} over {len(measured)} pairs "
        "of backend and TTL. Nothing shortens that but a shorter TTL: no server can tell a dead process from "
        "a silent one. The lease had last been renewed up to a third of a TTL before the kill, which is why "
        "less than a whole TTL is common; more than one is the server's own slack (etcd looks for expired "
        "leases twice a second, ZooKeeper counts in ticks).",
        f"At the shortest TTL a slow but living holder was pre-empted. On {refused} of {len(slow)} backends "
        "the resource refused that holder's write. So with a fence the TTL is chosen for liveness alone; "
        "without one, every second taken off the TTL is taken off the safety margin.",
    ]
    if impossible:
        refusals = "; ".join(case.reason for case in impossible)
        parts.append(f"Not possible, and refused before anything was sent: {refusals}.")
    return "\n\n".join(parts)
