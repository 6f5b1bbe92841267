"""What a place believes about itself: only readings of the very place that it took, and in time."""

import asyncio
from types import SimpleNamespace
from typing import Any

from asyncdlock.backends.etcd.queue import LockQueue
from asyncdlock.backends.etcd.requests import QueueKeys

KEYS = QueueKeys("/locks", "key")
MINE = b"/locks/key/1"


def reading(created_at: int, read_at: int) -> Any:
    """The answer to a request that finds the place."""
    found = SimpleNamespace(kvs=[SimpleNamespace(key=MINE, create_revision=created_at, lease=1)], more=False)
    reply = SimpleNamespace(responses=[SimpleNamespace(response_range=found)], succeeded=True)
    return SimpleNamespace(reply=reply, revision=read_at, uncertain=False)


def answered(outcome: Any) -> "asyncio.Future[Any]":
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(outcome)
    return future


class Server:
    """Answers every request with the same reading."""

    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome
        self.asked = 0

    def submit(self, _: object) -> "asyncio.Future[Any]":
        self.asked += 1
        return answered(self._outcome)

    def answer(self, outcome: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
        return outcome


def queue_on(server: Any) -> LockQueue:
    nothing: Any = None
    return LockQueue(nothing, server, nothing, "/locks")


def place(**more: Any) -> Any:
    return SimpleNamespace(key=MINE, queue=KEYS, permits=None, relieved=None, **more)


async def test_a_place_that_was_taken_anew_is_not_the_one_that_was_lost() -> None:
    """Another claim of the same client may stand there by now, under the same lease and hence name."""
    queue = queue_on(Server(reading(created_at=9, read_at=12)))
    assert (await queue._look(place(), 9)).revision == 9
    assert (await queue._look(place(), 7)).revision == 0


async def test_a_reading_from_before_the_release_tells_nothing() -> None:
    server = Server(reading(created_at=7, read_at=20))
    mine = place()
    for read_at, asked in ((10, 0), (9, 1)):
        mine.relieved = answered(reading(3, 10)), answered(reading(7, read_at))
        assert (await queue_on(server)._look_at_own(mine, 7)).revision == 7
        assert server.asked == asked
