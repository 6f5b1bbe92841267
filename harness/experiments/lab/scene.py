"""One case under way: its participants, its faults and its files, until it is judged."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

import asyncdlock
from asyncdlock import LockClient
from harness import checkers
from harness.clock import now
from harness.experiments.lab.actor import Actor
from harness.experiments.lab.loading import Loading
from harness.experiments.lab.picture import panel
from harness.experiments.lab.resource_view import ResourceView
from harness.experiments.lab.story import tell
from harness.experiments.lab.track import Track, rows_of
from harness.experiments.lab.worker import WorkerProcess, spawn_worker
from harness.experiments.outcome import NOT_SHOWN, Case, Fact
from harness.faults import FaultJournal
from harness.history import HISTORY_FILE, RESOURCE_FILE, HistoryWriter, load_run
from harness.report.timeline import Panel, draw
from harness.rows import Decision, Row
from harness.writer import open_writer

TIMELINE_FILE = "timeline.svg"


class Scene:
    """A case from its first participant to its verdict. All of it is about one key.

    Times are counted from `begin`; without it from the making of the scene.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        resource: ResourceView | None = None,
        *,
        ttl: float,
        loading: Loading | None = None,
        attempt: int = 1,
    ) -> None:
        self.name = name
        # A repeated case must not meet what its first attempt left at the resource.
        self.key = f"job:{slug(name)}" + (f":{attempt}" if attempt > 1 else "")
        self.ttl = ttl
        self.tracks: list[Track] = []
        self.bodies: dict[str, str] = {}
        self.journal = FaultJournal(now())
        self.resource = resource
        self.panel: Panel | None = None
        self._folder = folder
        self._loading = loading or Loading()

    @property
    def origin(self) -> int:
        return self.journal.origin

    async def begin(self) -> None:
        """Wait until nothing loads any more, in this case and those beside it, and count time from now."""
        await self._loading.done()
        self.journal.origin = now()
        for track in self.tracks:
            track.events.clear()

    def seconds(self) -> float:
        """Since the beginning."""
        return (now() - self.origin) / 1e9

    async def until(self, seconds: float) -> None:
        """Return so long after the beginning, at once if that is past."""
        await asyncio.sleep(max(0.0, seconds - self.seconds()))

    def _track(self, name: str) -> Track:
        track = Track(name, self.key)
        self.tracks.append(track)
        return track

    @contextlib.asynccontextmanager
    async def worker(self, name: str, url: str, **flags: object) -> AsyncIterator[WorkerProcess]:
        """A worker process that waits for `go()`; `flags` are those of `python -m harness worker`.

        It is killed at the end if it still runs.
        """
        self.bodies[name] = str(flags.get("body", f"result of {name}"))
        settings: dict[str, object] = {
            "url": url,
            "key": self.key,
            "ttl": self.ttl,
            "body": self.bodies[name],
            "resource_url": self.resource.url if self.resource is not None else None,
        }
        async with contextlib.AsyncExitStack() as stack:
            async with self._loading.one():
                worker = await stack.enter_async_context(
                    spawn_worker(self._track(name), self.journal, **settings | flags)
                )
            yield worker

    @contextlib.asynccontextmanager
    async def actor(self, name: str, url: str, **options: Any) -> AsyncIterator[Actor]:
        """A client in this process, connected; `options` are those of `asyncdlock.connect`."""
        async with contextlib.AsyncExitStack() as stack:
            client: LockClient = await stack.enter_async_context(asyncdlock.connect(url, **options))
            writer = None
            if self.resource is not None:
                writer = await stack.enter_async_context(open_writer(self.resource.url))
            actor = Actor(self._track(name), self.journal, client, writer)
            await actor.warm()
            yield actor

    async def decisions(self) -> list[Decision]:
        """What the resource has decided about this scene's key so far."""
        return [] if self.resource is None else await self.resource.decisions(self.key, self.origin)

    async def judge(
        self,
        expected: str,
        *,
        facts: Mapping[str, Fact] | None = None,
        shown: Mapping[str, bool] | None = None,
        story: bool = False,
        but: Collection[str] = (),
    ) -> Case:
        """Write the scene's files, let the checkers judge them, and hold that against `expected`.

        `shown` are the sentences that must be true besides: a protected run in which nothing was tried
        proves nothing, nor does one that broke nothing because the fault came too late. When one of them
        is not, the case is `not shown`, unless it broke what it should not. With `story` it is printed
        line by line among the experiment's results. `but` names checkers that do not count for the
        verdict, where the fault is known to break what they check; what they found is told all the same.
        """
        decisions = await self.decisions()
        rows = rows_of(self.tracks)
        self._write(rows, decisions)
        checks = checkers.run_checks(load_run(self._folder))
        counted = {name: check for name, check in checks.items() if name not in but}
        observed: str = checkers.verdict_of(counted)
        missing = [sentence for sentence, true in (shown or {}).items() if not true]
        faults = self.journal.faults
        subtitle = f"checkers: {observed}; TTL {self.ttl:g} s"
        self.panel = panel(self.name, self.tracks, decisions, faults, ttl=self.ttl, subtitle=subtitle)
        (self._folder / TIMELINE_FILE).write_text(draw([self.panel]))
        return Case(
            name=self.name,
            expected=expected,
            observed=NOT_SHOWN if missing and observed in ("ok", expected) else observed,
            facts=facts or {},
            findings=[finding for check in checks.values() for finding in check.findings],
            reason=f"did not happen: {'; '.join(missing)}" if missing else "",
            story=tell(self.tracks, decisions, faults, bodies=self.bodies),
            shown=story,
            folder=self._folder.name,
        )

    def _write(self, rows: list[Row], decisions: list[Decision]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        config = {"case": self.name, "ttl": self.ttl, "key": self.key}
        with HistoryWriter(self._folder / HISTORY_FILE, Row, origin_ns=self.origin, config=config) as history:
            for fault in self.journal.faults:
                history.fault(fault)
            history.write(rows)
        if self.resource is not None:
            path = self._folder / RESOURCE_FILE
            with HistoryWriter(path, Decision, origin_ns=self.origin) as log:
                log.write(decisions)


def slug(name: str) -> str:
    """A name fit for a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
