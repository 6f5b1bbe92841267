"""Prometheus metrics, cheap enough for the hot path: plain integers, read out when scraped.

A labelled prometheus counter costs half a microsecond to increment and a histogram one to
observe, as much as half a lock cycle. So clients count in plain attributes, and a collector turns
them into metric families when somebody asks.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, repeat
from threading import Lock
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Histogram:
    """Bucket counts and a sum. What is observed is noted at once and counted later, many at a time."""

    __slots__ = ("_counting", "_counts", "_noted", "_total", "observe")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._total = 0.0
        self._noted: list[float] = []
        self._counting = Lock()  # somebody who scrapes does so from a thread of his own
        self.observe: Callable[[float], None] = self._noted.append
        """Note a length of time in seconds: a fifth of what it costs to find its bucket."""

    def count(self) -> None:
        """Put what was noted into its buckets."""
        with self._counting:
            noted = self._noted[:]
            del self._noted[: len(noted)]
            self._total += sum(noted)
            for place, number in Counter(map(bisect_left, repeat(_BOUNDS), noted)).items():
                self._counts[place] += number

    @property
    def counts(self) -> list[int]:
        """How many were observed in each bucket."""
        self.count()
        return self._counts

    @property
    def total(self) -> float:
        """The sum of all observations, in seconds."""
        self.count()
        return self._total

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts in the form that the exposition format wants."""
        edges = [*(str(bound) for bound in _BOUNDS), "+Inf"]
        return list(zip(edges, map(float, accumulate(self.counts)), strict=True))


class Metrics:
    """What all clients of one backend in this process have counted."""

    __slots__ = (
        "acquire_seconds",
        "acquire_timeouts",
        "acquired",
        "attempts",
        "backend",
        "fence_regressions",
        "held_seconds",
        "loop_lag",
        "lost",
        "release_by_non_owner",
        "renewals",
        "waiters",
    )

    def __init__(self, backend: str) -> None:
        self.backend: str = backend
        self.attempts: int = 0
        self.acquired: int = 0
        self.acquire_timeouts: int = 0
        self.lost: int = 0
        self.release_by_non_owner: int = 0
        self.fence_regressions: int = 0
        self.waiters: int = 0
        self.loop_lag: float = 0.0
        self.renewals: dict[str, int] = {"renewed": 0, "lost": 0, "unknown": 0}
        self.acquire_seconds: Histogram = Histogram()
        self.held_seconds: Histogram = Histogram()

    def count(self) -> None:
        """Called now and then, so that what was observed does not pile up."""
        self.acquire_seconds.count()
        self.held_seconds.count()


_COUNTERS = (
    ("acquire_attempts", "attempts", "Attempts to acquire a lock."),
    ("acquired", "acquired", "Locks acquired."),
    ("acquire_timeouts", "acquire_timeouts", "Attempts that ran into their timeout."),
    ("lost", "lost", "Leases lost while held."),
    ("release_by_non_owner", "release_by_non_owner", "Releases of a lock no longer owned; none was applied."),
    ("fence_regressions", "fence_regressions", "Grants refused because their fence ran backwards."),
)
_HISTOGRAMS = (
    ("acquire_seconds", "Time from the call of acquire to the grant."),
    ("held_seconds", "Time from the grant to the release or the loss."),
)


class _Exposition(Collector):
    """Turns the counts of every backend into metric families."""

    def __init__(self, known: dict[str, Metrics]) -> None:
        self._known = known

    def collect(self) -> Iterator[Metric]:
        every = list(self._known.values())
        for name, attribute, text in _COUNTERS:
            counter = CounterMetricFamily(f"asyncdlock_{name}", text, labels=("backend",))
            for metrics in every:
                counter.add_metric((metrics.backend,), getattr(metrics, attribute))
            yield counter
        for name, text in _HISTOGRAMS:
            family = HistogramMetricFamily(f"asyncdlock_{name}", text, labels=("backend",))
            for metrics in every:
                histogram: Histogram = getattr(metrics, name)
                family.add_metric((metrics.backend,), histogram.buckets(), histogram.total)
            yield family
        yield from self._labelled(every)

    def _labelled(self, every: Iterable[Metrics]) -> Iterator[Metric]:
        by_outcome = ("backend", "outcome")
        renewals = CounterMetricFamily("asyncdlock_renewals", "Renewals by outcome.", labels=by_outcome)
        waiters = GaugeMetricFamily("asyncdlock_waiters", "Calls of acquire that wait.", labels=("backend",))
        lag = GaugeMetricFamily(
            "asyncdlock_loop_lag_seconds",
            "How late the loop ran the last renewal timer.",
            labels=("backend",),
        )
        for metrics in every:
            for outcome, count in metrics.renewals.items():
                renewals.add_metric((metrics.backend, outcome), count)
            waiters.add_metric((metrics.backend,), metrics.waiters)
            lag.add_metric((metrics.backend,), metrics.loop_lag)
        yield from (renewals, waiters, lag)


# By registry, the counts of each backend. Weak: a registry of one test shall not outlive it.
_known: WeakKeyDictionary[CollectorRegistry, dict[str, Metrics]] = WeakKeyDictionary()


def metrics_of(backend: str, where: bool | CollectorRegistry = True) -> Metrics:
    """The counts shared by all clients of `backend` that show them in the same registry.

    `True` is the default registry. Nothing is registered before the first client wants it, and with `False`
    the counts are this client's alone and shown nowhere.
    """
    if where is False:
        return Metrics(backend)
    counts = _counts_in(REGISTRY if where is True else where)
    found = counts.get(backend)
    if found is None:
        found = counts[backend] = Metrics(backend)
    return found


def _counts_in(registry: CollectorRegistry) -> dict[str, Metrics]:
    counts = _known.get(registry)
    if counts is None:
        counts = _known[registry] = {}
        registry.register(_Exposition(counts))
    return counts


def register_in(registry: CollectorRegistry) -> None:
    """Show the counts of the default registry in `registry` too."""
    registry.register(_Exposition(_counts_in(REGISTRY)))
