"""OpenTelemetry for a client: spans of acquire, hold, renew and release, and their durations as metrics.

    async with tracing.instrument(asyncdlock.connect(url)) as locks: ...

A client that is not instrumented knows nothing of this module, and pays nothing for it. Keys may name people
or accounts: spans carry their hash alone.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from asyncdlock._holding import Holding
from asyncdlock.backend import Backend
from asyncdlock.client import LockClient
from asyncdlock.errors import AcquireTimeout
from asyncdlock.handle import Handle
from asyncdlock.types import Claim, Grant, LeaseState

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode
except ImportError:
    raise ImportError("tracing needs OpenTelemetry: pip install 'asyncdlock[tracing]'") from None

_SCOPE = "asyncdlock"


def instrument(
    client: LockClient,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> LockClient:
    """Trace everything that this client does from now on; returns the client. Call it before its first use.

    The providers are the global ones unless they are given.
    """
    telemetry = _Telemetry(
        client,
        trace.get_tracer(_SCOPE, tracer_provider=tracer_provider),
        metrics.get_meter(_SCOPE, meter_provider=meter_provider),
    )
    # On this object alone: its class, and every other client, stay as they are.
    for name, replacement in (
        ("acquire", telemetry.acquire(client.acquire)),
        ("try_acquire", telemetry.acquire(client.try_acquire)),
        ("aclose", telemetry.aclose(client.aclose)),
    ):
        setattr(client, name, replacement)
    core = client._core
    backend: Any = core.backend
    core.backend = _TracedBackend(backend, telemetry)
    # The watchdog serves all holders: whoever's task happened to start it is not its parent.
    core.watchdog._backend = _TracedBackend(backend, telemetry, Context())
    return client


def key_hash(key: str) -> str:
    """How spans name a key: eight bytes of BLAKE2b, in hex."""
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


class _Telemetry:
    """The instruments of one client."""

    def __init__(self, client: LockClient, tracer: trace.Tracer, meter: metrics.Meter) -> None:
        self.backend = client._backend.name
        self.tracer = tracer
        self._acquires = meter.create_histogram(
            "asyncdlock.acquire.duration", unit="s", description="From the call of acquire to its outcome."
        )
        self._holds = meter.create_histogram(
            "asyncdlock.hold.duration", unit="s", description="From the grant to the release or the loss."
        )
        self.renewals = meter.create_counter("asyncdlock.renewals", description="Renewals by outcome.")
        self._following: set[asyncio.Task[None]] = set()

    def attributes(self, **more: str | int) -> dict[str, str | int]:
        named = {f"asyncdlock.{name}": value for name, value in more.items()}
        return {"asyncdlock.backend": self.backend, **named}

    def acquire(
        self, call: Callable[..., Awaitable[Handle | None]]
    ) -> Callable[..., Awaitable[Handle | None]]:
        """`call`, as a span that ends with its outcome; a grant begins the span of the hold."""

        async def acquire(key: str, **options: Any) -> Handle | None:
            began = time.monotonic()
            outcome = "error"
            attributes = self.attributes(key_hash=key_hash(key))
            with self.tracer.start_as_current_span(
                "asyncdlock.acquire", kind=SpanKind.CLIENT, attributes=attributes
            ) as span:
                try:
                    handle = await call(key, **options)
                    outcome = "busy" if handle is None else "acquired"
                except AcquireTimeout:
                    outcome = "timeout"
                    raise
                except asyncio.CancelledError:
                    outcome = "cancelled"
                    raise
                except BaseException as error:
                    span.set_attribute("error.type", type(error).__qualname__)
                    raise
                finally:
                    span.set_attribute("asyncdlock.outcome", outcome)
                    self._acquires.record(time.monotonic() - began, self.attributes(outcome=outcome))
                if handle is not None:
                    span.set_attribute("asyncdlock.fence", handle.fence)
            if handle is not None:
                self._follow(handle._holding)
            return handle

        return acquire

    def aclose(self, call: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def aclose() -> None:
            await call()
            if self._following:  # closing ended every hold
                await asyncio.wait(self._following)

        return aclose

    def _follow(self, holding: Holding) -> None:
        claim = holding.grant.claim
        span = self.tracer.start_span(
            "asyncdlock.hold",
            attributes=self.attributes(key_hash=key_hash(claim.key), fence=holding.grant.fence),
        )
        task = asyncio.get_running_loop().create_task(
            self._until_ended(holding, span), name="asyncdlock trace"
        )
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _until_ended(self, holding: Holding, span: Span) -> None:
        # The holding and not its handle: a handle that is dropped must be noticed.
        outcome = "unknown"
        try:
            outcome = "lost" if await holding.wait_ended() else "released"
        finally:
            span.set_attribute("asyncdlock.outcome", outcome)
            if outcome == "lost":
                span.set_status(Status(StatusCode.ERROR, "the lease was lost"))
            span.end()
            self._holds.record(time.monotonic() - holding.granted_at, self.attributes(outcome=outcome))


class _TracedBackend:
    """A backend whose renewals and releases are spans; everything else is passed through."""

    def __init__(self, backend: Backend, telemetry: _Telemetry, context: Context | None = None) -> None:
        """Spans are children of the caller's, unless a `context` is given."""
        self._backend = backend
        self._telemetry = telemetry
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def release(self, claim: Claim) -> bool:
        attributes = self._telemetry.attributes(key_hash=key_hash(claim.key))
        with self._span("asyncdlock.release", attributes) as span:
            owned = await self._backend.release(claim)
            span.set_attribute("asyncdlock.outcome", "released" if owned else "not owned")
            return owned

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        telemetry = self._telemetry
        with self._span("asyncdlock.renew", telemetry.attributes(locks=len(grants))) as span:
            states = await self._backend.renew(grants)
            for state in LeaseState:
                if count := sum(found is state for found in states):
                    span.set_attribute(f"asyncdlock.{state.value}", count)
                    telemetry.renewals.add(count, telemetry.attributes(outcome=state.value))
            return states

    def _span(self, name: str, attributes: dict[str, str | int]) -> Any:
        tracer = self._telemetry.tracer
        return tracer.start_as_current_span(
            name, context=self._context, kind=SpanKind.CLIENT, attributes=attributes
        )
