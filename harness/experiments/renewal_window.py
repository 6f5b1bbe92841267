"""Experiment 8: what renewal and check() do for a holder that pauses, and what they cannot do."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

import asyncdlock
from asyncdlock import LockClient, LockError
from harness.clock import now
from harness.experiments.lab import Actor, Lab, Track
from harness.experiments.lab.scene import TIMELINE_FILE
from harness.experiments.lab.track import Event, NeverHappened
from harness.experiments.outcome import Case, Fact, Outcome, compare
from harness.experiments.registry import experiment
from harness.experiments.trials.crew import Crew, Member, open_crew
from harness.experiments.trials.log import ResourceLog
from harness.experiments.trials.verdict import Judgement, judge
from harness.experiments.window.arms import ARMS, Arm, Trial, draw_trials
from harness.experiments.window.picture import draw
from harness.experiments.window.subject import ROLE
from harness.faults import FaultJournal, frozen_process
from harness.resource.process import Fence
from harness.rows import Decision
from harness.writer import FencedWriter, open_writer

TTL = 0.5
PAUSES = (0.1, 0.3, 0.6, 0.8, 1.1, 1.5, 2.0, 4.0, 10.0)
QUICK_PAUSES = (0.3, 0.8, 2.0)
REPETITIONS, QUICK_REPETITIONS = 8, 4
FENCES: tuple[Fence, ...] = ("off", "on")

_PROCESSES = 16
OPEN, CLOSED = "open", "closed"
# Of the trials that paused for longer than the TTL. A machine that is busy enough starves even a watchdog
# that is allowed to run, and delays even a write that follows its check() at once: hence not zero.
_OPEN_SHARE = 0.2


@experiment(
    number=8,
    name="renewal-window",
    question="A holder pauses before it writes. How much do renewal in the background and a check() before "
    "the write narrow the window in which its write arrives too late, and do they close it?",
    expectation="Renewal helps as long as the watchdog runs, check() as long as the pause comes before it. "
    "A pause of event loop or process between the last look and the write always leaves a window; only "
    "the resource closes it.",
)
async def run(lab: Lab) -> Outcome:
    pauses = QUICK_PAUSES if lab.quick else PAUSES
    trials = draw_trials(lab.rng, pauses, QUICK_REPETITIONS if lab.quick else REPETITIONS)
    for trial in trials:
        lab.plan(
            trial=trial.number, arm=trial.arm.name, pause=trial.pause, work=trial.work, fence=trial.fence
        )
    async with AsyncExitStack() as stack:
        bench = await _open_bench(lab, stack)
        await bench.serve(trials)
        judged = {fence: await bench.judged(fence) for fence in FENCES}
    drawn, trials, stale = len(trials), bench.served, bench.stale
    cells = {
        (arm, pause): _counted([t for t in trials if (t.arm, t.pause) == (arm, pause)], stale)
        for arm in ARMS
        for pause in pauses
    }
    (lab.folder / TIMELINE_FILE).write_text(draw(cells, pauses, ttl=TTL))
    cases = [*(_arm_case(arm, trials, stale, pauses) for arm in ARMS), *_narrower(trials, stale)]
    cases += [_fence_case(fence, judged[fence], trials, stale) for fence in FENCES]
    cases.append(compare("every trial came about", len(trials) == drawn, prediction=f"{drawn} trials"))
    return Outcome(cases=cases, answer=_answer(trials, stale), figures={"ttl_s": TTL, "trials": len(trials)})


class _Bench:
    """The servers, the processes that are frozen, and what they did."""

    def __init__(
        self, lab: Lab, crew: Crew, rival: LockClient, spec: Mapping[str, Any], session: aiohttp.ClientSession
    ) -> None:
        self._lab = lab
        self._crew = crew
        self._rival = rival
        self._spec = spec
        self._logs = {fence: ResourceLog(url, session) for fence, url in spec["resources"].items()}
        self._journal = FaultJournal(now())
        self._tracks: dict[Fence, list[Track]] = {fence: [] for fence in FENCES}
        self._keys: dict[str, Trial] = {}
        self.writers: dict[Fence, FencedWriter] = {}
        self.served: list[Trial] = []
        """The trials that came about."""
        self.stale: set[int] = set()
        """The trials whose holder's write arrived after its successor's."""

    async def serve(self, trials: Sequence[Trial]) -> None:
        """All trials, each by the next process that is free."""
        self._keys = {trial.key: trial for trial in trials}
        waiting = iter(trials)

        async def subject(number: int) -> None:
            tracks: list[Track] = []

            def heard(message: Mapping[str, Any]) -> None:
                details = dict(message)
                tracks[-1].add(Event(details.pop("at") - self._journal.origin, details.pop("event"), details))

            async with self._crew.member(f"subject {number}", ROLE, self._spec, heard) as member:
                for trial in waiting:
                    tracks.append(Track(f"holder {trial.number}", trial.key))
                    try:
                        await self._trial(trial, member, tracks[-1])
                    except (NeverHappened, LockError) as error:
                        self._lab.say(f"{trial.key} in {trial.arm.name} came to nothing: {error}")
                        return  # whatever state this process is in: the others serve the rest
                    self.served.append(trial)
                    if len(self.served) % 50 == 0:
                        self._lab.say(f"{len(self.served)} of {len(trials)} trials")
                member.hang_up()
                await member.ended()

        async with asyncio.TaskGroup() as group:
            for number in range(_PROCESSES):
                group.create_task(subject(number))

    async def _trial(self, trial: Trial, member: Member, holder: Track) -> None:
        rival = Track(f"rival {trial.number}", trial.key)
        self._tracks[trial.fence] += [holder, rival]
        holder.paused = trial.pause > 1
        arm = trial.arm
        member.tell(
            {
                "key": trial.key,
                "ttl": TTL,
                "watchdog": arm.watchdog,
                "level": arm.level,
                "steps": arm.guard.split(", "),
                "work": trial.work * TTL,
                "pause": trial.pause * TTL,
                "fence": trial.fence,
            }
        )
        await holder.until("granted")
        async with asyncio.TaskGroup() as group:
            group.create_task(
                self._follow(Actor(rival, self._journal, self._rival, self.writers[trial.fence]))
            )
            if arm.level == "process" and (await holder.until("pausing", "released")).name == "pausing":
                async with frozen_process(self._journal, member.pid, who=holder.name):
                    await asyncio.sleep(trial.pause * TTL)
                member.tell({"go": "on"})
            await holder.until("released")

    async def _follow(self, rival: Actor) -> None:
        """Whoever comes next: takes the lock as soon as it is free, and writes."""
        await rival.acquire(ttl=10 * TTL)
        await rival.write("the successor's")
        await rival.release()

    async def judged(self, fence: Fence) -> Judgement:
        """The verdict on all trials with that fence; notes whose write came too late."""
        origin = self._journal.origin
        decisions = await self._logs[fence].read(origin, mine=self._keys.__contains__)
        self.stale |= {self._keys[decision.key].number for decision in decisions if _too_late(decision)}
        return judge(
            self._lab.folder / f"fence-{fence}",
            self._tracks[fence],
            decisions,
            origin=origin,
            faults=self._journal.faults,
            config={"ttl": TTL, "fence": fence},
        )


async def _open_bench(lab: Lab, stack: AsyncExitStack) -> _Bench:
    server = await lab.lock_server("redis")
    resources = {fence: (await lab.resource(fence)).url for fence in FENCES}
    modules = ("asyncdlock.backends.redis", "harness.experiments.window.subject")
    crew = await stack.enter_async_context(open_crew(*modules, log=lab.folder / "processes.log"))
    rival = await stack.enter_async_context(asyncdlock.connect(server.url))
    session = await stack.enter_async_context(aiohttp.ClientSession())
    bench = _Bench(lab, crew, rival, {"url": server.url, "resources": resources}, session)
    for fence, url in resources.items():
        bench.writers[fence] = await stack.enter_async_context(open_writer(url))
    return bench


def _too_late(decision: Decision) -> bool:
    return decision.seen is not None and decision.token < decision.seen


def _counted(trials: Sequence[Trial], stale: set[int]) -> tuple[int, int]:
    return sum(trial.number in stale for trial in trials), len(trials)


def _arm_case(arm: Arm, trials: Sequence[Trial], stale: set[int], pauses: Sequence[float]) -> Case:
    mine = [trial for trial in trials if trial.arm == arm]
    facts: dict[str, Fact] = {}
    for pause in pauses:
        late, of = _counted([trial for trial in mine if trial.pause == pause], stale)
        facts[f"{pause:g} TTL"] = f"{late}/{of}"
    late, of = _counted([trial for trial in mine if trial.pause > 1], stale)
    observed = OPEN if late > _OPEN_SHARE * of else CLOSED
    return Case(name=arm.name, expected=OPEN if arm.open else CLOSED, observed=observed, facts=facts)


def _narrower(trials: Sequence[Trial], stale: set[int]) -> list[Case]:
    """Each means narrows the window of those who freeze as a whole; both together do not close it."""
    frozen = [trial for trial in trials if trial.arm.level != "coroutine"]

    def late(watchdog: bool, guards: Sequence[str]) -> tuple[int, int]:
        chosen = [t for t in frozen if t.arm.watchdog == watchdog and t.arm.guard in guards]
        return _counted(chosen, stale)

    plain, looks, both = ("pause, write",), ("pause, check(), write",), ("check(), pause, write",)
    nothing, renewed, looked, left = (
        late(False, plain),
        late(True, plain),
        late(True, looks),
        late(True, both),
    )
    return [
        compare(
            "renewal narrows the window",
            renewed[0] < nothing[0],
            prediction="narrower",
            stale=f"{nothing[0]}/{nothing[1]} without, {renewed[0]}/{renewed[1]} with",
        ),
        compare(
            "check() after the pause narrows it further",
            looked[0] < renewed[0],
            prediction="narrower",
            stale=f"{renewed[0]}/{renewed[1]} without, {looked[0]}/{looked[1]} with",
        ),
        compare(
            "renewal and check() do not close it",
            left[0] > 0,
            prediction="still open",
            stale=f"{left[0]}/{left[1]} with the pause after the check()",
        ),
    ]


def _fence_case(fence: Fence, judged: Judgement, trials: Sequence[Trial], stale: set[int]) -> Case:
    mine = [trial for trial in trials if trial.fence == fence]
    late, _ = _counted(mine, stale)
    refused = judged.figure("stale_writes", "refused")
    return Case(
        name=f"all trials, fence {fence}",
        expected="violated" if fence == "off" else "ok",
        observed=judged.verdict,
        facts={"stale": f"{late}/{len(mine)} arrived late, {refused} refused"},
        findings=judged.findings,
        folder=f"fence-{fence}",
    )


def _answer(trials: Sequence[Trial], stale: set[int]) -> str:
    def late(level: Sequence[str], watchdog: bool, guard: str) -> str:
        chosen = [
            trial
            for trial in trials
            if trial.arm.level in level and trial.arm.watchdog == watchdog and trial.arm.guard == guard
        ]
        count, of = _counted(chosen, stale)
        return f"{count} of {of}"

    whole = ("event loop", "process")
    refused = sum(trial.number in stale and trial.fence == "on" for trial in trials)
    shortest = min(
        (t.pause for t in trials if t.number in stale and t.arm.watchdog and t.arm.level in whole),
        default=None,
    )
    least = "" if shortest is None else f", the shortest after a pause of {shortest:g} TTLs"
    return (
        "They narrow it and do not close it. Of holders whose event loop or process stood still, "
        f"{late(whole, False, 'pause, write')} writes arrived after the successor's without renewal and "
        f"{late(whole, True, 'pause, write')} with it{least}: a lease that was just renewed has two thirds "
        "of a TTL or more to go, so shorter pauses do no harm. If only the holder's coroutine waits, the "
        f"watchdog goes on renewing: {late(('coroutine',), True, 'pause, write')}.\n\n"
        "A look at the lease after the pause stops nearly all of the rest: "
        f"{late(whole, True, 'pause, check(), write')}. But a look is not a guard: when the pause falls "
        f"between the look and the write, {late(whole, True, 'check(), pause, write')} arrived too late, "
        "and nothing that the holder can do in advance helps, because it is the one that stands still.\n\n"
        f"With the fence on the resource refused all {refused} of those that met it. The figures are those "
        "of pauses chosen by us, of equal weight; they compare the means with each other and say nothing "
        "about how often real processes pause."
    )
