"""Waiting for keys to be deleted: any number of one-shot watches on one stream."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from aetcd import rpc

from asyncdlock.backends.etcd.connection import WATCH, EtcdConnection
from asyncdlock.backends.etcd.stream import ReconnectingStream
from asyncdlock.errors import BackendError

_DELETE = rpc.Event.DELETE
_NO_PUTS = rpc.WatchCreateRequest.NOPUT
_PROGRESS = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())
_MAX_REFUSALS = 3
_UNNAMED = -1


class DeletionWatch:
    """One key that somebody waits to see deleted."""

    __slots__ = ("_request", "after", "gone", "id", "key", "on_late")

    def __init__(self, watch_id: int, key: bytes, after: int, on_late: "OnLate") -> None:
        self.id: int = watch_id
        self.key: bytes = key
        self.after: int = after
        """The revision at which the waiter saw the key."""
        self.on_late: OnLate = on_late
        self.gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """`True` when the key was deleted, `False` when only a fresh read can tell."""
        self._request = rpc.WatchRequest(
            create_request=rpc.WatchCreateRequest(
                key=key, start_revision=after + 1, filters=[_NO_PUTS], watch_id=watch_id
            )
        )

    @property
    def request(self) -> Any:
        return self._request

    def wake(self, *, deleted: bool = False) -> None:
        if not self.gone.done():
            self.gone.set_result(deleted)


OnLate = Callable[[DeletionWatch], None]


class DeletionWatcher:
    """Multiplexes watches on one stream.

    The client chooses every watch id and never uses one twice, so that an event can only reach
    the watch it belongs to, however late it comes. A broken stream loses nothing: each watch is
    created again from the revision that its waiter had read.
    """

    def __init__(self, connection: EtcdConnection) -> None:
        self._stream = ReconnectingStream(connection, WATCH, self)
        self._watches: dict[int, DeletionWatch] = {}
        self._ids = count(1)
        self._refusals = 0
        self.events: int = 0
        """Events that the server sent: one for every waiter woken."""

    def __len__(self) -> int:
        return len(self._watches)

    def open(self, key: bytes, *, after: int, on_late: OnLate) -> DeletionWatch:
        """Watch for the deletion of `key` after the revision `after`.

        etcd tells at once what happens from now on, but what happened before it created the watch only
        in rounds of 100 ms. So the watch starts after the revision that was read, not with it; and when
        the store has moved on before the watch is there, `on_late` is called to look at the key itself.
        Two processes that take turns did 20 sections/s without either.
        """
        watch = DeletionWatch(next(self._ids), key, after, on_late)
        self._watches[watch.id] = watch
        self._stream.send(watch.request)
        return watch

    def close(self, watch: DeletionWatch) -> None:
        """Forget a watch, here and on the server; harmless when it is gone already."""
        if self._watches.pop(watch.id, None) is not None:
            self._stream.send(rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=watch.id)))

    def opened(self) -> None:
        for watch in self._watches.values():
            self._stream.send(watch.request)

    def received(self, message: Any) -> None:
        if message.canceled:
            self._ended(message)
        elif message.created:
            self._refusals = 0
            late = self._watches.get(message.watch_id)
            if late is not None and message.header.revision > late.after:
                late.on_late(late)
        self.events += len(message.events)
        if any(event.type == _DELETE for event in message.events):
            watch = self._watches.get(message.watch_id)
            if watch is not None:
                self.close(watch)
                watch.wake(deleted=True)

    def broken(self) -> None:
        pass  # every watch is created again

    def wanted(self) -> bool:
        return bool(self._watches)

    def probe(self) -> Any:
        return _PROGRESS

    async def aclose(self) -> None:
        """End the stream. Whoever still waits gets an error."""
        await self._stream.aclose()
        self._fail("this etcd client is closed")

    def _ended(self, message: Any) -> None:
        """The server ended a watch: by our wish, by compaction, or because it refuses it."""
        if message.compact_revision:
            # What happened since then is lost; a fresh read tells.
            watch = self._watches.pop(message.watch_id, None)
            if watch is not None:
                watch.wake()
        elif message.cancel_reason and (message.watch_id in self._watches or message.watch_id == _UNNAMED):
            # Mostly the token has expired that the stream was opened with: 3.4 says so but not
            # for which watch, 3.5 says that permission is denied. A new stream has a new token.
            self._refusals += 1
            if self._refusals < _MAX_REFUSALS:
                self._stream.restart(sign_in=True)
            else:
                self._fail(f"etcd refused to watch the lock: {message.cancel_reason}")

    def _fail(self, reason: str) -> None:
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            if not watch.gone.done():
                watch.gone.set_exception(BackendError(reason, definite=True))
                watch.gone.exception()  # whoever was cancelled never looks
