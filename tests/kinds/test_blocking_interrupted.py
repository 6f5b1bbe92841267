"""Ctrl-C at each step of a `with` block of asyncdlock.blocking: nothing is left behind.

A signal's exception comes between any two lines; here it is raised at each in turn, ours and contextlib's.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import asyncdlock
from asyncdlock import blocking
from harness.servers.catalogue import LockServer

_OURS = str(Path(asyncdlock.__file__).parent)
_LONG = 600.0  # a lease that is left behind does not end while the test runs

# It may also come between the making of a coroutine and its sending: Python says so.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning"
)


def interrupted_at(step: int, block: Callable[[], None]) -> bool:
    """Run `block` with a KeyboardInterrupt at its `step`th line; whether it has so many."""
    left = step

    def in_frame(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return in_frame

    def new_frame(frame: FrameType, event: str, _: Any) -> Any:
        where, name = frame.f_code.co_filename, frame.f_code.co_name
        ours = where.startswith(_OURS) or where == contextlib.__file__
        return in_frame if ours and name != "__del__" else None  # from there it goes nowhere

    before = sys.gettrace()
    sys.settrace(new_frame)  # of this thread
    try:
        block()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return left <= 0


def hold(client: blocking.BlockingClient, key: str) -> None:
    with client.hold(key, ttl=_LONG):
        pass


def hold_shared(client: blocking.BlockingClient, key: str) -> None:
    with client.hold(key, ttl=_LONG, shared=True):
        pass


def hold_a_permit(client: blocking.BlockingClient, key: str) -> None:
    with client.semaphore(key, permits=1).hold(ttl=_LONG):
        pass


def hold_all(client: blocking.BlockingClient, key: str) -> None:
    with client.hold_all([f"{key}-2", key], ttl=_LONG):
        pass


def call_decorated(client: blocking.BlockingClient, key: str) -> None:
    @client.locked(f"{key}{{suffix}}", ttl=_LONG)
    def work(suffix: str) -> None: ...

    work("")


def fail(client: blocking.BlockingClient, key: str) -> None:
    with contextlib.suppress(ZeroDivisionError), client.hold(key, ttl=_LONG):
        raise ZeroDivisionError


@pytest.mark.parametrize("block", [hold, hold_shared, hold_a_permit, hold_all, call_decorated, fail])
def test_an_interruption_at_any_line_leaves_nothing_behind(
    block: Callable[[blocking.BlockingClient, str], None], installed: Callable[[str], LockServer], key: str
) -> None:
    queue_url = installed("redis-queue").url
    with blocking.connect(queue_url, local_queue=False) as client, blocking.connect(queue_url) as other:
        step = 0
        while True:
            step += 1
            was_interrupted = interrupted_at(step, lambda: block(client, key))
            with other.hold_all([key, f"{key}-2"], ttl=_LONG, timeout=60.0):
                pass
            if not was_interrupted:
                break
        assert step > 30, "hardly a line was interrupted"
