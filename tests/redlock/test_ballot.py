"""How the answers of the nodes are counted, whatever order they and their failures come in."""

from typing import Any

import pytest

from asyncdlock.backends.redis import requests
from asyncdlock.backends.redlock.ballot import GIVE_BACK, TAKE, Ballot, Question
from asyncdlock.backends.redlock.waits import Waits
from asyncdlock.errors import BackendUnavailable
from tests.backends.support import claim

LOST = BackendUnavailable("the connection was lost", definite=False)
REFUSED = BackendUnavailable("nobody listens", definite=True)


class Scripted:
    """A node that answers its requests with these, one after the other."""

    silent = False
    name = "node"

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    def ask(self, request: bytes, vote: Any) -> None:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            vote.set_exception(answer)
        else:
            vote.set_result(answer)

    def failed(self, error: Exception) -> None:
        pass


class Silent(Scripted):
    """One that does not answer yet."""

    def ask(self, request: bytes, vote: Any) -> None:
        pass


def asked(question: Question, *nodes: Any) -> Ballot:
    mine = claim("key")
    request = requests.acquire(mine, 1) if question is TAKE else requests.release(mine)
    return Ballot(nodes, len(nodes) // 2 + 1, question, request, mine.owner, lambda _: None)


async def counted(question: Question, *nodes: Any) -> Ballot:
    ballot = asked(question, *nodes)
    waits = Waits()
    await ballot.decided(waits, 30.0)
    waits.close()
    return ballot


@pytest.mark.parametrize("question", [TAKE, GIVE_BACK])
async def test_a_minority_settles_nothing_and_a_majority_does(question: Question) -> None:
    no = [500] if question is TAKE else 0
    open_yet = asked(question, Scripted(no), Scripted(1), Silent())
    assert not (open_yet.settled or open_yet.refused or open_yet.carried or open_yet.too_few_answers)
    refused = asked(question, Scripted(no), Scripted(no), Silent())
    assert refused.settled
    assert refused.refused
    carried = asked(question, Scripted(1), Scripted(1), Silent())
    assert carried.settled
    assert carried.carried


async def test_a_no_to_a_release_that_was_sent_again_says_nothing() -> None:
    """The lost one may have given the lock back."""
    ballot = await counted(GIVE_BACK, Scripted(LOST, 0), Scripted(LOST, 0), Scripted(1))
    assert [index for index, _ in ballot.yes] == [2]
    assert ballot.no == []
    assert sorted(ballot.failures) == [0, 1]
    assert not ballot.refused


async def test_a_no_to_an_acquire_that_was_sent_again_says_that_another_has_it() -> None:
    ballot = await counted(TAKE, Scripted(LOST, [500]), Scripted(LOST, [500]), Scripted(7))
    assert [index for index, _ in ballot.no] == [0, 1]
    assert ballot.settled
    assert not ballot.carried


@pytest.mark.parametrize(("first", "definite"), [(LOST, False), (REFUSED, True)])
async def test_a_failure_is_definite_if_no_try_can_have_been_carried_out(
    first: BackendUnavailable, definite: bool
) -> None:
    ballot = await counted(TAKE, *(Scripted(first, REFUSED) for _ in range(3)))
    assert ballot.too_few_answers
    assert [getattr(error, "definite", None) for error in ballot.failures.values()] == [definite] * 3
