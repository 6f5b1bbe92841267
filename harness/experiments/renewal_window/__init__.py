"""Experiment 8: what renewal and check() do for a holder that pauses, and what they cannot do."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import asyncdlock
from asyncdlock import LockClient, LockError
from harness.experiments.renewal_window.arms import ARMS, Arm, Guard, Trial, draw_trials
from harness.experiments.renewal_window.picture import draw
from harness.experiments.renewal_window.subject import subject
from harness.faults import FaultJournal, frozen_process
from harness.history.rows import Decision
from harness.lab import FENCES, Actor, Lab, Track
from harness.lab.event import Event
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, about, answer, compare
from harness.lab.participant import Participant
from harness.lab.registry import experiment
from harness.lab.scene import TIMELINE_FILE
from harness.lab.track import NeverHappened
from harness.lab.verdict import Judged, judge
from harness.load.clock import now
from harness.resource.client import ResourceClient
from harness.resource.process import Fence

TTL = 0.5
PAUSES = (0.1, 0.3, 0.6, 0.8, 1.1, 1.5, 2.0, 4.0, 10.0)
QUICK_PAUSES = (0.3, 0.8, 2.0)
REPETITIONS, QUICK_REPETITIONS = 8, 4

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
async def run(lab: Lab) -> ExperimentResult:
    pauses = QUICK_PAUSES if lab.quick else PAUSES
    trials = draw_trials(lab.rng, pauses, QUICK_REPETITIONS if lab.quick else REPETITIONS)
    for trial in trials:
        lab.plan(
            trial=trial.number, arm=trial.arm.name, pause=trial.pause, work=trial.work, fence=trial.fence
        )
    served = _Trials(lab, trials)
    await served.serve()
    judged = {fence: await served.judged(fence) for fence in FENCES}
    drawn, trials, stale = len(trials), served.done, served.stale
    cells = {
        (arm, pause): _counted([t for t in trials if (t.arm, t.pause) == (arm, pause)], stale)
        for arm in ARMS
        for pause in pauses
    }
    (lab.folder / TIMELINE_FILE).write_text(draw(cells, pauses, ttl=TTL))
    cases = [*(_arm_case(arm, trials, stale, pauses) for arm in ARMS), *_narrower(trials, stale)]
    cases += [_fence_case(fence, judged[fence], trials, stale) for fence in FENCES]
    cases.append(compare("every trial came about", len(trials) == drawn, prediction=f"{drawn} trials"))
    return ExperimentResult(
        cases=cases, answer=_answer(cases, trials, stale), figures={"ttl_s": TTL, "trials": len(trials)}
    )


class _Trials:
    """All trials, the processes that are frozen in them, and what they did."""

    def __init__(self, lab: Lab, trials: Sequence[Trial]) -> None:
        self._lab = lab
        self._keys = {trial.key: trial for trial in trials}
        self._journal = FaultJournal(now())
        self._tracks: dict[Fence, list[Track]] = {fence: [] for fence in FENCES}
        self.done: list[Trial] = []
        """The trials that came about."""
        self.stale: set[int] = set()
        """The trials whose holder's write arrived after its successor's."""

    async def serve(self) -> None:
        """Each by the next process that is free."""
        lab, trials = self._lab, list(self._keys.values())
        url = (await lab.lock_server("redis")).url
        resources = {fence: (await lab.resource(fence)).url for fence in FENCES}
        spec = {"url": url, "resources": resources}
        forkserver = await lab.forkserver()
        waiting = iter(trials)

        async def process(number: int) -> None:
            tracks: list[Track] = []

            def heard(event: Event) -> None:
                tracks[-1].add(event.since(self._journal.origin))

            async with forkserver.participant(f"subject {number}", subject, spec, heard) as participant:
                for trial in waiting:
                    tracks.append(Track(f"holder {trial.number}", trial.key))
                    try:
                        await self._trial(trial, participant, tracks[-1], rivals[trial.fence])
                    except (NeverHappened, LockError) as error:
                        lab.say(f"{trial.key} in {trial.arm.name} came to nothing: {error}")
                        return  # whatever state this process is in: the others serve the rest
                    self.done.append(trial)
                    if len(self.done) % 50 == 0:
                        lab.say(f"{len(self.done)} of {len(trials)} trials")
                participant.hang_up()
                await participant.ended()

        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(asyncdlock.connect(url))
            rivals = {
                fence: (client, await stack.enter_async_context(ResourceClient(resource)))
                for fence, resource in resources.items()
            }
            async with asyncio.TaskGroup() as group:
                for number in range(_PROCESSES):
                    group.create_task(process(number))

    async def _trial(
        self,
        trial: Trial,
        participant: Participant,
        holder: Track,
        clients: tuple[LockClient, ResourceClient],
    ) -> None:
        rival = Track(f"rival {trial.number}", trial.key)
        self._tracks[trial.fence] += [holder, rival]
        holder.paused = trial.pause > 1
        arm = trial.arm
        participant.tell(
            "trial",
            key=trial.key,
            ttl=TTL,
            watchdog=arm.watchdog,
            level=arm.level,
            steps=arm.guard.split(", "),
            work=trial.work * TTL,
            pause=trial.pause * TTL,
            fence=trial.fence,
        )
        await holder.until("granted")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(Actor(trial.key, *clients, rival.teller(self._journal))))
            if arm.level == "process" and (await holder.until("pausing", "released")).name == "pausing":
                async with frozen_process(self._journal, participant.pid, who=holder.name):
                    await asyncio.sleep(trial.pause * TTL)
                participant.go()
            await holder.until("released")

    async def _follow(self, rival: Actor) -> None:
        """Whoever comes next: takes the lock as soon as it is free, and writes."""
        await rival.acquire(ttl=10 * TTL)
        await rival.write("the successor's")
        await rival.release()

    async def judged(self, fence: Fence) -> Judged:
        """The verdict on all trials with that fence; notes whose write came too late."""
        resource = await self._lab.resource(fence)
        decisions = await resource.new_decisions(self._journal.origin, self._keys.__contains__)
        self.stale |= {self._keys[decision.key].number for decision in decisions if _too_late(decision)}
        return judge(
            self._lab.folder / f"fence-{fence}",
            self._tracks[fence],
            decisions,
            self._journal,
            config={"ttl": TTL, "fence": fence},
        )


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

    def late(watchdog: bool, guard: Guard) -> tuple[int, str]:
        chosen = [t for t in frozen if (t.arm.watchdog, t.arm.guard) == (watchdog, guard)]
        count, of = _counted(chosen, stale)
        return count, f"{count}/{of}"

    nothing, renewed = late(False, "pause, write"), late(True, "pause, write")
    looked, left = late(True, "pause, check(), write"), late(True, "check(), pause, write")
    narrower = {"renewal narrows the window": (nothing, renewed)}
    narrower["check() after the pause narrows it further"] = (renewed, looked)
    return [
        *(
            compare(name, after < before, prediction="narrower", stale=f"{of} without, {of_after} with")
            for name, ((before, of), (after, of_after)) in narrower.items()
        ),
        compare(
            "renewal and check() do not close it",
            left[0] > 0,
            prediction="still open",
            stale=f"{left[1]} with the pause after the check()",
        ),
    ]


def _fence_case(fence: Fence, judged: Judged, trials: Sequence[Trial], stale: set[int]) -> Case:
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


def _answer(cases: Sequence[Case], trials: Sequence[Trial], stale: set[int]) -> str:
    whole = ("event loop", "process")

    def late(levels: Sequence[str], watchdog: bool, guard: str) -> str:
        chosen = [t for t in trials if (t.arm.watchdog, t.arm.guard) == (watchdog, guard)]
        count, of = _counted([trial for trial in chosen if trial.arm.level in levels], stale)
        return f"{count} of {of}"

    met = sum(trial.number in stale and trial.fence == "on" for trial in trials)
    shortest = min(
        (t.pause for t in trials if t.number in stale and t.arm.watchdog and t.arm.level in whole),
        default=None,
    )
    least = "" if shortest is None else f", the shortest after a pause of {shortest:g} TTLs"
    return answer(
        "Of holders whose event loop or process stood still, "
        f"{late(whole, False, 'pause, write')} writes arrived after the successor's without renewal and "
        f"{late(whole, True, 'pause, write')} with it{least}. If only the holder's coroutine waits, the "
        f"watchdog goes on renewing: {late(('coroutine',), True, 'pause, write')}. With a look at the "
        f"lease after the pause: {late(whole, True, 'pause, check(), write')}; when the pause falls "
        f"between the look and the write: {late(whole, True, 'check(), pause, write')}.",
        Conclusion(
            "They narrow the window and do not close it. A lease that was just renewed has two thirds of a "
            "TTL or more to go, so shorter pauses do no harm; a look at the lease after the pause stops "
            "nearly all of the rest. But a look is not a guard: nothing that the holder can do in advance "
            "helps when it is the one that stands still.",
            about(cases, "narrows", "do not close"),
        ),
        Conclusion(
            f"With the fence on the resource refused all {met} of those that met it.",
            about(cases, "fence on"),
        ),
        "The figures are those of pauses chosen by us, of equal weight; they compare the means with each "
        "other and say nothing about how often real processes pause.",
    )
