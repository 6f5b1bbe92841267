"""Experiment 14: how much of what a holder does must be fenced so that no acknowledged update is lost."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial

import aiohttp

import asyncdlock
from harness.experiments.depth import schedules
from harness.experiments.depth.modes import KEEPS, LOSES, Arena
from harness.experiments.lab import Lab, Plan
from harness.experiments.outcome import Case, Outcome
from harness.experiments.registry import experiment
from harness.experiments.trials.shared_set import RESOURCE_FENCE, Mode
from harness.report.timeline import Panel

TTL = 0.2
UPDATES, QUICK_UPDATES = 100, 15

Schedule = Callable[[Arena], Awaitable[None]]

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


@experiment(
    number=14,
    name="fence-depth",
    question="Holders read a value, wait and write it back changed. What must the resource compare so that "
    "no acknowledged update is lost: nothing, the fence of writes, that of every operation, or versions?",
    expectation="Nothing loses updates. The fence of writes alone still does: a holder that has read, but "
    "not written yet, does not keep an older one from writing, and overwrites it. With the read fenced as "
    "well, or with check-and-set, nothing is lost.",
)
async def run(lab: Lab) -> Outcome:
    updates = QUICK_UPDATES if lab.quick else UPDATES
    waits = schedules.draw_waits(lab.rng, updates, ttl=TTL)
    lab.plan(schedule=_RANDOM, ttl=TTL, waits=waits)
    schedule_of: dict[str, Schedule] = {
        _OLDER: schedules.older_writes_first,
        _YOUNGER: schedules.younger_writes_first,
        _RANDOM: partial(schedules.at_random, waits=waits),
    }
    panels: dict[str, Panel | None] = {}
    plans = []
    for mode in _MODES:
        for schedule, play in schedule_of.items():
            name, expected = f"{mode}, {schedule}", _EXPECTED.get((mode, schedule), KEEPS)
            plans.append(
                Plan(name, expected, partial(_case, lab, name, mode, schedule, play, expected, panels))
            )
    cases = await lab.cases(plans)
    lab.picture([panels.get(f"{mode}, {_OLDER}") for mode in ("writes only", "every operation")])
    return Outcome(
        cases=cases, answer=_answer(cases), figures={"ttl_s": TTL, "updates": len(waits) * updates}
    )


async def _case(
    lab: Lab,
    name: str,
    mode: Mode,
    schedule: str,
    play: Schedule,
    expected: str,
    panels: dict[str, Panel | None],
) -> Case:
    server = await lab.lock_server("redis")
    resource = await lab.resource(RESOURCE_FENCE[mode])
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(asyncdlock.connect(server.url))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        arena = Arena(name, mode, lab, resource, client, session, ttl=TTL)
        await play(arena)
        case = await arena.case(expected, schedule)
    panels[name] = arena.panel
    return case


def _answer(cases: Sequence[Case]) -> str:
    def at_random(mode: Mode) -> str:
        facts = next(case for case in cases if case.name == f"{mode}, {_RANDOM}").facts
        return f"{facts.get('lost')} of {facts.get('acknowledged')}, {facts.get('share, 95 %')},"

    if any(not case.facts for case in cases):
        return "Not all cases could be run; the table tells which."
    return (
        "Every operation, or versions. Of the acknowledged updates of the random schedule were lost: "
        f"{at_random('none')} with nothing compared, {at_random('writes only')} with the fence of writes, "
        f"{at_random('every operation')} with that of every operation, and {at_random('check-and-set')} with "
        "check-and-set.\n\n"
        "The fence of writes alone misses the order in which 33 reads and pauses, 34 reads, 33 writes, 34 "
        "writes: 33's write is accepted, because nobody has *written* with 34 yet, and 34 then stores what "
        "it made of a value that no longer was. Fences never ran backwards and the log looks clean; the "
        "update is gone all the same. When 34's read raises the mark, 33 is refused.\n\n"
        "Check-and-set keeps every update too, without a lock. It protects the value, not the turn: a holder "
        "that was displaced may still write, if it reads again, which is why the checkers of the lock find "
        "fault with its log. The random schedule is one of ours; how much it loses depends on how long "
        "holders pause, that it loses at all does not."
    )
