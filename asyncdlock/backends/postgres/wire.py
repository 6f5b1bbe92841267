"""Requests in batches over one connection: what comes while a batch is under way goes into the next one.

PostgreSQL flushes its log for every commit, and a batch is one commit. One connection also keeps the order: a
release follows the acquire that it undoes.

Every request may be repeated by its owner with the same effect, so a connection that is lost costs a
repetition, not an error, for as long as `request_timeout` lasts.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from asyncdlock._backoff import jittered
from asyncdlock.backends.postgres.session import Session
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim, SharedClaim, label_of

if TYPE_CHECKING:
    from asyncdlock.backends.postgres.settings import Settings

_MOST = 500  # requests in one batch: some milliseconds of the server's time
_NOT_TWICE = ("release", "force")
_EARLY = 0.002  # seconds by which a timer of the loop may fire before its time


class Reply(NamedTuple):
    """What became of a request."""

    outcome: str
    last_fence: int | None
    remaining: float | None
    """Of the holder's lease, in seconds."""
    server_time: float
    details: str | None
    """What was asked about, as JSON."""
    sent: float
    """Before it was sent, by our monotonic clock."""


class _Request:
    __slots__ = ("claim", "future", "give_up", "number", "sent", "verb")

    def __init__(
        self, verb: str, claim: Claim, number: int, future: "asyncio.Future[Reply]", give_up: float
    ) -> None:
        self.verb = verb
        self.claim = claim
        self.number = number
        self.future = future
        self.give_up = give_up
        self.sent = False  # it may have been carried out


class Wire:
    """Carries requests to the server and wake-ups back.

    `told` gets what comes in on our channel; `lost` is called when the connection is gone, and what was said
    there with it.
    """

    def __init__(self, settings: "Settings", told: Callable[[str], None], lost: Callable[[], None]) -> None:
        self._settings = settings
        self._told = told
        self._lost = lost
        self._due: deque[_Request] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._closed = False
        self.commands: int = 0
        self.label = ""
        """What those who ask without a label of their own go by."""

    @property
    def pooled(self) -> bool:
        """Whether a pooler was found in between: then no wake-ups come in."""
        return self._session is not None and self._session.pooled

    def send(self, verb: str, claim: Claim, number: int = 0) -> "asyncio.Future[Reply]":
        """Ask for something; a cancelled request may be carried out all the same.

        :raises BackendError: also the future; definite if it certainly was not carried out.
        """
        if self._closed:
            raise BackendUnavailable("the connection was closed", definite=True)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        give_up = time.monotonic() + self._settings.request_timeout
        self._due.append(_Request(verb, claim, number, future, give_up))
        if self._worker is None:
            worker = loop.create_task(self._work(), name="asyncdlock postgres")
            self._worker = None if worker.done() else worker
        return future

    async def _work(self) -> None:
        delays = jittered(0.02, 0.25)
        try:
            while self._due:
                try:
                    session = await self._connected()
                    await self._run_batch(session)
                    delays = jittered(0.02, 0.25)
                except BackendError as error:
                    self._fail(error)
                    if self._due:
                        await asyncio.sleep(next(delays))
        except Exception as error:  # a defect: whoever waits shall hear of it, and the log as well
            self._fail(BackendError(f"{type(error).__name__}: {error}"))
            raise
        finally:
            self._worker = None

    async def _connected(self) -> Session:
        if self._session is None or not self._session.usable:
            self._session = await Session.open(self._settings, self._told, self._lost, self._session)
        return self._session

    async def _run_batch(self, session: Session) -> None:
        """Send what is due, as much as one batch holds.

        :raises BackendError: it failed, and its requests are due again.
        """
        batch = [self._due.popleft() for _ in range(min(len(self._due), _MOST))]
        # One whose caller is gone and that was never sent needs not be; if it was, its release follows.
        batch = [request for request in batch if not request.future.cancelled()]
        if not batch:
            return
        claims = [request.claim for request in batch]
        columns = (
            [_verb(request) for request in batch],
            [claim.key for claim in claims],
            [claim.owner for claim in claims],
            [label_of(claim.owner) or self.label for claim in claims],
            [claim.ttl for claim in claims],
            [request.number for request in batch],
            [claim.permits if isinstance(claim, SharedClaim) else None for claim in claims],
        )
        sent = time.monotonic()
        self.commands += 1
        try:
            rows = await session.run(columns)
        except BaseException as error:
            indefinite = not (isinstance(error, BackendError) and error.definite)
            for request in batch:
                request.sent = request.sent or indefinite
            self._due.extendleft(reversed(batch))
            if not isinstance(error, BackendUnavailable):
                session.abort()  # the next one looks again at what the server has
            raise
        for number, outcome, last_fence, remaining, server_time, details in rows:
            future = batch[number - 1].future
            if not future.done():
                future.set_result(Reply(outcome, last_fence, remaining, server_time, details, sent))

    def _fail(self, error: BackendError) -> None:
        """Nothing more for those who have waited for long enough, or for whom no repetition helps."""
        now = time.monotonic() + _EARLY
        kept: list[_Request] = []
        for request in self._due:
            if request.future.done():
                continue
            if isinstance(error, BackendUnavailable) and now < request.give_up and not self._closed:
                kept.append(request)
            else:
                request.future.set_exception(type(error)(str(error), definite=not request.sent))
        self._due = deque(kept)

    async def aclose(self) -> None:
        self._closed = True
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.wait({self._worker})
        self._fail(BackendUnavailable("the connection was closed"))
        if self._session is not None:
            await self._session.aclose()


def _verb(request: _Request) -> str:
    """With a word that a first try may have done it before: it must not answer for the next holder."""
    return f"{request.verb} again" if request.sent and request.verb in _NOT_TWICE else request.verb
