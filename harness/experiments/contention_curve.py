"""Experiment 4: what a hot key can do, from fifty contenders to a thousand, and what limits it."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from harness.lab import Lab, Plan
from harness.lab.outcome import OTHERWISE, Case, Conclusion, ExperimentResult, Fact, answer
from harness.lab.registry import experiment
from harness.lab.scale.point import Bench, Point, Setting, Workload
from harness.report.charts import Series, bars, lines
from harness.servers.catalogue import INSTALLATIONS, SHARED

_PLAIN = {"redlock": ("local_queue=false",)}  # what every contender does for itself, as elsewhere by default
SETTINGS = [Setting(name, name, _PLAIN.get(name, ())) for name in SHARED]
POLLING = {name for name in SHARED if INSTALLATIONS[name].polls}
"""Their waiters take a core: they are measured apart from the others."""

AGREES = 0.2
"""A prediction this close to what was measured is right."""
PREDICTION = "within 20 %"
OVERLOADED = 0.1
"""Failures for each grant beyond which a point tells of failures, not of a cycle."""
FEW = 4
_BUSY = 0.85
_MOST_PER_S = 4000.0
_GRANTS = 3
"""How many cycles of the longest work those who came first must be able to wait for."""


@experiment(
    number=4,
    name="contention-curve",
    question="One hot key: what do more contenders buy, how long do they wait, and what bounds it?",
    expectation="Nothing: one holder at a time does 1 / (work + write + hand-off) per second, however many "
    "wait. At every point that sum, measured term by term, gives the throughput within 20 %. Beyond the "
    "knee more contenders only wait longer, and where they poll they make it worse.",
)
async def run(lab: Lab) -> ExperimentResult:
    bench = Bench(lab)
    points: dict[str, list[Point]] = {setting.name: [] for setting in SETTINGS}
    # With no work every microsecond counts: one backend at a time. The longer the work, the less do
    # runs disturb each other, and the longer they take.
    phases = {0.0: 2, 0.05: 5} if lab.quick else {0.0: 1, 0.05: 3, 0.5: 5, 5.0: 5}
    cases: list[Case] = []
    for work, together in phases.items():
        cases += await _phase(bench, points, work=work, together=together)
    _pictures(lab, points)
    figures: dict[str, Any] = {"points": [point.to_json() for found in points.values() for point in found]}
    return ExperimentResult(
        cases=cases,
        answer=_answer(cases, points),
        figures=figures | {"knees": {name: knee(found) for name, found in points.items() if found}},
    )


async def _phase(bench: Bench, points: dict[str, list[Point]], *, work: float, together: int) -> list[Case]:
    """One length of work on every backend, several backends at the same time."""
    turns, polls = asyncio.Semaphore(together), asyncio.Lock()

    async def one(setting: Setting) -> list[Case]:
        # With long work there is time between two polls.
        apart = setting.name in POLLING and work < 0.1
        async with polls if apart else contextlib.nullcontext(), turns:
            return await _curve(bench, setting, points[setting.name], work)

    return [case for group in await asyncio.gather(*map(one, SETTINGS)) for case in group]


async def _curve(bench: Bench, setting: Setting, found: list[Point], work: float) -> list[Case]:
    """Saturated runs with more and more contenders; then, for one of them, lower rates."""
    quick = bench.lab.quick
    cases: list[Case] = []
    if not work:
        # A few contenders, before any curve: what a cycle costs when nothing else is going on.
        few = Workload(setting=setting, contenders=FEW, load="few", rate=500.0, duration=1.0, patience=1.0)
        cases += await _run(bench, [few], found)
    if not found:
        return cases  # skipped or failed, which the first case says once
    ceiling = 1 / (work + max(found[0].cycle.seconds, 1e-4))
    duration = 0.6 if quick else 1.5

    def offer(load: str, rate: float, patience: float, contenders: int = 200) -> Workload:
        return Workload(
            setting=setting,
            contenders=contenders,
            work=work,
            load=load,
            rate=min(rate, _MOST_PER_S),
            duration=duration,
            patience=patience,
            ttl=max(10.0, 3 * work),
        )

    # Above: fast enough that the whole fleet waits at once, early in the run.
    grid = [
        offer("above", max(2 * ceiling, 3 * size / duration), max(duration, _GRANTS * work), size)
        for size in ((200,) if quick else (50, 200, 1000))
    ]
    if not work or (work < 0.1 and not quick):
        grid.append(offer("below", ceiling / 2, 10.0))
    if work < 0.1 and not quick:
        grid.append(offer("at", ceiling, 10.0))
    return cases + await _run(bench, grid, found)


async def _run(bench: Bench, grid: Sequence[Workload], found: list[Point]) -> list[Case]:
    cases: list[Case] = []
    for work in grid:
        bench.lab.plan(
            case=work.name, rate=round(work.rate, 3), duration=work.duration, patience=work.patience
        )
        plan = Plan(work.name, _prediction(work), partial(_case, bench, work, found))
        cases += await bench.lab.cases([plan])
    return cases


async def _case(bench: Bench, work: Workload, found: list[Point]) -> Case:
    point = await bench.measure(work)
    # In the place of an earlier attempt at the same cell: what is not counted as a result is none.
    found[:] = [other for other in found if _cell_of(other) != _cell_of(point)] + [point]
    waits = point.arrival_to_grant_ms
    ahead = min(work.rate, 1 / (work.work + max(found[0].cycle.seconds, 1e-4)))
    facts: dict[str, Fact] = {
        "offered/s": round(work.rate, 1),
        "grants/s": point.throughput_per_s,
        "predicted/s": point.predicted_per_s,
        "error": f"{point.error:.0%}",
        f"from {FEW} contenders": ahead,
        "p50": _ms(waits["p50"]),
        "p99": _ms(waits["p99"]),
        "p999": _ms(waits["p999"]),
        "queue +/s": point.queue_growth_per_s,
        "gave up": point.timed_out,
        "client": f"{point.client_cpu:.0%}",
        "server": f"{point.server_cpu:.0%}",
        "commands": point.commands_per_acquire,
        "fsync": None if point.fsync_ms is None else _ms(point.fsync_ms),
        "bound": bound_of(point),
    }
    expected = _prediction(work)
    explained = point.error <= AGREES or (work.setting.name in POLLING and overloaded(point))
    observed = expected if explained else OTHERWISE
    if point.verdict != "ok":
        observed = point.verdict
    return Case(name=work.name, expected=expected, observed=observed, facts=facts)


def _cell_of(point: Point) -> tuple[int, float, str]:
    return point.contenders, point.work_ms, point.load


def _prediction(work: Workload) -> str:
    return PREDICTION + (", or overload" if work.setting.name in POLLING else "")


def overloaded(point: Point) -> bool:
    """So many asked so often that the servers' answers came too late to count: no cycle is left."""
    return point.failed > OVERLOADED * point.granted


def bound_of(point: Point) -> str:
    """What a point is bounded by, from its own terms and from the processors."""
    if point.load == "below" or point.throughput_per_s >= 0.97 * point.offered_per_s:
        return "what is offered"
    if overloaded(point):
        return f"overload: {point.failed:,} calls failed"
    if point.client_cpu > _BUSY:
        return "the client's event loop"
    if point.server_cpu > _BUSY:
        return "the server's thread"
    terms = {
        "the work": point.cycle.work,
        "the write": point.cycle.write,
        "the hand-off": point.cycle.handoff,
    }
    return max(terms, key=lambda name: terms[name])


def knee(points: Sequence[Point]) -> int | None:
    """The number of contenders beyond which throughput grows by less than a tenth, with no work."""
    curve = sorted((p.contenders, p.throughput_per_s) for p in points if p.work_ms == 0 and p.load != "below")
    best = 0.0
    reached: int | None = None
    for contenders, rate in curve:
        if rate > best * 1.1:
            best, reached = rate, contenders
    return reached


def _pictures(lab: Lab, points: dict[str, list[Point]]) -> None:
    curves: list[Series] = []
    waits: list[Series] = []
    terms: dict[str, dict[str, float]] = {}
    for colour, (name, found) in enumerate(points.items()):
        hot = _hot(found)
        if not hot:
            continue
        curves += [
            _series(hot, lambda p: p.throughput_per_s, colour, name),
            _series(hot, lambda p: p.predicted_per_s, colour),
        ]
        waits += [
            _series(hot, lambda p: p.arrival_to_grant_ms["p50"], colour, name),
            _series(hot, lambda p: p.arrival_to_grant_ms["p99"], colour),
        ]
        cycle = hot[-1].cycle
        seconds = {"work": cycle.work, "write": cycle.write, "release and hand-off": cycle.handoff}
        terms[name] = {term: value * 1e3 for term, value in seconds.items()}
    contenders = "contenders (work 0, offered above capacity)"
    for name, picture in {
        "throughput": lines(
            "A hot key does not get faster by more contenders",
            curves,
            x_label=contenders,
            y_label="grants per second",
            log_x=True,
            subtitle="Solid: measured. Dashed: 1 / (work + write + hand-off), from the terms.",
        ),
        "waiting": lines(
            "They only wait longer",
            waits,
            x_label=contenders,
            y_label="ms from intended arrival to grant",
            log_x=True,
            log_y=True,
            subtitle="Solid: p50. Dashed: p99.",
        ),
        "terms": bars("Where the time between two grants goes", terms, y_label="ms, at the largest fleet"),
    }.items():
        lab.chart(name, picture)


def _series(hot: Sequence[Point], read: Callable[[Point], float], colour: int, name: str = "") -> Series:
    return Series(name, [(p.contenders, read(p)) for p in hot], dashed=not name, colour=colour)


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.2g} ms"


def _answer(cases: Sequence[Case], points: dict[str, list[Point]]) -> str:
    ran = [point for found in points.values() for point in found]
    errors = [point.error for point in ran if not overloaded(point)]
    lost = [f"{p.setting} with {p.contenders} at {p.work_ms:g} ms" for p in ran if overloaded(p)]
    curves = (_hot(found) for found in points.values())
    return answer(
        Conclusion(
            "A lock serialises: its key does one cycle after the other, and a cycle is the work, the "
            "write, and what passes until the next holder knows. More contenders cannot shorten it; they "
            "wait.",
            cases,
        ),
        "\n".join(_curve_in_words(hot[0], hot[-1]) for hot in curves if hot),
        f"Over {len(errors)} points the prediction from the terms was off by "
        f"{max(errors, default=0):.0%} at most. Percentiles count from the intended arrival, over those "
        "that were granted: above capacity the others gave up, so that their waits were longer still.",
        f"Overloaded, so that calls failed: {', '.join(lost)}." if lost else "",
    )


def _curve_in_words(first: Point, last: Point) -> str:
    p99 = [_ms(point.arrival_to_grant_ms["p99"]) for point in (first, last)]
    fsync = "" if last.fsync_ms is None else f", {last.fsync_ms:.2g} ms for each sync of Raft's log"
    return (
        f"- **{last.setting}**: {first.throughput_per_s:,.0f}/s with {first.contenders} contenders, "
        f"{last.throughput_per_s:,.0f}/s with {last.contenders}; p99 from {p99[0]} to "
        f"{p99[1]}. One cycle at {last.contenders}: {last.cycle.write * 1e3:.2g} ms write + "
        f"{last.cycle.handoff * 1e3:.2g} ms release and hand-off; bounded by "
        f"{bound_of(last)} (client {last.client_cpu:.0%}, server {last.server_cpu:.0%} of a core, "
        f"{last.commands_per_acquire or 0:.1f} commands per acquisition{fsync})."
    )


def _hot(points: Sequence[Point]) -> list[Point]:
    """The curve with no work, from few contenders to many."""
    hot = [point for point in points if not point.work_ms and point.load in ("above", "few")]
    return sorted(hot, key=lambda point: point.contenders)
