"""Experiment 9: lock servers whose clocks run fast or slow, and a holder that trusts its own.

Redis ends a lease by the server's wall clock; the holder counts on its own monotonic one, less an
allowance of one percent. A is a careful holder: it writes shortly before the end of its lease, and
only if `handle.held` says that it may, or as soon as B has written before that. B asks for the lock all
the time.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from harness.lab import FENCES, Actor, Lab, Scene
from harness.lab.clocks import open_clocked_nodes
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, about, answer, count
from harness.lab.registry import experiment
from harness.lab.verdict import HOLDERS

TTL = 3.0
MARGIN = 0.04  # of the TTL, before the end of its lease, A writes
LONG = 30.0


@dataclass(frozen=True, slots=True)
class Skew:
    """How many nodes there are, and how many of them run at which rate."""

    nodes: int
    wrong: int
    rate: float
    safe: bool
    """Whether the lock alone should keep B out until A's lease is over."""

    def __str__(self) -> str:
        if self.rate == 1:
            return f"{self.nodes} nodes, right clocks"
        return f"{self.wrong} of {self.nodes} clocks × {self.rate:g}"


# The allowance covers one percent, and a majority has to be wrong: everything else is unsafe.
SKEWS = (
    Skew(5, 0, 1.0, safe=True),
    Skew(5, 5, 1.005, safe=True),
    Skew(5, 2, 2.0, safe=True),
    Skew(5, 3, 1.25, safe=False),
    Skew(5, 3, 2.0, safe=False),
    Skew(1, 1, 2.0, safe=False),
)
SHOWN = Skew(5, 3, 2.0, safe=False)
MORE_SKEWS = (
    Skew(5, 5, 0.5, safe=True),
    Skew(5, 2, 10.0, safe=True),
    Skew(5, 3, 1.1, safe=False),
    Skew(5, 3, 1.5, safe=False),
    Skew(5, 3, 10.0, safe=False),
    Skew(5, 5, 1.1, safe=False),
    Skew(1, 1, 1.005, safe=True),
    Skew(1, 1, 1.1, safe=False),
)


@experiment(
    number=9,
    name="clock-drift",
    question="How wrong may the clocks of the lock servers be before a careful holder is no longer alone?",
    expectation="Redlock bears a minority of wrong clocks, and all of them within its allowance of one "
    "percent. A majority that runs faster than that ends leases under their holder, and without a fence two "
    "write. Fences come from counters, not clocks: with the fence on no stale write is ever accepted.",
)
async def run(lab: Lab) -> ExperimentResult:
    skews = SKEWS if lab.quick else SKEWS + MORE_SKEWS
    plans = []
    for skew in skews:
        wrong = sorted(lab.rng.sample(range(skew.nodes), skew.wrong))
        lab.plan(nodes=skew.nodes, wrong_clocks=wrong, rate=skew.rate, ttl=TTL)
        # Where the lock is enough the fence has nothing to do: left out when time is short.
        for fence in FENCES[:1] if lab.quick and skew.safe else FENCES:
            expected = "ok" if skew.safe or fence == "on" else "violated"
            play = partial(_case, lab, skew, wrong)
            plans.append(lab.fenced(str(skew), fence, play, ttl=TTL, expected=expected))
    cases = await lab.cases(plans)
    lab.picture(*(f"{SHOWN}, fence {fence}" for fence in FENCES))
    return ExperimentResult(
        cases=cases, answer=conclude(cases), figures={"ttl_s": TTL, "allowance": "1 % and 2 ms"}
    )


async def _case(lab: Lab, skew: Skew, wrong: Sequence[int], scene: Scene) -> Case:
    rates = [skew.rate if number in wrong else 1.0 for number in range(skew.nodes)]
    async with open_clocked_nodes(lab, rates) as (nodes, _):
        url = nodes.url if skew.nodes > 1 else nodes[0].url
        async with scene.actor("A", url) as a, scene.actor("B", url) as b:
            await scene.begin()
            with _clocks_noted(scene, wrong, skew.rate):
                await a.acquire(ttl=TTL)
                overtaken = asyncio.Event()
                left, late = await asyncio.gather(_take(b, a, overtaken), _use(a, overtaken))
                await a.leave()
    return await _judged(scene, skew, left, late)


def _clocks_noted(scene: Scene, wrong: Sequence[int], rate: float) -> contextlib.AbstractContextManager[None]:
    if rate == 1:
        return contextlib.nullcontext()
    who = "node" + ("s " if len(wrong) > 1 else " ") + ", ".join(str(number + 1) for number in wrong)
    return scene.journal.fault("clock rate", who=who, rate=rate)


async def _take(b: Actor, a: Actor, overtaken: asyncio.Event) -> float:
    """B asks without end, writes as soon as it holds, and leaves. How long A's lease still was then."""
    b.say("acquiring")
    async with asyncio.timeout(LONG):
        handle = None
        while handle is None:
            asked = time.monotonic()
            handle = await b.client.try_acquire(b.key, ttl=LONG, renew=False)
            await asyncio.sleep(0.005 if handle is None else 0.0)
    # From before B's winning request: the grant itself was a little later.
    left = a.handle.expires_at - asked
    b.granted(handle)
    await b.write("result of B")
    overtaken.set()
    await b.leave()
    return left


async def _use(a: Actor, overtaken: asyncio.Event) -> bool:
    """A works until shortly before the end of its lease, or until B has written; looks, and writes.

    Whether B had written before.
    """
    handle = a.handle
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(handle.remaining() - TTL * MARGIN):
            await overtaken.wait()
    late = overtaken.is_set()
    if handle.held:
        await a.write("result of A")
    return late


async def _judged(scene: Scene, skew: Skew, left: float, late: bool) -> Case:
    first, second = (track.expect("granted") for track in scene.tracks)
    facts: dict[str, Fact] = {
        "B granted after": f"{(second.at - first.at) / 1e9:.2f} s",
        "A's lease then": f"{left:.2f} s left" if left > 0 else "over",
        "fences": f"A {first.details['fence']}, B {second.details['fence']}",
        "refused": "; ".join(await scene.refusals()) or "nothing",
        "value": await scene.value(),
    }
    shown = {
        "A wrote, and its lease was good": scene.tracks[0].has("writing"),
        "B was kept out until A's lease was over" if skew.safe else "B got in while A's lease was good": (
            left <= 0
        )
        is skew.safe,
        "A wrote before B" if skew.safe else "B wrote before A": late is not skew.safe,
        "fences rose": second.details["fence"] > first.details["fence"],
    }
    but = () if skew.safe else (HOLDERS,)
    return await scene.judge(facts=facts, shown=shown, story=skew == SHOWN, but=but)


def conclude(cases: Sequence[Case]) -> str:
    off, on = about(cases, "fence off"), about(cases, "fence on")
    safe = [case for case in off if case.expected == "ok"]
    unsafe = [case for case in off if case.expected == "violated"]
    return answer(
        f"Within the allowance of one percent, or with a minority of wrong clocks, "
        f"{count(safe, 'ok')} cases kept B out while A's lease was good. Beyond it two wrote in "
        f"{count(unsafe, 'violated')}. With the fence on the value stayed intact in {count(on, 'ok')}.",
        Conclusion(
            "By one percent, then, and a minority by as much as it likes: that is what the allowance "
            "and the majority promise." + (" Slow clocks cost only patience." if about(safe, "× 0.") else ""),
            safe,
        ),
        Conclusion(
            "Beyond that B was granted a lock whose holder had most carefully made sure that its lease "
            "was good, by a clock that was right. No pause was needed, and no amount of looking at the "
            "lease would have helped. A single Redis fares as a Redlock whose majority is wrong: it has "
            "one clock to trust instead of three.",
            unsafe,
        ),
        Conclusion("A counter that is raised with every grant does not care what time it is.", on),
    )
