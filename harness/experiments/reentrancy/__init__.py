"""Experiment 13: a holder enters its lock again; its hold count on the server, and at the holder."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from redis.asyncio import Redis

from harness.experiments.reentrancy.participants import Kind, Stop, nesting, plain
from harness.experiments.reentrancy.verdict import LOST, NEW, SAME, UPDATE_LOST, Prediction, judged
from harness.faults import frozen_process
from harness.lab import FENCES, Lab, Scene
from harness.lab.outcome import Case, Conclusion, ExperimentResult, about, answer
from harness.lab.participant import Participant
from harness.lab.registry import experiment
from harness.lab.track import PATIENCE, NeverHappened
from harness.resource.process import Fence

RECIPE: Kind = "count on the server"
OURS: Kind = "ReentrantLock"
# In TTLs: how long A works after it has left its inner block, while B waits.
WORK = 2.5


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where A stops, where it writes, what happens meanwhile."""

    name: str
    stop: Stop
    writes: str
    play: Callable[["_Processes"], Awaitable[None]]
    predictions: Mapping[Kind, Prediction]


@experiment(
    number=13,
    name="reentrancy",
    question="A holder enters its lock again. Does a hold count that is kept on the server survive a lease "
    "that ends between the outer and the inner entry?",
    expectation="No. The count ends with the lease, so the re-entry is a new grant that looks like the old "
    "one: leaving it frees the lock under the outer block, and what the outer block read can be written "
    "under a fence that is new and proves nothing. A count at the holder, which asks the lease first, raises "
    "LockLost instead. Neither sees a pause after the re-entry: there only the fence helps.",
)
async def run(lab: Lab) -> ExperimentResult:
    ttl = round(lab.rng.uniform(0.8, 1.0), 3)
    plans = []
    for schedule, lock, fence in product(SCHEDULES, (RECIPE, OURS), FENCES):
        lab.plan(schedule=schedule.name, lock=lock, fence=fence, ttl=ttl)
        expected = schedule.predictions[lock].verdict[fence]
        play = partial(_case, lab, schedule, lock, fence)
        plans.append(lab.fenced(f"{lock}, {schedule.name}", fence, play, ttl=ttl, expected=expected))
    cases = await lab.cases(plans)
    lab.picture(*_SHOWN)
    return ExperimentResult(cases=cases, answer=conclude(cases), figures={"ttl_s": ttl})


class _Processes:
    """The two processes of a case: A, whose function enters its lock again, and B beside it."""

    def __init__(self, scene: Scene, redis: Redis, a: Participant, b: Participant) -> None:
        self.scene = scene
        self.a, self.b = a, b
        self._redis = redis

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """A is started, and stopped by the kernel at the point that its schedule names."""
        self.a.go()
        await self.a.track.until("stopping")
        async with frozen_process(self.scene.journal, self.a.pid, who="A"):
            yield
        self.a.go()

    async def lease_over(self) -> None:
        """Return when the server has forgotten A's lock; nobody else has asked for it.

        :raises TimeoutError: it never does.
        """
        async with asyncio.timeout(PATIENCE):
            while await self._redis.exists(self.scene.key):  # noqa: ASYNC110 - expiry is not announced
                await asyncio.sleep(0.01)

    async def turn_of_b(self) -> None:
        self.b.go()
        await self.b.track.until("released")


async def _expired(pair: _Processes) -> None:
    async with pair.frozen():
        await pair.lease_over()
    await pair.a.track.until("left", "released")
    await pair.turn_of_b()
    pair.a.go()


async def _overtaken(pair: _Processes) -> None:
    async with pair.frozen():
        await pair.turn_of_b()
    pair.a.go()


async def _working_on(pair: _Processes) -> None:
    pair.a.go()
    await pair.a.track.until("left")
    with contextlib.suppress(NeverHappened):  # it waits for A to leave, if A still holds the lock
        pair.b.go()
        await pair.b.track.until("released", patience=WORK * pair.scene.ttl)
    pair.a.go()


_SAVED_BY_THE_FENCE = Prediction(SAME, {"off": "violated", "on": "ok"}, {"off": "200", "on": "409"})
_STOPPED = Prediction(LOST, {"off": "ok", "on": "ok"}, {"off": "nothing", "on": "nothing"})
_LAUNDERED = Prediction(NEW, {"off": UPDATE_LOST, "on": UPDATE_LOST}, {"off": "200", "on": "200"})
_UNDISTURBED = Prediction(SAME, {"off": "ok", "on": "ok"}, {"off": "200", "on": "200"}, a_first=True)

EXPIRED, OVERTAKEN = "lease ends, A enters again", "B's turn, A enters again"
WORKING_ON, FROZEN_INSIDE = "A leaves its inner block and works on", "A enters again, B's turn"

SCHEDULES = (
    Schedule(
        EXPIRED,
        "before the re-entry",
        "outside",
        _expired,
        {RECIPE: replace(_SAVED_BY_THE_FENCE, reentry=NEW), OURS: _STOPPED},
    ),
    Schedule(
        OVERTAKEN,
        "before the re-entry",
        "inside",
        _overtaken,
        {RECIPE: _LAUNDERED, OURS: _STOPPED},
    ),
    Schedule(
        WORKING_ON,
        "after the inner block",
        "outside",
        _working_on,
        {RECIPE: _SAVED_BY_THE_FENCE, OURS: _UNDISTURBED},
    ),
    Schedule(
        FROZEN_INSIDE,
        "after the re-entry",
        "inside",
        _overtaken,
        {RECIPE: _SAVED_BY_THE_FENCE, OURS: _SAVED_BY_THE_FENCE},
    ),
)

_SHOWN = (
    f"{RECIPE}, {SCHEDULES[0].name}, fence off",
    f"{OURS}, {SCHEDULES[0].name}, fence off",
    f"{RECIPE}, {SCHEDULES[1].name}, fence on",
    f"{OURS}, {SCHEDULES[3].name}, fence on",
)


async def _case(lab: Lab, schedule: Schedule, lock: Kind, fence: Fence, scene: Scene) -> Case:
    assert scene.resource is not None
    server = await lab.lock_server("redis")
    spec = {"url": server.url, "resource": scene.resource.url, "key": scene.key, "ttl": scene.ttl}
    spec |= {"lock": lock, "stop": schedule.stop, "writes": schedule.writes}
    async with (
        Redis.from_url(server.url) as redis,
        scene.participant("A", nesting, name="A", **spec) as a,
        scene.participant("B", plain, name="B", **spec) as b,
    ):
        await scene.begin()
        await schedule.play(_Processes(scene, redis, a, b))
        await asyncio.gather(a.ended(), b.ended())
    return await judged(scene, schedule.predictions[lock], fence, story=scene.name in _SHOWN)


def conclude(cases: Sequence[Case]) -> str:
    recipe, ours = about(cases, RECIPE), about(cases, OURS)
    return answer(
        Conclusion(
            "No. When the lease has ended there is no count to find, so the script that was to count a "
            "re-entry acquires instead, and the caller cannot tell. Leaving the inner block then brought "
            "the count to zero and deleted the lock under the outer block: B entered, and A, awake and "
            "unsuspecting, wrote beside it. The fence of the outer block was older than B's; with the "
            "fence on the resource refused it.",
            about(recipe, EXPIRED),
        ),
        Conclusion(
            "Worse is the turn that B had in between. A's re-entry was granted *after* B, so what A had "
            "read before B was written under a fence above B's. The resource accepted that with the fence "
            "on, B's acknowledged update is gone, and the checkers find nothing: every fence rose. "
            "Acquiring anew without saying so launders a stale holder; only a resource that compares "
            "versions, not fences, would have noticed.",
            about(recipe, OVERTAKEN),
        ),
        Conclusion(
            "`ReentrantLock` raised `LockLost` in both schedules, and nothing stale was sent, fence or not.",
            about(ours, EXPIRED, OVERTAKEN),
        ),
        Conclusion(
            "Renewal meets re-entry once more on the way out: the recipe's inner exit stopped the watchdog "
            "that the outer block still needed, and the lease ended under a holder that nobody had frozen. "
            "`ReentrantLock` has one lease and one watchdog for all levels; only the outermost exit ends "
            "them, and B waited.",
            about(cases, WORKING_ON),
        ),
        Conclusion(
            "A process that is stopped *after* it has entered again is beyond either lock: the look at the "
            "lease was right when it was taken. With the fence off both admitted two writers. Only the "
            "fence saves that schedule.",
            about(cases, FROZEN_INSIDE),
        ),
    )
