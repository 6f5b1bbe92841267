"""The measurements of `pytest bench`: rates in rounds, with spread and percentiles."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from harness.history.distribution import Distribution
from harness.judge.statistics import compare_intervals, mean_interval

Operation = Callable[[int], Awaitable[object]]

_NOISY = 1.5
"""The fastest round over the slowest: beyond it something else was measured, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An operation, repeated by many tasks in several rounds."""

    name: str
    tasks: int
    rates: tuple[float, ...]
    """Operations per second, a round each."""
    p50_us: float
    p99_us: float
    max_us: float
    cpu_us: float
    """Of this process, for each operation."""

    @property
    def rate(self) -> float:
        return fmean(self.rates)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the rate, at 95 %."""
        return mean_interval(self.rates)

    @property
    def noisy(self) -> bool:
        """Whether the rounds differ by more than an undisturbed machine would make them."""
        return max(self.rates) > _NOISY * min(self.rates)


class Measure:
    """Runs operations for a while and keeps what it measured."""

    def __init__(self, *, rounds: int, seconds: float) -> None:
        self._rounds = rounds
        self._seconds = seconds
        self.results: list[Measured] = []

    async def __call__(self, name: str, operation: Operation, *, tasks: int) -> Measured:
        """`operation(task number)`, repeated by `tasks` tasks."""
        (measured,) = await self.together({name: operation}, tasks=tasks)
        return measured

    async def together(self, operations: Mapping[str, Operation], *, tasks: int) -> list[Measured]:
        """Several operations, a round of one followed by a round of the next, in turns from either end."""
        rounds: dict[str, list[_Round]] = {name: [] for name in operations}
        for operation in operations.values():
            await operation(0)  # opens connections, loads scripts
        for number in range(self._rounds):
            order = list(operations.items())
            for name, operation in order if number % 2 == 0 else reversed(order):
                rounds[name].append(await _round(operation, tasks, self._seconds))
        measured = [_summed(name, tasks, done) for name, done in rounds.items()]
        self.results += measured
        return measured


@dataclass(frozen=True, slots=True)
class _Round:
    seconds: float
    cpu: float
    latencies: list[int]


async def _round(operation: Operation, tasks: int, seconds: float) -> _Round:
    latencies: list[int] = []
    clock = time.perf_counter_ns
    cpu = time.process_time()
    began = clock()
    end = began + round(seconds * 1e9)

    async def repeat(number: int) -> None:
        while (at := clock()) < end:
            await operation(number)
            latencies.append(clock() - at)

    await asyncio.gather(*(repeat(number) for number in range(tasks)))
    return _Round((clock() - began) / 1e9, time.process_time() - cpu, latencies)


def _summed(name: str, tasks: int, rounds: Sequence[_Round]) -> Measured:
    everything = Distribution()
    for one in rounds:
        everything.add(one.latencies)
    p50, p99 = everything.percentiles(50, 99)
    return Measured(
        name=name,
        tasks=tasks,
        rates=tuple(round(len(one.latencies) / one.seconds, 1) for one in rounds),
        p50_us=p50 / 1e3,
        p99_us=p99 / 1e3,
        max_us=everything.max / 1e3,
        cpu_us=round(1e6 * sum(one.cpu for one in rounds) / max(everything.count, 1), 1),
    )


def to_json(results: Sequence[Measured], where: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a run: where it was, and every figure."""
    return {"environment": where, "results": [asdict(measured) for measured in results]}


def from_json(document: Mapping[str, Any]) -> dict[str, Measured]:
    """The results of such a document, by name.

    :raises KeyError, TypeError: it is another one.
    """
    return {one["name"]: Measured(**{**one, "rates": tuple(one["rates"])}) for one in document["results"]}


def table(results: Sequence[Measured], before: Mapping[str, Measured]) -> Iterator[str]:
    """Lines for a terminal: each result, beside the one of that name before."""
    width = max(len(measured.name) for measured in results)
    titles = f"{'per second':>12}  {'95 % interval':>21}  {'p50 µs':>9}  {'p99 µs':>9}  {'CPU µs':>7}"
    yield f"{'':{width}}  {titles}"
    for measured in results:
        interval = "needs three rounds"
        if measured.interval is not None:
            low, high = measured.interval
            interval = f"{max(low, 0.0):,.0f} to {high:,.0f}"
        line = (
            f"{measured.name:{width}}  {measured.rate:12,.0f}  {interval:>21}  {measured.p50_us:9,.1f}  "
            f"{measured.p99_us:9,.1f}  {measured.cpu_us:7,.1f}"
        )
        if measured.name in before:
            line += f"  {compared(before[measured.name], measured)}"
        yield f"{line}  noisy" if measured.noisy else line


def compared(before: Measured, now: Measured) -> str:
    """`× 1.31, higher`; `× 0.98, cannot tell` where the intervals overlap."""
    return f"× {now.rate / before.rate:.2f}, {compare_intervals(before.interval, now.interval)}"
