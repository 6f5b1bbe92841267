"""One request to every node of a quorum, and what they have answered so far.

Answers are counted as they are read, without a task or a future per node (`python -m bench.redlock_reference`
has what that buys). So a ballot goes on when its caller was cancelled or has seen enough: a slow node still
gets, and is still asked again for, what the others have done.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from asyncdlock.backends.redis.replies import ForeignData, ScriptMissing
from asyncdlock.backends.redis.requests import ACQUIRE, RAISE_FENCE, RELEASE, RENEW
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redlock.member import Member
from asyncdlock.backends.redlock.waits import Waits
from asyncdlock.errors import BackendError, BackendUnavailable, QuorumError

_LATE_TURNS = 3  # of the loop: one reads the sockets, one counts a failure, one to spare


class Question(NamedTuple):
    """A kind of request, and how its answers are counted."""

    script: Script
    yes: Callable[[Any], bool]
    enough: Callable[["Ballot"], bool]
    """Whether the answers so far settle it; otherwise all nodes are waited for."""
    no_is_certain: bool = True
    """Whether a "no" to a repetition says what the lost reply to the first request said."""


TAKE = Question(ACQUIRE, yes=lambda reply: type(reply) is not list, enough=lambda ballot: ballot.settled)
EXTEND = Question(RENEW, yes=all, enough=lambda ballot: ballot.carried)
GIVE_BACK = Question(
    RELEASE, yes=bool, enough=lambda ballot: ballot.carried or ballot.refused, no_is_certain=False
)
# Whatever they answer: that a majority has done it is enough.
UNDO = Question(RELEASE, yes=lambda _: True, enough=lambda ballot: ballot.settled)
GIVE_BACK_REST = Question(RELEASE, yes=bool, enough=lambda _: False, no_is_certain=False)
RAISE = Question(RAISE_FENCE, yes=lambda _: True, enough=lambda ballot: ballot.settled)


class _Vote:
    """Where the answer of one node goes."""

    __slots__ = ("_ballot", "_first_failure", "_index")

    def __init__(self, ballot: "Ballot", index: int, first_failure: BackendError | None = None) -> None:
        self._ballot = ballot
        self._index = index
        self._first_failure = first_failure

    def done(self) -> bool:
        return False

    def set_result(self, reply: Any) -> None:
        if self._first_failure is None:
            self._ballot.answered(self._index, reply)
        else:
            self._ballot.answered_again(self._index, reply, self._first_failure)

    def set_exception(self, error: Exception) -> None:
        # Not at once: the connection that fails is not yet done with it.
        asyncio.get_running_loop().call_soon(
            self._ballot.went_wrong, self._index, _stated(error), self._first_failure
        )


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
        self._unanswered = self._awaited = (1 << len(members)) - 1
        if silent := sum([1 << index for index, member in enumerate(members) if member.silent]):
            others = self._awaited & ~silent
            if others.bit_count() >= quorum:
                self._awaited = others
        for index in range(len(members)):
            self._send(index, request)

    # Asking

    def _send(self, index: int, request: bytes, first_failure: BackendError | None = None) -> None:
        try:
            self._members[index].ask(request, _Vote(self, index, first_failure))
        except BackendError as error:
            self._failed(index, error, first_failure)

    def went_wrong(self, index: int, error: BackendError, first: BackendError | None) -> None:
        """There is no answer: ask again where the table says so."""
        again = first is None and (not error.definite or isinstance(error, ScriptMissing))
        if again and not self.superseded:
            self._send(index, self._question.script.in_full(self._request), error)
        else:
            self._failed(index, error, first)

    # Counting

    def answered(self, index: int, reply: Any) -> None:
        """A node has said yes or no."""
        member = self._members[index]
        if member.silent:
            member.silent = False
        if self.failures:
            self.failures.pop(index, None)  # it was late
        (self.yes if self._question.yes(reply) else self.no).append((index, reply))
        self._settle(index)

    def answered_again(self, index: int, reply: Any, first: BackendError) -> None:
        """A node has answered the repetition."""
        if first.definite or self._question.no_is_certain or self._question.yes(reply):
            self.answered(index, reply)
        else:
            self._failed(index, BackendUnavailable(f"{first}; whether it was done cannot be known"))

    def _failed(self, index: int, error: BackendError, first: BackendError | None = None) -> None:
        member = self._members[index]
        member.failed(error)
        if isinstance(error, ForeignData):
            self.foreign = str(error)
        # Also when the second try certainly failed, the first one may have been carried out.
        definite = error.definite and (first is None or first.definite)
        self.failures[index] = _restated(error, f"{member.name}: {error}", definite=definite)
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

    async def decided(self, waits: Waits, within: float) -> None:
        """Return when the answers settle it, when nobody is left to answer, or when the time is up.

        Nodes that were silent before are not waited for as long as the others are a majority.
        """
        if not self._is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            waits.enter(self, within)
            try:
                await self._waiter
            finally:
                waits.leave(self)
        if self._unanswered and not self._question.enough(self):
            self._note_silence()

    async def complete(self, within: float) -> None:
        """Return when every node has answered, or the time is up."""
        if self._unanswered:
            self._completed = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._completed,), timeout=within)

    def time_up(self, turns: int = _LATE_TURNS) -> None:
        """Whoever waits for the answers shall go on without those that are missing."""
        assert self._waiter is not None
        if self._waiter.done():
            return
        if turns:
            # What arrived while the loop was busy is there in time, and was not read yet.
            asyncio.get_running_loop().call_soon(self.time_up, turns - 1)
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


def _stated(error: Exception) -> BackendError:
    return error if isinstance(error, BackendError) else BackendError(f"the request failed: {error!r}")
