"""Experiment 12: the lock against its lock-free alternative, compare-and-swap with a version."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import asyncdlock
from harness.experiments.lock_vs_cas.increments import Increments, by_lock, by_swap, open_resource
from harness.lab import Lab, Plan
from harness.lab.outcome import NOTHING_RAN, Case, Conclusion, ExperimentResult, Fact, answer, compare
from harness.lab.registry import experiment
from harness.report.charts import Series, lines
from harness.resource.process import spawn

WORK = 0.005
"""What a writer does between its read and its write: the time in which another one can spoil it."""
NONE_LOST = "no update lost"

Found = dict[int, dict[str, Increments]]
"""By the number of writers, what each way came to."""


@experiment(
    number=12,
    name="lock-vs-cas",
    question="Many writers add to one value. Is a lock better than compare-and-swap with a version, and from "
    "how many writers on?",
    expectation="Neither loses an update. Alone, compare-and-swap is faster: it needs no lock server. With "
    "more writers its tries spoil each other: most work is thrown away, and the lock, which makes them wait "
    "before the work instead of after it, wastes none.",
)
async def run(lab: Lab) -> ExperimentResult:
    sizes = [1, 4, 32, 200] if lab.quick else [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    seconds = 1.0 if lab.quick else 3.0
    lab.plan(writers=sizes, seconds=seconds, work=WORK)
    resources = {
        "cas": (await lab.enter(spawn(store="memory", fence="off", log=False))).url,
        "lock": (await lab.enter(spawn(store="memory", log=False))).url,
    }
    found: Found = {}
    cases: list[Case] = []
    for writers in sizes:
        plan = Plan(f"{writers} writers", NONE_LOST, partial(_case, lab, resources, writers, seconds, found))
        cases += await lab.cases([plan])
    if found:
        cases.append(_waste(found))
    _pictures(lab, found)
    return ExperimentResult(
        cases=cases,
        answer=_answer(cases, found),
        figures={
            "work_s": WORK,
            "crossing_writers": crossing(found),
            "points": [
                _figures(writers, way, one) for writers, ways in found.items() for way, one in ways.items()
            ],
        },
    )


async def _case(
    lab: Lab,
    resources: Mapping[str, str],
    writers: int,
    seconds: float,
    found: Found,
) -> Case:
    server = await lab.lock_server("redis-queue")
    done: dict[str, Increments] = {}
    async with open_resource(resources["cas"]) as resource:
        done["cas"] = await by_swap(resource, writers, work=WORK, seconds=seconds, seed=lab.seed)
    async with open_resource(resources["lock"]) as resource, asyncdlock.connect(server.url) as locks:
        done["lock"] = await by_lock(resource, locks, writers, work=WORK, seconds=seconds)
    found[writers] = done
    facts: dict[str, Fact] = {}
    for way, one in done.items():
        facts |= {
            f"{way}/s": one.per_s,
            f"{way} wasted": f"{one.wasted:.0%}",
            f"{way} p99": f"{one.p99_ms:,.0f} ms",
        }
    lost = [way for way, one in done.items() if one.value != one.done]
    observed = f"{' and '.join(lost)} lost updates" if lost else NONE_LOST
    return Case(name=f"{writers} writers", expected=NONE_LOST, observed=observed, facts=facts)


def _waste(found: Found) -> Case:
    """The claim about wasted work, at the largest number of writers."""
    prediction = "cas wastes most of it, the lock none"
    most = found[max(found)]
    holds = most["cas"].wasted > 0.5 and most["lock"].refused == 0
    facts: dict[str, Fact] = {f"{way} wasted": f"{one.wasted:.0%}" for way, one in most.items()}
    return compare("wasted work", holds, prediction=prediction, **facts)


def crossing(found: Found) -> int | None:
    """The smallest number of writers from which on the lock does more per second; `None`: never."""
    better = [
        writers for writers in sorted(found) if found[writers]["lock"].per_s > found[writers]["cas"].per_s
    ]
    worse = [writers for writers in found if writers not in better]
    return next((writers for writers in better if writers > max(worse, default=0)), None)


def _figures(writers: int, way: str, one: Increments) -> dict[str, Any]:
    return {
        "writers": writers,
        "way": way,
        "per_s": round(one.per_s, 2),
        "wasted": round(one.wasted, 4),
        "done": one.done,
        "refused": one.refused,
        "p99_ms": round(one.p99_ms, 3),
    }


def _pictures(lab: Lab, found: Found) -> None:
    ways = {"cas": "compare-and-swap", "lock": "lock (redis-queue)"}
    charts: dict[str, tuple[str, str, Callable[[Increments], float]]] = {
        "updates": ("Updates of one value", "per second", lambda one: one.per_s),
        "wasted": ("Work thrown away", "% of all tries", lambda one: 100 * one.wasted),
    }
    for name, (title, label, read) in charts.items():
        series = [
            Series(legend, [(writers, read(done[way])) for writers, done in sorted(found.items())])
            for way, legend in ways.items()
        ]
        picture = lines(title, series, x_label="writers", y_label=label, log_x=True)
        lab.chart(name, picture)


def _answer(cases: Sequence[Case], found: Found) -> str:
    if not found:
        return NOTHING_RAN
    fewest, most = found[min(found)], found[max(found)]
    crossed = crossing(found)
    where = (
        "in this range the lock never did more per second"
        if crossed is None
        else f"from {crossed} writers on the lock did more per second"
    )
    return answer(
        f"Alone: {fewest['cas'].per_s:,.0f} updates per second by compare-and-swap, "
        f"{fewest['lock'].per_s:,.0f} under the lock. With {max(found):,} writers: "
        f"{most['cas'].per_s:,.0f} and {most['lock'].per_s:,.0f}; {where}. Of the tries "
        f"{most['cas'].wasted:.0%} by compare-and-swap and {most['lock'].wasted:.0%} under the lock were "
        f"thrown away then, each with its {WORK * 1e3:g} ms of work; p99 of those that got through was "
        f"{most['cas'].p99_ms:,.0f} ms and {most['lock'].p99_ms:,.0f} ms.",
        Conclusion(
            "Both keep every update, and for the same reason: the resource decides, by version here and "
            "by fence there.",
            [case for case in cases if case.expected == NONE_LOST],
        ),
        Conclusion(
            "A lock is worth its server when the work is expensive or has effects that cannot be "
            "repeated. When it is short and writers are few, the version alone does.",
            [case for case in cases if case.expected != NONE_LOST],
        ),
    )
