"""One case under way: its participants, its faults and its files, until it is judged."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import asyncdlock
from asyncdlock import LockClient
from harness.faults import FaultJournal
from harness.history.rows import Decision
from harness.lab.actor import Actor, warm
from harness.lab.event import Say
from harness.lab.forkserver import Role
from harness.lab.loading import LoadingGate
from harness.lab.outcome import NOT_SHOWN, Case, Fact
from harness.lab.participant import Forkserver, Participant
from harness.lab.picture import panel
from harness.lab.resource_view import ResourceView
from harness.lab.story import tell
from harness.lab.track import Track
from harness.lab.verdict import Judged, judge
from harness.lab.worker import worker
from harness.load.clock import now
from harness.report.timeline import Panel, draw
from harness.resource.client import ResourceClient

TIMELINE_FILE = "timeline.svg"
_READABLE = 5  # participants in one picture
_TOLD_ONLY = ("holders", "completeness")
"""Experiments break the lock's promise on purpose and ask what the resource makes of it; whether enough
happened is what `shown` demands."""


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
        expected: str = "ok",
        loading: LoadingGate | None = None,
        forkserver: Callable[[], Awaitable[Forkserver]] | None = None,
        attempt: int = 1,
    ) -> None:
        self.name = name
        # A repeated case must not meet what its first attempt left at the resource.
        self.key = f"job:{slug(name)}" + (f":{attempt}" if attempt > 1 else "")
        self.ttl = ttl
        self.expected = expected
        """What the checkers are to say."""
        self.tracks: list[Track] = []
        self.bodies: dict[str, str] = {}
        self.journal = FaultJournal(now())
        self.resource = resource
        self.panel: Panel | None = None
        self.folder = folder
        self._loading = loading or LoadingGate()
        self._forkserver = forkserver

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

    def say_as(self, name: str) -> Say:
        """Somebody new, who acts in this process: what they say is an event of theirs."""
        return self._track(name).teller(self.journal)

    @contextlib.asynccontextmanager
    async def participant(self, name: str, role: Role, /, **spec: Any) -> AsyncIterator[Participant]:
        """A process that plays `role`, has said `ready` and waits for `go()`.

        It is killed at the end if it still runs.

        :raises NeverHappened: it did not start.
        """
        assert self._forkserver is not None
        track = self._track(name)
        async with contextlib.AsyncExitStack() as stack:
            with self._loading.going_on():
                forkserver = await self._forkserver()
                participant = await stack.enter_async_context(
                    forkserver.participant(name, role, spec, track.listener(self.journal), track)
                )
                await track.until("ready")
            yield participant

    def worker(self, name: str, url: str, **job: Any) -> contextlib.AbstractAsyncContextManager[Participant]:
        """A process that takes the lock, writes `result of NAME` and releases; `job` is what is told of it
        besides, as to `python -m harness worker`."""
        self.bodies[name] = f"result of {name}"
        resource = self.resource.url if self.resource is not None else None
        told = {"key": self.key, "ttl": self.ttl, "body": self.bodies[name], "resource_url": resource}
        return self.participant(name, worker, url=url, **told | job)

    @contextlib.asynccontextmanager
    async def workers(self, **jobs: Mapping[str, Any]) -> AsyncIterator[list[Participant]]:
        """Several, started at the same time: to each name what `worker` is told."""
        async with contextlib.AsyncExitStack() as stack:
            workers = (stack.enter_async_context(self.worker(name, **job)) for name, job in jobs.items())
            yield await asyncio.gather(*workers)

    @contextlib.asynccontextmanager
    async def actor(self, name: str, url: str, **options: Any) -> AsyncIterator[Actor]:
        """A client in this process, connected; `options` are those of `asyncdlock.connect`."""
        async with contextlib.AsyncExitStack() as stack:
            client: LockClient = await stack.enter_async_context(asyncdlock.connect(url, **options))
            writer = None
            if self.resource is not None:
                writer = await stack.enter_async_context(ResourceClient(self.resource.url))
            await warm(client, self.key)
            yield Actor(self.key, client, writer, self.say_as(name))

    def track(self, name: str) -> Track:
        return next(track for track in self.tracks if track.name == name)

    async def decisions(self) -> list[Decision]:
        """What the resource has decided about this scene's key so far."""
        return [] if self.resource is None else await self.resource.decisions(self.key, self.origin)

    async def refusals(self) -> list[str]:
        """What it answered to stale writes."""
        stale = [one for one in await self.decisions() if one.outcome == "stale"]
        return [f"409 seen {one.seen} got {one.token}" for one in stale]

    async def value(self) -> str | None:
        return None if self.resource is None else (await self.resource.value(self.key)).text

    async def judged(self, *, subtitle: str = "", **config: Any) -> Judged:
        """Write the scene's files, let the checkers judge them, and draw the picture."""
        decisions = None if self.resource is None else await self.decisions()
        told = {"case": self.name, "ttl": self.ttl, "key": self.key, **config}
        judged = judge(self.folder, self.tracks, decisions, self.journal, config=told)
        self.panel = panel(
            self.name,
            self.tracks,
            judged.decisions,
            self.journal.faults,
            ttl=self.ttl,
            subtitle=subtitle or f"checkers: {judged.verdict}; TTL {self.ttl:g} s",
        )
        if len(self.tracks) <= _READABLE:
            (self.folder / TIMELINE_FILE).write_text(draw([self.panel]))
        return judged

    async def judge(
        self,
        *,
        facts: Mapping[str, Fact] | None = None,
        shown: Mapping[str, bool] | None = None,
        story: bool = False,
        but: Collection[str] = (),
    ) -> Case:
        """Write the scene's files, let the checkers judge them, and hold that against what is expected.

        `shown` are the sentences that must be true besides: a protected run in which nothing was tried
        proves nothing, nor does one that broke nothing because the fault came too late. When one of them
        is not, the case is `not shown`, unless it broke what it should not. With `story` it is printed
        line by line among the experiment's results. `but` names checkers that do not count for the
        verdict, where the fault is known to break what they check; what they found is told all the same.
        """
        judged = await self.judged()
        observed: str = judged.verdict_but((*but, *_TOLD_ONLY))
        missing = [sentence for sentence, true in (shown or {}).items() if not true]
        return Case(
            name=self.name,
            expected=self.expected,
            observed=NOT_SHOWN if missing and observed in ("ok", self.expected) else observed,
            facts=facts or {},
            findings=judged.findings,
            reason=f"did not happen: {'; '.join(missing)}" if missing else "",
            story=tell(self.tracks, judged.decisions, self.journal.faults, bodies=self.bodies),
            shown=story,
            folder=self.folder.name,
        )


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
