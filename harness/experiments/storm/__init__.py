"""Experiment 15: random faults on every backend, run after run, with the fence on."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, islice

import aiohttp

from harness.experiments.storm.plan import PROCESSES, RunPlan, plan_run
from harness.experiments.storm.single import Result, run_once
from harness.judge.checkers import worst
from harness.judge.statistics import rule_of_three
from harness.lab import Lab
from harness.lab.outcome import FAILED, NOTHING_RAN, SKIPPED, Case, ExperimentResult, Fact
from harness.lab.registry import experiment
from harness.lab.rig import Rig, open_rig
from harness.lab.track import NeverHappened
from harness.servers.catalogue import SHARED
from harness.servers.errors import ServerError, ServerMissing

RUNS, QUICK_RUNS = 200, 10
CONTROLS: Mapping[str, int] = dict.fromkeys(SHARED, 2)
QUICK_CONTROLS: Mapping[str, int] = {"redis": 2}

# A busy machine can make a storm too mild, or so wild that nobody gets the lock: either shows nothing.
# How many times as many controls are tried, and how often an unknown run.
_TRIES = 3


@experiment(
    number=15,
    name="storm",
    question="Processes update one value under one lock while clients and servers are frozen and killed and "
    "links are cut and slowed at random. Does the resource, with the fence on, ever accept a stale write or "
    "lose an acknowledged update?",
    expectation="Never, on any backend. With the fence off the same storms lose updates.",
    has_runs=True,
)
async def run(lab: Lab) -> ExperimentResult:
    runs = lab.runs or (QUICK_RUNS if lab.quick else RUNS)
    return await storm(lab, runs, controls=QUICK_CONTROLS if lab.quick else CONTROLS)


async def storm(lab: Lab, runs: int, *, controls: Mapping[str, int]) -> ExperimentResult:
    """`runs` runs with consecutive seeds and the fence on; of some backends the first ones again without."""
    plans = [plan_run(lab.seed + number) for number in range(runs)]
    # The faults of each follow from its seed: see plan.py.
    lab.plan(seeds=[plan.seed for plan in plans])
    by_backend = {backend: [plan for plan in plans if plan.backend == backend] for backend in SHARED}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_all_runs(lab, its_plans, controls=controls.get(backend, 0)))
            for backend, its_plans in by_backend.items()
            if its_plans
        ]
    done = [task.result() for task in tasks]
    results = sorted(
        (result for runs_of in done for result in runs_of.results), key=lambda one: one.plan.seed
    )
    control = [result for runs_of in done for result in runs_of.controls]
    cases = [runs_of.case for runs_of in done]
    if control:
        cases.append(_control_case(control))
    return ExperimentResult(
        cases=cases,
        answer=_answer(results, control),
        figures={
            "runs": len(results),
            "verdicts": dict(Counter(result.verdict for result in results)),
            "upper_bound_95": rule_of_three(len(results)),
            "faults": dict(Counter(fault for result in results for fault in result.faults)),
            "rows": [result.to_json() for result in results],
            "control_rows": [result.to_json() for result in control],
        },
    )


class _Runs:
    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.results: list[Result] = []
        self.controls: list[Result] = []
        self.trouble = "", ""
        """Why it did not come to its end: a word, and a sentence."""

    @property
    def case(self) -> Case:
        bad = [result for result in self.results if result.verdict != "ok"]
        observed, reason = self.trouble
        if bad or not observed:
            observed = worst(result.verdict for result in self.results)
            reason = "; ".join(map(_how_to_repeat, bad))
        return Case(
            name=f"{self.backend}, fence on",
            expected="ok",
            observed=observed,
            facts=_facts(self.results),
            findings=[f"seed {one.plan.seed}: {finding}" for one in bad for finding in one.findings],
            reason=reason,
        )


async def _all_runs(lab: Lab, plans: Sequence[RunPlan], *, controls: int) -> _Runs:
    """All runs of one backend, one after the other, then its controls."""
    backend = plans[0].backend
    runs_of = _Runs(backend)
    try:
        async with open_rig(backend, await lab.forkserver(), lab.folder, processes=PROCESSES) as rig:
            for number, plan in enumerate(plans, 1):
                result = await _judged_run(rig, plan)
                runs_of.results.append(result)
                if result.verdict != "ok":
                    lab.say(_how_to_repeat(result))
                elif number % 5 == 0 or number == len(plans):
                    lab.say(f"{backend}: {number} of {len(plans)} runs")
            if controls:
                await rig.set_fence("off")
            for number, plan in enumerate(islice(cycle(plans), _TRIES * controls)):
                if len(runs_of.controls) >= controls and any(map(_is_violated, runs_of.controls)):
                    break
                runs_of.controls.append(await run_once(rig, plan, number // len(plans)))
    except ServerMissing as missing:
        runs_of.trouble = SKIPPED, str(missing)
    except (ServerError, NeverHappened, aiohttp.ClientError, OSError, TimeoutError) as error:
        runs_of.trouble = FAILED, " ".join(f"{type(error).__name__}: {error}".split())
    return runs_of


async def _judged_run(rig: Rig, plan: RunPlan) -> Result:
    """The first run by this plan that shows something, or the last."""
    for attempt in range(_TRIES):
        result = await run_once(rig, plan, attempt)
        if result.verdict != "unknown":
            break
    return result


def _how_to_repeat(result: Result) -> str:
    finding = f" ({result.findings[0]})" if result.findings else ""
    return (
        f"seed {result.plan.seed} on {result.plan.backend} is {result.verdict}{finding}; repeat it by "
        f"python -m harness experiment storm --quick --runs 1 --seed {result.plan.seed}"
    )


def _facts(results: Sequence[Result]) -> dict[str, Fact]:
    return {
        "runs": len(results),
        "showed nothing before": sum(result.attempt for result in results),
        "faults": sum(len(result.faults) for result in results),
        "grants": sum(result.grants for result in results),
        "acknowledged": sum(result.acknowledged for result in results),
        "displaced holders that wrote": sum(result.displaced for result in results),
        "refused": sum(result.refused for result in results),
        "without reply": sum(result.unknown_writes for result in results),
        "stale accepted": sum(result.stale_accepted for result in results),
        "updates lost": sum(result.lost_updates for result in results),
    }


def _is_violated(result: Result) -> bool:
    return result.verdict == "violated"


def _control_case(results: Sequence[Result]) -> Case:
    violated = list(filter(_is_violated, results))
    return Case(
        name="the same storms, fence off",
        expected="violated",
        observed="violated" if violated else "ok",
        facts=_facts(results),
        findings=[f"seed {one.plan.seed}: {one.findings[0]}" for one in violated],
        reason="" if violated else "the storms were too mild to show anything",
    )


def _answer(results: Sequence[Result], controls: Sequence[Result]) -> str:
    if not results:
        return NOTHING_RAN
    runs, facts = len(results), _facts(results)
    violated = sum(result.verdict != "ok" for result in results)
    kinds = Counter(fault for result in results for fault in result.faults)
    if violated:
        verdict = f"{violated} of {runs} runs were not clean; the table names their seeds."
    else:
        verdict = (
            f"Not in {runs} runs: no stale write was accepted and no acknowledged update was lost. None in "
            f"{runs} is an upper bound and no proof: at 95 % the probability that such a run goes wrong is "
            f"below {rule_of_three(runs):.1%} (3/n)."
        )
    faults = (
        f"The runs were not quiet: {facts['faults']} faults came about "
        f"({', '.join(f'{count} × {name}' for name, count in kinds.most_common())}), "
        f"{facts['displaced holders that wrote']} holders sent their write when the next one already had the "
        f"lock, and the resource refused {facts['refused']} operations. {facts['acknowledged']} updates were "
        f"acknowledged, {facts['without reply']} got no reply."
    )
    if again := facts["showed nothing before"]:
        verdict += f" {again} more showed nothing, neither way, and were repeated."
    return "\n\n".join([verdict, faults, *([_of_controls(controls)] if controls else [])])


def _of_controls(controls: Sequence[Result]) -> str:
    facts = _facts(controls)
    violated = sum(map(_is_violated, controls))
    return (
        f"With the fence off, {violated} of {len(controls)} of the same storms were violated: "
        f"{facts['stale accepted']} stale writes accepted, {facts['updates lost']} of "
        f"{facts['acknowledged']} acknowledged updates lost. The lock was the same."
    )
