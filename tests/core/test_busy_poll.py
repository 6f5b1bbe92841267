"""Staying awake for a near server's reply: given up for a far one, and never at the cost of anybody else."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

import pytest

from asyncdlock.backends.redis.busy_poll import BusyPoll
from asyncdlock.backends.redis.url import RedisURL
from asyncdlock.backends.redis.wire import Wire
from harness import servers


class Turns:
    """A loop's ready callbacks, run by hand."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def run(self) -> None:
        """Until nothing is ready: a loop would go to sleep now."""
        while self._ready:
            self._ready.popleft()()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else wants the core, whatever else this machine is doing."""
    monkeypatch.setattr("asyncdlock.backends.redis.busy_poll._ALONE", 60.0)


def test_a_server_that_answers_in_time_is_waited_for_every_time() -> None:
    turns, pending = Turns(), deque[int]()
    awake = BusyPoll(pending, turns.call_soon)
    for number in range(100):
        pending.append(number)
        awake.wait()
        pending.clear()
        turns.run()
    assert awake.waits == 100


@pytest.mark.usefixtures("alone")
def test_a_far_server_is_hardly_ever_waited_for() -> None:
    turns = Turns()
    awake = BusyPoll([1], turns.call_soon)
    for _ in range(10_000):
        awake.wait()
        turns.run()
    assert 10 <= awake.waits < 100, "each miss doubles the requests that go without, up to a thousand"


def test_a_core_that_others_want_is_left_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdlock.backends.redis.busy_poll._give_way", lambda: time.sleep(0.001))
    # So that the time which a busy machine takes between two lines below does not count as a miss.
    monkeypatch.setattr("asyncdlock.backends.redis.busy_poll._STAY", 60.0)
    turns = Turns()
    awake = BusyPoll([1], turns.call_soon)
    for _ in range(160):
        awake.wait()
        turns.run()
    assert awake.waits == 10, "one of sixteen requests finds out whether they still do"


@pytest.mark.usefixtures("alone")
def test_a_server_that_came_nearer_is_waited_for_again() -> None:
    turns, pending = Turns(), deque([1])
    awake = BusyPoll(pending, turns.call_soon)
    for _ in range(8):
        awake.wait()
        turns.run()
    pending.clear()
    waits = awake.waits
    for _ in range(1100):
        awake.wait()
        turns.run()
    assert awake.waits > waits + 50


async def test_other_tasks_run_while_a_reply_is_waited_for(redis_server: servers.RedisNode) -> None:
    """Also while the server is frozen: every look is a turn of the loop, and there is a last one."""
    wire = Wire(RedisURL.parse(redis_server.url, {}, known={}).opener(), call_timeout=60.0)
    await wire.call("PING")
    redis_server.pause()
    call = wire.call("PING")
    for _ in range(1000):
        await asyncio.sleep(0)
    assert not call.done()
    redis_server.resume()
    assert await call == b"PONG"
    await wire.aclose()


def test_busy_polling_can_be_switched_off() -> None:
    assert RedisURL.parse("redis://h", {}, known={}).wire["stay_awake"]
    assert not RedisURL.parse("redis://h?stay_awake=off", {}, known={}).wire["stay_awake"]
