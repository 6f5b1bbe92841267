"""What the harness itself exposes at /metrics during a run."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from harness.config import UsageError
from harness.live.exposition import merge
from harness.live.hosts import MISDIRECTED, REFUSAL, is_local
from harness.load.fleet import Progress

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_COUNTERS = {
    "offered": "Arrivals that were due.",
    "dispatched": "Arrivals that a contender took.",
    "acquired": "Arrivals that were granted the lock.",
    "timed_out": "Arrivals that ran out of patience.",
    "failed": "Arrivals that failed for an error.",
    "lost": "Holders that lost their lease.",
    "accepted": "Writes that the resource accepted.",
    "stale": "Writes that the resource refused for a stale fencing token.",
    "paused": "Holders that were frozen on purpose.",
}
_PERCENTILES = (50, 90, 99, 99.9)


class HarnessCollector(Collector):
    """The latest state of a run as metric families, the lock library's own among them."""

    def __init__(self) -> None:
        self.progress = Progress()

    def collect(self) -> Iterator[Metric]:
        progress = self.progress
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"harness_{name}", text, value=getattr(progress.counters, name))
        yield GaugeMetricFamily(
            "harness_backlog", "Arrivals that wait for a contender.", progress.counters.backlog
        )
        yield GaugeMetricFamily("harness_busy_contenders", "Contenders that serve an arrival.", progress.busy)
        yield GaugeMetricFamily(
            "harness_waiting_contenders", "Contenders that wait for a grant.", progress.waiting
        )
        latency = GaugeMetricFamily(
            "harness_recent_latency_seconds",
            "Percentiles of the last few seconds.",
            labels=("latency", "percentile"),
        )
        for name, distribution in progress.recent.items():
            for percent, value in zip(_PERCENTILES, distribution.percentiles(*_PERCENTILES), strict=True):
                latency.add_metric((name, f"{percent:g}"), value / 1e9)
        yield latency
        yield from merge(progress.metrics)


class MetricsServer:
    """Serves the /metrics of a registry on a loopback port until closed."""

    def __init__(self, port: int, registry: CollectorRegistry) -> None:
        """:raises UsageError: the port is taken."""
        try:
            self._server, self._thread = start_http_server(port, addr="127.0.0.1", registry=registry)
            app = self._server.get_app()
            assert app is not None
            self._server.set_app(_local_only(app))
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics on port {port}: {error.strerror or error}; "
                "choose another --metrics-port, or 0 for a free one"
            ) from None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _local_only(app: "WSGIApplication") -> "WSGIApplication":
    def checked(environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        if is_local(environ.get("HTTP_HOST")):
            return app(environ, start_response)
        start_response(f"{MISDIRECTED} Misdirected Request", [("Content-Type", "text/plain")])
        return [REFUSAL.encode()]

    return checked


def registry_of(collector: Collector) -> CollectorRegistry:
    """A registry that holds this collector alone."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
