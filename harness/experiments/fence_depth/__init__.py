"""Experiment 14: how much of what a holder does must be fenced to lose no acknowledged update."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import product

from harness.experiments.fence_depth import schedules
from harness.experiments.fence_depth.schedules import SetScene, open_set_scene
from harness.judge.statistics import wilson
from harness.lab import Lab, Plan
from harness.lab.guarded_store import Kind
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, about, answer
from harness.lab.registry import experiment
from harness.lab.shared_set import RESOURCE_FENCE, Mode

TTL = 0.2
UPDATES, QUICK_UPDATES = 100, 15
LOSES, KEEPS = "loses updates", "loses none"

Schedule = Callable[[SetScene], Awaitable[None]]

_MODES: tuple[Mode, ...] = ("none", "writes only", "every operation", "check-and-set")
_OLDER, _YOUNGER, _RANDOM = "older writes first", "younger writes first", "at random"
_EXPECTED: Mapping[tuple[Mode, str], str] = {
    ("none", _OLDER): LOSES,
    ("none", _YOUNGER): LOSES,
    ("none", _RANDOM): LOSES,
    ("writes only", _OLDER): LOSES,
    ("writes only", _YOUNGER): KEEPS,
    ("writes only", _RANDOM): LOSES,
}
"""The rest keeps every update."""

_GUARDED: Mapping[Kind, Sequence[Mode]] = {
    "postgres row": ("none", "writes only", "every operation"),
    "s3 object": ("none", "writes only"),
}
"""What the guards of stores can compare: S3 cannot note a read."""


@experiment(
    number=14,
    name="fence-depth",
    question="Holders read a value, wait and write it back changed. What must the resource compare so that "
    "no acknowledged update is lost: nothing, the fence of writes, that of every operation, or versions?",
    expectation="Nothing loses updates. The fence of writes alone still does: a holder that has read, but "
    "not written yet, does not keep an older one from writing, and overwrites it. With the read fenced as "
    "well, or with check-and-set, nothing is lost.",
)
async def run(lab: Lab) -> ExperimentResult:
    updates = QUICK_UPDATES if lab.quick else UPDATES
    waits = schedules.draw_waits(lab.rng, updates, ttl=TTL)
    lab.plan(schedule=_RANDOM, ttl=TTL, waits=waits)
    schedule_of: dict[str, Schedule] = {
        _OLDER: schedules.older_writes_first,
        _YOUNGER: schedules.younger_writes_first,
        _RANDOM: partial(schedules.at_random, waits=waits),
    }
    plans = []
    for mode in _MODES:
        for schedule, play in schedule_of.items():
            expected = _EXPECTED.get((mode, schedule), KEEPS)
            run_one = partial(_case, lab, mode, schedule, play, expected)
            plans.append(Plan(f"{mode}, {schedule}", expected, run_one))
    for kind, modes in _GUARDED.items():
        for mode, schedule in product(modes, (_OLDER, _YOUNGER)):
            expected = _EXPECTED.get((mode, schedule), KEEPS)
            run_one = partial(_case, lab, mode, schedule, schedule_of[schedule], expected, kind)
            plans.append(Plan(f"{kind}: {mode}, {schedule}", expected, run_one))
    cases = await lab.cases(plans)
    lab.picture(*(f"{mode}, {_OLDER}" for mode in ("writes only", "every operation")))
    return ExperimentResult(
        cases=cases, answer=conclude(cases), figures={"ttl_s": TTL, "updates": len(waits) * updates}
    )


async def _case(
    lab: Lab, mode: Mode, schedule: str, play: Schedule, expected: str, kind: Kind | None = None
) -> Case:
    """Count what was lost, and let the checkers look at the log as well."""
    name = f"{mode}, {schedule}" if kind is None else f"{kind}: {mode}, {schedule}"
    async with open_set_scene(lab, name, mode, ttl=TTL, kind=kind) as stage:
        await play(stage)
        acknowledged, missing = stage.acknowledged, await stage.lost()
    told = f"lost: {', '.join(missing)}" if missing else "nothing acknowledged was lost"
    judged = await stage.scene.judged(subtitle=told, mode=mode, fence=RESOURCE_FENCE[mode], store=kind)
    facts: dict[str, Fact] = {
        "schedule": schedule,
        "acknowledged": len(acknowledged),
        "lost": len(missing),
        "share, 95 %": _share(missing, acknowledged) if len(acknowledged) > 2 else None,
        "refused (409)": sum(holder.refused for holder in stage.holders),
        "conflicts (412)": sum(holder.conflicts for holder in stage.holders),
        "the log looks": judged.verdict if kind is None else None,
    }
    return Case(
        name=stage.scene.name,
        expected=expected,
        observed=LOSES if missing else KEEPS,
        facts=facts,
        findings=[f"acknowledged, and not in the set: {element}" for element in missing],
        folder=stage.scene.folder.name,
    )


def _share(missing: Sequence[str], acknowledged: Sequence[str]) -> str:
    return f"{len(missing) / len(acknowledged):.1%} ({wilson(len(missing), len(acknowledged))})"


def conclude(cases: Sequence[Case]) -> str:
    def of(*modes: Mode) -> list[Case]:
        return [case for case in cases if case.name.partition(",")[0] in modes]

    lost = [
        f"{case.facts['lost']} of {case.facts['acknowledged']}, {case.facts['share, 95 %']}, with "
        f"{case.name.partition(',')[0]}"
        for case in cases
        if case.name.endswith(_RANDOM) and "lost" in case.facts
    ]
    enough = [mode for mode in _MODES if of(mode) and all(case.observed == KEEPS for case in of(mode))]
    return answer(
        f"Nothing acknowledged was lost with: {', '.join(enough) or 'none of them'}. Lost of the "
        f"acknowledged updates of the random schedule: {'; '.join(lost) or 'not measured'}.",
        Conclusion(
            "The fence of writes alone misses the order in which 33 reads and pauses, 34 reads, 33 writes, "
            "34 writes: 33's write is accepted, because nobody has *written* with 34 yet, and 34 then "
            "stores what it made of a value that no longer was. Fences never ran backwards and the log "
            "looks clean; the update is gone all the same.",
            of("writes only"),
        ),
        Conclusion("When 34's read raises the mark, 33 is refused.", of("every operation")),
        Conclusion(
            "Check-and-set keeps every update too, without a lock. It protects the value, not the turn: a "
            "holder that was displaced may still write, if it reads again, which is why the checkers of "
            "the lock find fault with its log.",
            of("check-and-set"),
        ),
        Conclusion(
            "The guards of a Postgres row and an S3 object are no different: with writes alone guarded both "
            "lose the same update, and a row whose read was guarded in its transaction keeps it. S3 cannot "
            "note a read.",
            about(cases, *_GUARDED),
        ),
        "The random schedule is one of ours; how much it loses depends on how long holders pause, that it "
        "loses at all does not.",
    )
