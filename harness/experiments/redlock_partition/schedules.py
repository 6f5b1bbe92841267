"""What is played: a client that is frozen, a node that votes twice, a node that forgets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlencode

from asyncdlock.backends.redis.requests import ACQUIRE
from harness.experiments.redlock_partition.stage import (
    LONG,
    HeldAnswers,
    Sides,
    Stage,
    jump,
    open_stage,
    restart,
)
from harness.faults import crashed_server, frozen_process, frozen_server
from harness.lab import Actor, Lab, Scene
from harness.lab.outcome import Case, Fact
from harness.lab.verdict import HOLDERS

PAUSE = 5.0
WORK = 1.0  # between grant and write, so that there is time to freeze the worker
LATE_TTL = 5.0
PATIENT = {"node_timeout": 1.0}  # Redlock never waits longer for a node than a tenth of the TTL
PATIENT_TTL = 10.0  # so that a client waits for its answers for a second: time to stop it meanwhile
STORIES = (
    "clock of a node jumps, fence off",
    "clock of a node jumps, fence on",
    "A frozen before the check, fence off",
)


async def frozen_client(sides: Sides | None, frozen: int | None, lab: Lab, scene: Scene) -> Case:
    """A has its majority and has checked the time left; then it is stopped, and B's turn comes."""
    async with (
        open_stage(lab, scene, sides) as stage,
        scene.workers(A={"url": stage.a.url, "work": WORK}, B={"url": stage.b.url}) as (a, b),
        contextlib.AsyncExitStack() as stack,
    ):
        await scene.begin()
        if frozen is not None:
            who = f"node {frozen + 1}"
            await stack.enter_async_context(frozen_server(scene.journal, stage.nodes[frozen], who=who))
        a.track.paused = True
        a.go()
        granted = await a.track.until("granted")
        async with frozen_process(scene.journal, a.pid, who="A"):
            b.go()
            await b.track.until("accepted", "stale")
            await scene.until(granted.at / 1e9 + PAUSE)
        await a.track.until("accepted", "stale")
        await asyncio.gather(a.ended(), b.ended())
    return await _judged(scene, two_holders=True)


async def frozen_before_check(lab: Lab, scene: Scene) -> Case:
    """All nodes have granted A's request; A is stopped before it has read a single answer."""
    async with (
        open_stage(lab, scene) as stage,
        scene.workers(
            A={"url": f"{stage.a.url}?{urlencode(PATIENT)}"}, B={"url": stage.b.url, "work": WORK}
        ) as (a, b),
    ):
        for node in stage.nodes:  # so that A's first request is carried out and not asked back
            await node.command("SCRIPT", "LOAD", ACQUIRE.source)
        await scene.begin()
        answers = HeldAnswers(stage.a.links)
        a.track.paused = True
        a.go()
        await answers.asked()
        async with frozen_process(scene.journal, a.pid, who="A"):
            await answers.all_there()
            in_time = answers.asked_once
            answers.let_go()  # they now wait in A's sockets
            b.go()
            await b.track.until("accepted", "stale")
        await a.track.until("accepted", "stale", "failed")
        await asyncio.gather(a.ended(), b.ended())
    first, second = scene.track("A").last("granted"), scene.track("B").expect("granted")
    shown = {
        "A was stopped while it waited for the answers": in_time,
        "A did not use the old answers": first is None or first.at > second.at,
    }
    return await _judged(scene, two_holders=False, shown=shown)


async def lost_vote(sides: Sides, fault: Callable[[Stage], Awaitable[None]], lab: Lab, scene: Scene) -> Case:
    """A holds the lock and is well; the shared node's vote is lost; B, refused before, gets it."""
    async with open_stage(lab, scene, sides, clocks=fault is jump) as stage, _actors(stage) as (a, b):
        mine = await a.acquire(ttl=LONG)
        refused = await b.try_acquire(ttl=LONG) is None
        await fault(stage)
        await b.acquire(ttl=LONG, timeout=LONG)
        await b.write("result of B")
        held = mine.held
        await a.write("result of A")
        await a.leave()
        await b.leave()
    shown = {"B was refused before the fault": refused, "A's lease was good when it wrote": held}
    return await _judged(scene, two_holders=True, shown=shown)


async def kept_vote(sides: Sides, lab: Lab, scene: Scene) -> Case:
    """The shared node had its vote on disk before it answered: B has to wait."""
    async with open_stage(lab, scene, sides, persistent=True) as stage, _actors(stage) as (a, b):
        await a.acquire(ttl=LONG)
        await restart(stage)
        refused = await b.try_acquire(ttl=LONG) is None
        await a.finish("result of A")
        await b.acquire(ttl=LONG, timeout=LONG)
        await b.finish("result of B")
    return await _judged(scene, two_holders=False, shown={"B could not get in beside A": refused})


async def late_restart(sides: Sides, lab: Lab, scene: Scene) -> Case:
    """The remedy that Redlock's specification names: a crashed node stays away for longer than any TTL."""
    async with open_stage(lab, scene, sides) as stage, _actors(stage) as (a, b):
        mine = await a.acquire(ttl=LATE_TTL)
        await b.try_acquire(ttl=LATE_TTL)
        async with crashed_server(scene.journal, stage.nodes[sides.shared], who=f"node {sides.shared + 1}"):
            await a.write("result of A")
            await scene.until(scene.seconds() + LATE_TTL)
        over = not mine.held
        await b.acquire(ttl=LATE_TTL, timeout=LONG)
        await b.write("result of B")
        await b.leave()
    return await _judged(scene, two_holders=False, shown={"A's lease was over before B's": over})


async def forgotten_counter(sides: Sides, lab: Lab, scene: Scene) -> Case:
    """A's side has counted to six. The shared node forgets, and B's majority counts from one."""
    assert scene.resource is not None
    async with open_stage(lab, scene, sides) as stage, _actors(stage) as (a, b):
        for turn in range(5):
            await a.acquire(ttl=LONG)
            await a.finish(f"result {turn + 1} of A")
        await a.acquire(ttl=LONG)
        await restart(stage)
        await b.acquire(ttl=LONG, timeout=LONG)
        refused = await b.write("result of B") == "stale"
        accepted = await a.write("result 6 of A") == "accepted"
        # The node that forgot cannot tell whose the lock was, and each side is cut off from two others.
        await b.leave()
        await a.leave()
        await b.client.raise_fence(scene.key, above=(await scene.resource.value(scene.key)).max_fence)
        await b.acquire(ttl=LONG, timeout=LONG)
        mended = await b.write("result of B") == "accepted"
        await b.release()
    shown = {
        "B, with the lower fence, was refused": refused,
        "A, with the higher fence, was accepted": accepted,
        "B was accepted once the counters were lifted": mended,
    }
    return await _judged(scene, two_holders=True, shown=shown, but=("fence_order",))


@contextlib.asynccontextmanager
async def _actors(stage: Stage) -> AsyncIterator[tuple[Actor, Actor]]:
    """A and B, connected; time begins."""
    scene = stage.scene
    async with scene.actor("A", stage.a.url, **PATIENT) as a, scene.actor("B", stage.b.url, **PATIENT) as b:
        await scene.begin()
        yield a, b


async def _judged(
    scene: Scene,
    *,
    two_holders: bool,
    shown: dict[str, bool] | None = None,
    but: tuple[str, ...] = (),
) -> Case:
    overlapped = _overlapped(scene)
    facts: dict[str, Fact] = {
        "two holders": overlapped,
        "fences": _fences(scene),
        "refused": "; ".join(await scene.refusals()) or "nothing",
        "value": await scene.value(),
    }
    happened = {
        "two held the lock" if two_holders else "one at a time held the lock": overlapped is two_holders
    }
    return await scene.judge(
        facts=facts,
        shown=happened | (shown or {}),
        story=scene.name in STORIES,
        but=(*but, HOLDERS) if two_holders else but,
    )


def _fences(scene: Scene) -> str:
    """The last fence of each."""
    granted = [(track.name, track.last("granted")) for track in scene.tracks]
    return ", ".join(f"{name} {event.details['fence']}" for name, event in granted if event is not None)


def _overlapped(scene: Scene) -> bool:
    """Was B granted the lock between A's last grant and A's last write?"""
    a, b = scene.tracks
    begins, ends = a.last("granted"), a.last("writing")
    if begins is None or ends is None:
        return False
    return any(event.name == "granted" and begins.at < event.at < ends.at for event in b.events)
