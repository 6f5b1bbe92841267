"""Tracing: what a client does becomes spans and metrics; a client that was not asked has none of it."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import asyncdlock
from asyncdlock import AcquireTimeout, LockClient, LockLost
from asyncdlock.tracing import instrument, key_hash


class Telemetry:
    """A client with a tracer and a meter of its own."""

    def __init__(self, url: str) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._metrics = InMemoryMetricReader()
        self.client: LockClient = instrument(
            asyncdlock.connect(url, metrics=False),
            tracer_provider=self.tracers,
            meter_provider=MeterProvider([self._metrics]),
        )

    def spans(self, name: str) -> list[ReadableSpan]:
        """Those that have ended."""
        return [span for span in self._spans.get_finished_spans() if span.name == f"asyncdlock.{name}"]

    def outcomes(self, name: str) -> list[Any]:
        return [attributes(span)["asyncdlock.outcome"] for span in self.spans(name)]

    def counted(self, name: str) -> dict[str, int]:
        """Outcome -> how many values a metric has."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        return {
            str((point.attributes or {})["asyncdlock.outcome"]): _size(point)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"asyncdlock.{name}"
            for point in metric.data.data_points
        }


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _size(point: Any) -> int:
    """How many values a histogram has, or how far a counter came."""
    return int(point.count if hasattr(point, "count") else point.value)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_lock_is_a_span_of_acquire_of_hold_and_of_release(redis_url: str, key: str) -> None:
    telemetry = Telemetry(redis_url)
    with telemetry.tracers.get_tracer("caller").start_as_current_span("work") as work:
        async with telemetry.client as locks, locks.hold(key, ttl=5.0) as handle:
            fence = handle.fence
    (acquire,), (hold,), (release,) = map(telemetry.spans, ("acquire", "hold", "release"))
    assert attributes(acquire) == {
        "asyncdlock.backend": "redis",
        "asyncdlock.key_hash": key_hash(key),
        "asyncdlock.outcome": "acquired",
        "asyncdlock.fence": fence,
    }
    assert attributes(hold)["asyncdlock.outcome"] == attributes(release)["asyncdlock.outcome"] == "released"
    assert attributes(hold)["asyncdlock.fence"] == fence
    for span in (acquire, hold, release):
        assert span.parent is not None
        assert span.parent.span_id == work.get_span_context().span_id
        assert key not in str(attributes(span)), "the hash alone"
    order = [acquire.end_time, hold.start_time, release.start_time, release.end_time, hold.end_time]
    assert order == sorted(time or 0 for time in order)
    assert telemetry.counted("acquire.duration") == {"acquired": 1}
    assert telemetry.counted("hold.duration") == {"released": 1}


async def test_those_who_get_no_lock_are_told_apart(key: str) -> None:
    telemetry = Telemetry("memory://")
    async with telemetry.client as locks:
        handle = await locks.acquire(key)
        assert await locks.try_acquire(key) is None
        with pytest.raises(AcquireTimeout):
            await locks.acquire(key, timeout=0.01)
        waiter = asyncio.create_task(locks.acquire(key))
        await asyncio.sleep(0.01)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        with pytest.raises(ValueError, match="ttl"):
            await locks.acquire(key, ttl=-1.0)
        await handle.release()
    assert telemetry.outcomes("acquire") == ["acquired", "busy", "timeout", "cancelled", "error"]
    assert attributes(telemetry.spans("acquire")[-1])["error.type"] == "ValueError"
    assert telemetry.outcomes("hold") == ["released"]


async def test_a_lost_lease_is_an_error_of_its_hold(key: str) -> None:
    telemetry = Telemetry("memory://")
    async with telemetry.client as locks:
        handle = await locks.acquire(key, ttl=0.05, renew=False)
        await until(lambda: not handle.held)
        with pytest.raises(LockLost):
            handle.check()
        await until(lambda: telemetry.spans("hold"))
    (hold,) = telemetry.spans("hold")
    assert attributes(hold)["asyncdlock.outcome"] == "lost"
    assert not hold.status.is_ok
    assert telemetry.counted("hold.duration") == {"lost": 1}


async def test_renewals_are_spans_by_hand_and_in_the_background(redis_url: str, key: str) -> None:
    telemetry = Telemetry(redis_url)
    with telemetry.tracers.get_tracer("caller").start_as_current_span("work"):
        async with telemetry.client as locks:
            handle = await locks.acquire(key, ttl=0.9)
            await handle.renew()
            await until(lambda: len(telemetry.spans("renew")) >= 2)
            await handle.release()
    by_hand, *background = telemetry.spans("renew")
    assert by_hand.parent is not None
    assert all(span.parent is None for span in background), "nobody's request waits for them"
    for span in telemetry.spans("renew"):
        assert attributes(span)["asyncdlock.locks"] == attributes(span)["asyncdlock.renewed"] == 1
    assert telemetry.counted("renewals")["renewed"] >= 2


async def test_closing_ends_every_hold(key: str) -> None:
    telemetry = Telemetry("memory://")
    async with telemetry.client as locks:
        for number in range(10):
            await locks.acquire(f"{key}-{number}")
    assert telemetry.outcomes("hold") == ["lost"] * 10


async def test_another_client_is_left_as_it_is(key: str) -> None:
    telemetry = Telemetry("memory://")
    async with telemetry.client, asyncdlock.connect("memory://", metrics=False) as other:
        assert "acquire" not in vars(other)
        async with other.hold(key):
            pass
    assert telemetry.spans("acquire") == []


def test_the_library_does_not_import_it_and_says_what_is_missing() -> None:
    unasked = "import sys, asyncdlock; assert not [n for n in sys.modules if n.startswith('opentelemetry')]"
    subprocess.run([sys.executable, "-c", unasked], check=True)
    missing = "import sys; sys.modules['opentelemetry'] = None; import asyncdlock.tracing"
    done = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True, check=False)
    assert "pip install 'asyncdlock[tracing]'" in done.stderr
