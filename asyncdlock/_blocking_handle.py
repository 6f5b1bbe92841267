"""BlockingHandle: what a thread that holds a lock sees and may do; taking locks and giving them back."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, overload

from asyncdlock._hold import give_back
from asyncdlock._holding import HELD
from asyncdlock._threaded_client import ThreadedClient, check, take_back, wait_lost
from asyncdlock.errors import LockError
from asyncdlock.handle import Handle


class BlockingHandle:
    """A lock that was granted to a thread. Attach `fence` to every write that the lock protects.

    Any thread may use it. `held`, `remaining` and `check` look at the local clock only, as in asyncio.
    """

    __slots__ = ("_handle", "_inside")

    def __init__(self, inside: ThreadedClient, handle: Handle) -> None:
        self._inside = inside
        self._handle = handle

    @property
    def key(self) -> str:
        """As it was asked for, without the client's prefix."""
        return self._handle.key

    @property
    def owner(self) -> str:
        """A fresh UUID for every attempt."""
        return self._handle.owner

    @property
    def fence(self) -> int:
        """The fencing token: larger than that of every earlier grant of this key."""
        return self._handle.fence

    @property
    def ttl(self) -> float:
        """How long the lease lasts without a renewal, in seconds."""
        return self._handle.ttl

    @property
    def label(self) -> str:
        """What `inspect` shows of this holder."""
        return self._handle.label

    @property
    def shared(self) -> bool:
        """Whether others may hold the key at the same time: a shared lock, or a permit of a semaphore."""
        return self._handle.shared

    @property
    def acquired_at(self) -> float:
        """Wall clock, seconds since the epoch: for display."""
        return self._handle.acquired_at

    @property
    def expires_at(self) -> float:
        """When the lease ends unless it is renewed, in `time.monotonic()` seconds."""
        return self._handle.expires_at

    @property
    def held(self) -> bool:
        """Whether the lease can still be relied on, by the local clock."""
        return self._handle.held

    def remaining(self) -> float:
        """Seconds for which the lease can still be relied on; 0.0 when it cannot."""
        return self._handle.remaining()

    def check(self) -> None:
        """Do nothing while the lease can be relied on: call it between the steps of a long body.

        :raises LockLost: the lease is lost, has run out, or was released.
        """
        holding = self._handle._holding
        if holding.held:
            return
        if holding.state is HELD:  # by the clock alone: its end is told where it is looked after
            self._inside.call(check(self._handle))
        raise holding.lost_error()

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Return `True` when the lease is lost, and `False` when the lock was released first.

        :raises TimeoutError: neither happened within `timeout` seconds.
        """
        return self._inside.call(wait_lost(self._handle, timeout))

    def renew(self) -> None:
        """Extend the lease by its TTL, from now.

        :raises LockLost, BackendError, LockError: as in asyncio.
        """
        self._inside.call(self._handle.renew())

    def release(self) -> bool:
        """Give the lock back. `True` when it was still owned. Safe to call twice and again after an error.

        :raises BackendError: the server failed; the lock ends with its TTL unless this is retried.
        :raises LockError: the client is closed, or belongs to another process.
        """
        return self._inside.call(self._handle.release())

    def __repr__(self) -> str:
        return repr(self._handle)


@overload
def take(inside: ThreadedClient, asking: Coroutine[Any, Any, Handle]) -> BlockingHandle: ...
@overload
def take(inside: ThreadedClient, asking: Coroutine[Any, Any, Handle | None]) -> BlockingHandle | None: ...
def take(inside: ThreadedClient, asking: Coroutine[Any, Any, Handle | None]) -> BlockingHandle | None:
    """The lock that `asking` gets, if it gets one. Nothing is left of it when the thread is interrupted."""
    taken = None
    try:
        taken = inside.call(asking, take_back)
        if taken is not None and taken.shared:
            inside.upgrades.note(taken)
        return None if taken is None else BlockingHandle(inside, taken)
    except BaseException:
        inside.give_up(taken)  # interrupted in the last moment
        raise


def take_all(
    inside: ThreadedClient, asking: Coroutine[Any, Any, dict[str, Handle]]
) -> dict[str, BlockingHandle]:
    """As `take`, for several locks at once."""
    taken: dict[str, Handle] = {}
    try:
        taken = inside.call(asking, _take_all_back)
        return {key: BlockingHandle(inside, handle) for key, handle in taken.items()}
    except BaseException:
        for handle in taken.values():
            inside.give_up(handle)
        raise


@contextmanager
def body_under(inside: ThreadedClient) -> Iterator[dict[str, BlockingHandle]]:
    """All that the block puts into the dictionary is given back at its end, at the same time.

    So it is when a signal's exception comes anywhere between the grant and the end of the way out.

    :raises LockLost: on the way out: one of the leases was lost while the body ran.
    """
    held: dict[str, BlockingHandle] = {}
    try:
        try:
            yield held
        except BaseException:
            _give_all_back(inside, held)
            raise
        kept = _give_all_back(inside, held)
    except BaseException:
        for each in held.values():
            inside.give_up(each._handle)
        raise
    for key, each in held.items():
        if not kept[key]:
            raise each._handle._holding.lost_error()


def _give_all_back(inside: ThreadedClient, held: Mapping[str, BlockingHandle]) -> dict[str, bool]:
    """Which of them were held to the end."""
    handles = [each._handle for each in held.values()]
    if not handles:
        return {}
    try:
        kept = inside.call(_together(handles))
    except LockError:
        if not inside.closed:
            raise
        kept = [not handle._holding.was_lost for handle in handles]
    return dict(zip(held, kept, strict=True))


async def _together(handles: list[Handle]) -> list[bool]:
    return await asyncio.gather(*map(give_back, handles))


def _take_all_back(taken: Mapping[str, Handle]) -> None:
    for handle in taken.values():
        take_back(handle)
