"""Experiment 13: a holder enters its lock again; its hold count on the server, and at the holder."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from redis.asyncio import Redis

from harness.experiments.lab import Lab, Plan, Scene, Track
from harness.experiments.lab.track import PATIENCE, NeverHappened
from harness.experiments.outcome import Case, Outcome
from harness.experiments.reentrancy_verdict import LOST, NEW, SAME, UPDATE_LOST, Prediction, judged
from harness.experiments.reentrancy_worker import NESTING, PLAIN, Kind, Stop
from harness.experiments.registry import experiment
from harness.experiments.trials.crew import Crew, Member, into, open_crew
from harness.faults import frozen_process
from harness.report.timeline import Panel
from harness.resource.process import Fence

RECIPE: Kind = "count on the server"
OURS: Kind = "ReentrantLock"
FENCES: tuple[Fence, ...] = ("off", "on")
# In TTLs: for so long A works after it has left its inner block, while B waits.
WORK = 2.5


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where A stops, where it writes, what happens meanwhile."""

    name: str
    stop: Stop
    writes: str
    play: Callable[["_Cast"], Awaitable[None]]
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
async def run(lab: Lab) -> Outcome:
    ttl = round(lab.rng.uniform(0.8, 1.0), 3)
    panels: dict[str, Panel | None] = {}
    crew = await lab.enter(open_crew(NESTING.partition(":")[0], log=lab.folder / "processes.log"))
    plans = []
    for schedule, lock, fence in product(SCHEDULES, (RECIPE, OURS), FENCES):
        lab.plan(schedule=schedule.name, lock=lock, fence=fence, ttl=ttl)
        name = f"{lock}, {schedule.name}, fence {fence}"
        expected = schedule.predictions[lock].verdict[fence]
        plans.append(
            Plan(name, expected, partial(_case, lab, crew, name, schedule, lock, fence, ttl, panels))
        )
    cases = await lab.cases(plans)
    lab.picture([panels.get(name) for name in _SHOWN])
    as_told = all(case.as_predicted for case in cases)
    answer = _ANSWER if as_told else "Not all cases came out as predicted; the table tells which."
    return Outcome(cases=cases, answer=answer, figures={"ttl_s": ttl})


class _Cast:
    """The two processes of a case: A, whose function enters its lock again, and B beside it."""

    def __init__(self, scene: Scene, redis: Redis) -> None:
        self.scene = scene
        self.a_track, self.b_track = Track("A", scene.key), Track("B", scene.key)
        scene.tracks += [self.a_track, self.b_track]
        self.a: Member
        self.b: Member
        self._redis = redis

    @contextlib.asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """A is started, and stopped by the kernel at the point that its schedule names."""
        self.a.tell({})
        await self.a_track.until("stopping")
        async with frozen_process(self.scene.journal, self.a.pid, who="A"):
            yield
        self.a.tell({})

    async def lease_over(self) -> None:
        """Return when the server has forgotten A's lock; nobody else has asked for it.

        :raises TimeoutError: it never does.
        """
        async with asyncio.timeout(PATIENCE):
            while await self._redis.exists(self.scene.key):  # noqa: ASYNC110 - expiry is not announced
                await asyncio.sleep(0.01)

    async def turn_of_b(self) -> None:
        """B enters, writes and leaves."""
        self.b.tell({})
        await self.b_track.until("released")


async def _expired(cast: _Cast) -> None:
    async with cast.frozen():
        await cast.lease_over()
    await cast.a_track.until("left", "released")
    await cast.turn_of_b()
    cast.a.tell({})


async def _overtaken(cast: _Cast) -> None:
    async with cast.frozen():
        await cast.turn_of_b()
    cast.a.tell({})


async def _working_on(cast: _Cast) -> None:
    cast.a.tell({})
    await cast.a_track.until("left")
    with contextlib.suppress(NeverHappened):  # it waits for A to leave, if A still holds the lock
        cast.b.tell({})
        await cast.b_track.until("released", patience=WORK * cast.scene.ttl)
    cast.a.tell({})


_SAVED_BY_THE_FENCE = Prediction(SAME, {"off": "violated", "on": "ok"}, {"off": "200", "on": "409"})
_STOPPED = Prediction(LOST, {"off": "ok", "on": "ok"}, {"off": "nothing", "on": "nothing"})
_LAUNDERED = Prediction(NEW, {"off": UPDATE_LOST, "on": UPDATE_LOST}, {"off": "200", "on": "200"})
_UNDISTURBED = Prediction(SAME, {"off": "ok", "on": "ok"}, {"off": "200", "on": "200"}, a_first=True)

SCHEDULES = (
    Schedule(
        "lease ends, A enters again",
        "before the re-entry",
        "outside",
        _expired,
        {RECIPE: replace(_SAVED_BY_THE_FENCE, reentry=NEW), OURS: _STOPPED},
    ),
    Schedule(
        "B's turn, A enters again",
        "before the re-entry",
        "inside",
        _overtaken,
        {RECIPE: _LAUNDERED, OURS: _STOPPED},
    ),
    Schedule(
        "A leaves its inner block and works on",
        "after the inner block",
        "outside",
        _working_on,
        {RECIPE: _SAVED_BY_THE_FENCE, OURS: _UNDISTURBED},
    ),
    Schedule(
        "A enters again, B's turn",
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


async def _case(
    lab: Lab,
    crew: Crew,
    name: str,
    schedule: Schedule,
    lock: Kind,
    fence: Fence,
    ttl: float,
    panels: dict[str, Panel | None],
) -> Case:
    server, resource = await lab.lock_server("redis"), await lab.resource(fence)
    scene = lab.scene(name, resource, ttl=ttl)
    spec = {"url": server.url, "resource": resource.url, "key": scene.key, "ttl": ttl, "lock": lock}
    spec |= {"stop": schedule.stop, "writes": schedule.writes}
    async with contextlib.AsyncExitStack() as stack:
        cast = _Cast(scene, await stack.enter_async_context(Redis.from_url(server.url)))
        with lab.loading.going_on():
            cast.a, cast.b = [
                await stack.enter_async_context(
                    crew.member(track.name, role, spec | {"name": track.name}, into(track, scene.journal))
                )
                for track, role in ((cast.a_track, NESTING), (cast.b_track, PLAIN))
            ]
            await asyncio.gather(cast.a_track.until("ready"), cast.b_track.until("ready"))
        await scene.begin()
        await schedule.play(cast)
        await asyncio.gather(cast.a.ended(), cast.b.ended())
    case = await judged(
        scene,
        cast.a_track,
        cast.b_track,
        schedule.predictions[lock],
        fence,
        story=name in _SHOWN,
    )
    panels[name] = scene.panel
    return case


_ANSWER = (
    "No. When the lease has ended there is no count to find, so the script that was to count a re-entry "
    "acquires instead, and the caller cannot tell. Leaving the inner block then brought the count to zero "
    "and deleted the lock under the outer block: B entered, and A, awake and unsuspecting, wrote beside it. "
    "The fence of the outer block was older than B's; with the fence on the resource refused it.\n\n"
    "Worse is the turn that B had in between. A's re-entry was granted *after* B, so what A had read before "
    "B was written under a fence above B's. The resource accepted that with the fence on, B's acknowledged "
    "update is gone, and the checkers find nothing: every fence rose. Acquiring anew without saying so "
    "launders a stale holder; only a resource that compares versions, not fences, would have noticed. "
    "`ReentrantLock` raised `LockLost` in both schedules, and nothing stale was sent, fence or not.\n\n"
    "Renewal meets re-entry once more on the way out: the recipe's inner exit stopped the watchdog that the "
    "outer block still needed, and the lease ended under a holder that nobody had frozen. `ReentrantLock` "
    "has one lease and one watchdog for all levels; only the outermost exit ends them, and B waited.\n\n"
    "A process that is stopped *after* it has entered again is beyond either lock: the look at the lease "
    "was right when it was taken. With the fence off both admitted two writers. Only the fence saves that "
    "schedule."
)
