"""One request to every node of a quorum, and what they have answered so far.

Answers are counted by callbacks, without a task per node. So a ballot goes on when its caller was cancelled
or has seen enough: a slow node still gets, and is still asked again for, what the others have done.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from asyncdlock.backends.redis.replies import ForeignData, ScriptMissing
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redlock.member import Member
from asyncdlock.errors import BackendError, BackendUnavailable, QuorumError

_LATE_TURNS = 3  # of the loop: one reads the sockets, one counts the answer, one to spare


class Question(NamedTuple):
    """A kind of request, and how its answers are counted."""

    script: Script
    yes: Callable[[Any], bool]
    enough: Callable[["Ballot"], bool]
    """Whether the answers so far settle it; otherwise all nodes are waited for."""
    no_is_certain: bool = True
    """Whether a "no" to a repetition says what the lost reply to the first request said."""


class Ballot:
    """A round of one request. Sent as soon as it is made.

    What is sent again, and then only once:

    | answer                           | what follows                                           |
    |----------------------------------|--------------------------------------------------------|
    | NOSCRIPT                         | sent again with the script's text                      |
    | connection lost before the reply | sent again on the next connection                      |
    | either, when `superseded`        | nothing: it would overtake a later request of the claim |
    """

    __slots__ = (
        "_awaited",
        "_completed",
        "_finished",
        "_members",
        "_question",
        "_request",
        "_unanswered",
        "_waiter",
        "failures",
        "foreign",
        "no",
        "owner",
        "quorum",
        "superseded",
        "yes",
    )

    def __init__(
        self,
        members: Sequence[Member],
        quorum: int,
        question: Question,
        request: bytes,
        owner: str,
        finished: Callable[["Ballot"], None],
    ) -> None:
        self._members = members
        self._question = question
        self._request = request
        self._finished = finished
        self._waiter: asyncio.Future[None] | None = None
        self._completed: asyncio.Future[None] | None = None
        self.quorum: int = quorum
        self.owner: str = owner
        self.superseded: bool = False
        self.foreign: str = ""
        """What a node said that stores somebody else's data there."""
        self.yes: list[tuple[int, Any]] = []
        self.no: list[tuple[int, Any]] = []
        self.failures: dict[int, Exception] = {}
        # Sets of nodes, as bits.
        self._unanswered = everybody = (1 << len(members)) - 1
        self._awaited = everybody
        if any(member.silent for member in members):
            self._awaited = sum(1 << index for index, member in enumerate(members) if not member.silent)
            if self._awaited.bit_count() < quorum:
                self._awaited = everybody
        for index in range(len(members)):
            self._send(index, request, self._answered)

    # Asking

    def _send(
        self, index: int, request: bytes, answered: Callable[[int, "asyncio.Future[Any]"], None]
    ) -> None:
        try:
            future = self._members[index].send(request)
        except BackendError as error:
            self._failed(index, error)
        else:
            future.add_done_callback(partial(answered, index))

    def _answered(self, index: int, future: "asyncio.Future[Any]") -> None:
        error = _error_of(future)
        if error is None:
            self._counted(index, future.result())
        elif self.superseded or (error.definite and not isinstance(error, ScriptMissing)):
            self._failed(index, error)
        else:
            self._send(
                index, self._question.script.in_full(self._request), partial(self._answered_again, error)
            )

    def _answered_again(self, first: BackendError, index: int, future: "asyncio.Future[Any]") -> None:
        error = _error_of(future)
        if error is not None:
            # Also when this try certainly failed, the first one may have been carried out.
            self._failed(index, _restated(error, str(error), definite=error.definite and first.definite))
        elif not (first.definite or self._question.no_is_certain or self._question.yes(future.result())):
            self._failed(index, BackendUnavailable(f"{first}; whether it was done cannot be known"))
        else:
            self._counted(index, future.result())

    # Counting

    def _counted(self, index: int, reply: Any) -> None:
        self._members[index].silent = False
        self.failures.pop(index, None)  # it was late
        (self.yes if self._question.yes(reply) else self.no).append((index, reply))
        self._settle(index)

    def _failed(self, index: int, error: BackendError) -> None:
        member = self._members[index]
        member.failed(error)
        if isinstance(error, ForeignData):
            self.foreign = str(error)
        self.failures[index] = _restated(error, f"{member.name}: {error}", definite=error.definite)
        self._settle(index)

    def _settle(self, index: int) -> None:
        self._unanswered &= ~(1 << index)
        self._awaited &= ~(1 << index)
        waiter = self._waiter
        if waiter is not None and not waiter.done() and self._is_over:
            waiter.set_result(None)
        if not self._unanswered:
            self._finished(self)
            if self._completed is not None and not self._completed.done():
                self._completed.set_result(None)

    @property
    def _is_over(self) -> bool:
        return not self._awaited or self._question.enough(self)

    async def decided(self, within: float) -> None:
        """Return when the answers settle it, when nobody is left to answer, or when the time is up.

        Nodes that were silent before are not waited for as long as the others are a majority.
        """
        if not self._is_over:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(within, self._time_up, _LATE_TURNS)
            try:
                await self._waiter
            finally:
                timer.cancel()
        if self._unanswered and not self._question.enough(self):
            self._note_silence()

    async def complete(self, within: float) -> None:
        """Return when every node has answered, or the time is up."""
        if self._unanswered:
            self._completed = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._completed,), timeout=within)

    def _time_up(self, turns: int) -> None:
        assert self._waiter is not None
        if self._waiter.done():
            return
        if turns:
            # What arrived while the loop was busy is there in time, and was not read yet.
            asyncio.get_running_loop().call_soon(self._time_up, turns - 1)
        else:
            self._waiter.set_result(None)

    def _note_silence(self) -> None:
        for index, member in enumerate(self._members):
            if self._unanswered & (1 << index):
                member.silent = True
                self.failures[index] = BackendUnavailable(f"{member.name}: no answer in time")

    # What came out of it

    @property
    def finished(self) -> bool:
        """Every node has answered, or will not any more."""
        return not self._unanswered

    @property
    def carried(self) -> bool:
        return len(self.yes) >= self.quorum

    @property
    def refused(self) -> bool:
        """A majority of "yes" is ruled out by those who said "no"."""
        return len(self._members) - len(self.no) < self.quorum

    @property
    def settled(self) -> bool:
        """A majority of "yes" is there, or cannot be had any more."""
        return self.carried or len(self._members) - len(self.no) - len(self.failures) < self.quorum

    @property
    def too_few_answers(self) -> bool:
        """The failures alone rule a majority out; a split vote is contention, not failure."""
        return len(self._members) - len(self.failures) < self.quorum

    def error(self, message: str) -> QuorumError:
        return QuorumError(message, [self.failures[index] for index in sorted(self.failures)])


def _restated(error: BackendError, message: str, *, definite: bool) -> BackendError:
    kind = BackendUnavailable if isinstance(error, BackendUnavailable) else BackendError
    return kind(message, definite=definite)


def _error_of(future: "asyncio.Future[Any]") -> BackendError | None:
    if future.cancelled():
        return BackendUnavailable("the request was given up")
    error = future.exception()
    if error is None or isinstance(error, BackendError):
        return error
    return BackendError(f"the request failed: {error!r}")
