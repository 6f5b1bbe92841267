"""An asyncio client that lives in a thread of its own, for callers without an event loop."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from asyncdlock import _process
from asyncdlock._callers import CLIENT_CLOSED
from asyncdlock._hold import give_back
from asyncdlock._loop_thread import LoopThread
from asyncdlock.client import LockClient
from asyncdlock.errors import LockError
from asyncdlock.handle import Handle
from asyncdlock.kinds.shared import upgrade

T = TypeVar("T")

_CLOSE_AT_EXIT_WITHIN = 5.0  # seconds

_ITS_OWN_THREAD = (
    "this is the thread in which the client lives, as in a callback of on_lost: a call from here would wait "
    "for itself; leave it to another thread"
)

_inherited: list[object] = []
"""Of the parent, in a forked child. Never collected: to close its event loop would reach into the parent."""


class ThreadedClient:
    """Starts its thread with its first call; a forked child gets a client and a thread of its own."""

    def __init__(self, open_client: Callable[[], LockClient]) -> None:
        self._open_client = open_client
        self.upgrades: UpgradesOfThreads = UpgradesOfThreads()
        self._begin()
        _process.disown_in_child(self)

    def _begin(self) -> None:
        self.client: LockClient = self._open_client()
        self._thread = LoopThread()
        # Also when the interpreter exits, and then before the thread's own, which was made before it.
        self._finish = weakref.finalize(self, _close, self._thread, self.client)

    @property
    def closed(self) -> bool:
        return not self._finish.alive

    def call(self, coroutine: Coroutine[Any, Any, T], undo: Callable[[T], object] | None = None) -> T:
        """Wait for `coroutine`.

        :raises LockError: the client is closed, or it is its own thread that asks.
        """
        if self.closed or self._thread.is_current:
            coroutine.close()
            raise LockError(CLIENT_CLOSED if self.closed else _ITS_OWN_THREAD)
        return self._thread.call(coroutine, undo)

    def give_up(self, handle: Handle | None) -> None:
        """Give back a lock whose caller will never see it."""
        if handle is not None:
            self._thread.post(take_back, handle)

    def close(self) -> None:
        if self._finish.alive and self._thread.started and not self._thread.is_current:
            with suppress(LockError):  # another thread was faster
                self._thread.call(self.client.aclose())
        self._finish()

    def disown(self) -> None:
        """This process was forked from the one that used it: start anew."""
        _inherited.append((self._thread, self.client))
        if self._finish.detach() is not None:
            self._begin()


class UpgradesOfThreads:
    """What each thread shares with others: to refuse an upgrade that could only wait for itself."""

    def __init__(self) -> None:
        self._of = threading.local()

    def note(self, handle: Handle) -> None:
        """The current thread now holds this."""
        self._of.handles = [weakref.ref(held) for held in (*self._held(), handle)]

    def refuse(self, key: str) -> None:
        """:raises LockError: the current thread shares `key` with others, and now wants it exclusively."""
        if any(handle.key == key for handle in self._held()):
            raise upgrade("thread", key)

    def _held(self) -> list[Handle]:
        known: list[weakref.ref[Handle]] = getattr(self._of, "handles", [])
        return [handle for reference in known if (handle := reference()) is not None and handle.held]


# What it is asked to run


async def check(handle: Handle) -> None:
    handle.check()


async def wait_lost(handle: Handle, timeout: float | None) -> bool:
    async with asyncio.timeout(timeout):
        return await handle.wait_lost()


async def listed(names: AsyncIterator[str]) -> list[str]:
    return [name async for name in names]


_taking_back: set[asyncio.Task[bool]] = set()


def take_back(handle: Handle | None) -> None:
    """Nobody waits for this grant any longer. Called in the client's loop."""
    if handle is not None:
        task = asyncio.get_running_loop().create_task(give_back(handle))
        _taking_back.add(task)
        task.add_done_callback(_taking_back.discard)


def _close(thread: LoopThread, client: LockClient) -> None:
    if not thread.started:
        return
    closing = thread.submit(client.aclose())
    if thread.is_current:  # the garbage collector may call from anywhere
        closing.add_done_callback(lambda _: thread.stop())
        return
    with suppress(Exception):  # what was not given back by now ends with its lease
        closing.result(_CLOSE_AT_EXIT_WITHIN)
    thread.stop()
