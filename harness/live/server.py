"""Serves the live page on a loopback port and sends it the state of the run twice a second.

The page is one document without outside references; `/events` is a stream of server-sent events.
A browser that opens late is told the past first, and one that lost its connection reconnects.
"""

import asyncio
import contextlib
import html
import json
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from harness.config import RunConfig, UsageError
from harness.durations import format_duration
from harness.live.controls import Controls
from harness.live.hosts import MISDIRECTED, REFUSAL, is_local
from harness.load.fleet import Progress
from harness.load.steering import Steering
from harness.report.html import HTML_FILE
from harness.report.html_page import figures, page

_SCRIPT = Path(__file__).with_name("live.js")
# Half an hour at two a second: what a page needs to draw, and 1 MB.
_MOST_KEPT = 3600
_FIGURES = (
    ("offered", "arrivals offered /s"),
    ("acquired", "locks acquired /s"),
    ("waiting", "waiting for a grant"),
    ("backlog", "backlog"),
    ("p50", "arrival to grant p50, ms"),
    ("p99", "arrival to grant p99, ms"),
    ("lag", "schedule lag p99, ms"),
    ("stale", "stale writes refused"),
    ("timed_out", "timed out"),
    ("failed", "failed"),
)
_CHARTS = (
    ("throughput", "Offered and acquired per second", "offered acquired"),
    ("queue", "Waiting for a grant, and backlog", "waiting backlog"),
    ("latency", "Arrival to grant, ms", "p50 p99"),
    ("lag", "Schedule lag p99, ms: the generator's own health", "lag"),
)
_LOCK = """<figure><figcaption class="dim">At the lock now: its last holders, with their fences</figcaption>
<canvas id="lanes" aria-label="who holds each key"></canvas>
<p id="waiters" class="dim"></p>
<p id="refused" class="bad"></p>
<p class="dim keys"><span style="background:var(--hold)"></span>holds
<span style="background:var(--frozen)"></span>frozen on purpose
<span style="background:var(--bad)"></span>its write was refused as stale
<span style="background:var(--doubt);height:2px;vertical-align:.3em"></span>hand-off
<span style="background:var(--bad);opacity:.25"></span>a fault, on purpose</p></figure>
<figure><figcaption class="dim">Arrival to grant over time: the stronger, the more arrivals.
Who gave up is not among them</figcaption>
<canvas id="heat" aria-label="how long arrivals waited, over time"></canvas></figure>"""


@web.middleware
async def _local_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not is_local(request.headers.get("Host")):
        return web.Response(status=MISDIRECTED, text=REFUSAL)
    return await handler(request)


class LivePage:
    """What the visitors of one run see."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._past: deque[str] = deque(maxlen=_MOST_KEPT)
        self._latest = ""
        """What happens at the lock: of that nobody wants the past."""
        self._visitors: set[asyncio.Queue[str | None]] = set()
        self._runner: web.AppRunner | None = None
        self.steering = Steering(self._ordered) if config.steer else None
        self._controls = None if self.steering is None else Controls(config, self.steering)
        self.url = ""

    async def open(self, port: int) -> None:
        """Serve until `aclose`.

        :raises UsageError: the port is taken.
        """
        app = web.Application(middlewares=[_local_only])
        app.router.add_get("/", self._document)
        app.router.add_get("/events", self._events)
        if self._controls is not None:
            self._controls.add_to(app)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=5.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise UsageError(
                f"cannot serve the live page on port {port}: {error.strerror or error}; "
                "choose another --live PORT, or leave PORT out for a free one"
            ) from None
        self._runner = runner
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        if self._controls is not None:
            self.url += f"#{self._controls.token}"

    def progress(self, progress: Progress) -> None:
        """Tell every visitor, now or when they come."""
        self._past.append(self._tell("progress", sample(progress)))
        if progress.lock is not None:
            self._latest = self._tell("lock", {**progress.lock, "at": round(progress.elapsed * 1e3, 3)})

    def _ordered(self, at: float, what: str) -> None:
        self._past.append(self._tell("ordered", {"at": at, "what": what}))

    def ended(self, verdict: str, folder: Path) -> None:
        """The last word: what was found, where the report is, and the report itself.

        A browser follows no link from here to a file, and nobody serves this page any longer.
        """
        report = (folder / HTML_FILE).read_text()
        self._past.append(self._tell("ended", {"verdict": verdict, "folder": str(folder), "report": report}))

    def _tell(self, event: str, data: dict[str, Any]) -> str:
        text = f"event: {event}\ndata: {json.dumps(data)}\n\n"
        for visitor in self._visitors:
            visitor.put_nowait(text)
        return text

    async def aclose(self) -> None:
        """End every stream after its last event, and close the port."""
        for visitor in self._visitors:
            visitor.put_nowait(None)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _document(self, request: web.Request) -> web.Response:
        return web.Response(text=document(self._config, self._controls), content_type="text/html")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        told: asyncio.Queue[str | None] = asyncio.Queue()
        past = self._latest + "".join(self._past)
        self._visitors.add(told)
        try:
            await response.prepare(request)
            # Whoever reconnects is told everything again, and starts a fresh picture.
            await response.write(f"event: begin\ndata: {{}}\n\n{past}".encode())
            while (text := await told.get()) is not None:
                await response.write(text.encode())
        except ConnectionError:
            pass  # the browser has left
        finally:
            self._visitors.discard(told)
        return response


@contextlib.asynccontextmanager
async def live_page(config: RunConfig) -> AsyncIterator[LivePage | None]:
    """The page of a run that was asked for one with `--live`; nothing is left of it afterwards.

    :raises UsageError: its port is taken.
    """
    if config.live is None:
        yield None
        return
    live = LivePage(config)
    await live.open(config.live)
    try:
        yield live
    finally:
        await live.aclose()


def sample(progress: Progress) -> dict[str, Any]:
    """One moment of a run as the page draws it; latencies are those of the last seconds."""
    counters = progress.counters
    moment: dict[str, float] = {
        "elapsed": progress.elapsed,
        "offered": progress.offered_per_s,
        "acquired": progress.acquired_per_s,
        "waiting": progress.waiting,
        "backlog": counters.backlog,
        "stale": counters.stale,
        "timed_out": counters.timed_out,
        "failed": counters.failed,
    }
    for name, latency, percentile in (
        ("p50", "arrival_to_grant", 50),
        ("p99", "arrival_to_grant", 99),
        ("lag", "schedule_lag", 99),
    ):
        distribution = progress.recent.get(latency)
        if distribution is not None and distribution.count:
            moment[name] = distribution.percentiles(percentile)[0] / 1e6
    return {name: round(value, 3) for name, value in moment.items()} | {
        "waits": {} if progress.lock is None else progress.lock["waits"],
        "faults": [
            [fault.name, fault.at / 1e6, None if fault.until is None else fault.until / 1e6]
            for fault in progress.faults
        ],
    }


def document(config: RunConfig, controls: Controls | None = None) -> str:
    """The page, before it is told anything."""
    keys = "one key" if config.keys == 1 else f"{config.keys:,} keys"
    what = (
        f"{config.contenders:,} contenders, {config.rate:g} arrivals/s for {format_duration(config.duration)}"
        f", {keys}, fence {'on' if config.fence else 'off'}"
    )
    pictures = "".join(
        f'<figure><figcaption class="dim">{html.escape(title)}</figcaption>'
        f'<svg class="chart live" data-chart="{name}" data-lines="{lines}" viewBox="0 0 640 220"></svg>'
        "</figure>"
        for name, title, lines in _CHARTS
    )
    body = (
        f'<h1>{html.escape(config.label)} <span id="state" class="verdict unknown">starting</span></h1>'
        f'<p>{html.escape(what)}</p><p class="dim"><progress id="bar" max="{config.span}" value="0">'
        '</progress> <span id="elapsed">0 s</span></p>'
        + (controls.document() if controls is not None else "")
        + figures((name, label, "–", "") for name, label in _FIGURES)
        + f'<div class="lock">{_LOCK}</div><div class="charts">{pictures}</div>'
        + f"<script>\n{_SCRIPT.read_text()}</script>"
    )
    return page(f"{config.label}: a run as it happens", body)
