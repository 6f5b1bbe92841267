"""Waiting for keys to be deleted: any number of one-shot watches on one stream."""

import asyncio
from itertools import count
from typing import Any

from aetcd import rpc

from asyncdlock.backends.etcd.connection import WATCH, Connection
from asyncdlock.backends.etcd.stream import Stream
from asyncdlock.errors import BackendError

_DELETE = rpc.Event.DELETE
_NO_PUTS = rpc.WatchCreateRequest.NOPUT


class Watch:
    """One key that somebody waits to see deleted."""

    __slots__ = ("_request", "gone", "id")

    def __init__(self, watch_id: int, key: bytes, revision: int) -> None:
        self.id = watch_id
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the key was deleted, or when only a fresh read can tell."""
        self._request = rpc.WatchRequest(
            create_request=rpc.WatchCreateRequest(
                key=key, start_revision=revision, filters=[_NO_PUTS], watch_id=watch_id
            )
        )

    @property
    def request(self) -> Any:
        return self._request

    def wake(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


class Watcher:
    """Multiplexes watches on one stream.

    The client chooses every watch id and never uses one twice, so that an event can only reach
    the watch it belongs to, however late it comes. A broken stream loses nothing: each watch is
    created again from the revision that its waiter had read.
    """

    def __init__(self, connection: Connection) -> None:
        self._stream = Stream(connection, WATCH, self)
        self._watches: dict[int, Watch] = {}
        self._ids = count(1)
        self.events = 0
        """Events that the server sent: one for every waiter woken."""

    def __len__(self) -> int:
        return len(self._watches)

    def open(self, key: bytes, revision: int) -> Watch:
        """Watch for the deletion of `key` at `revision` or later."""
        watch = Watch(next(self._ids), key, revision)
        self._watches[watch.id] = watch
        self._stream.send(watch.request)
        return watch

    def close(self, watch: Watch) -> None:
        """Forget a watch, here and on the server; harmless when it is gone already."""
        if self._watches.pop(watch.id, None) is not None:
            self._stream.send(rpc.WatchRequest(cancel_request=rpc.WatchCancelRequest(watch_id=watch.id)))

    def opened(self) -> None:
        for watch in self._watches.values():
            self._stream.send(watch.request)

    def received(self, message: Any) -> None:
        if message.canceled:
            self._refused(message)
            return
        self.events += len(message.events)
        if any(event.type == _DELETE for event in message.events):
            watch = self._watches.get(message.watch_id)
            if watch is not None:
                self.close(watch)
                watch.wake()

    def broken(self, reason: str) -> bool:
        return bool(self._watches)

    async def aclose(self) -> None:
        """End the stream. Whoever still waits is told so."""
        await self._stream.aclose()
        for watch in self._watches.values():
            if not watch.gone.done():
                watch.gone.set_exception(BackendError("this etcd client is closed", definite=True))
        self._watches.clear()

    def _refused(self, message: Any) -> None:
        """The server ended a watch: by our wish, by compaction, or because it is not allowed."""
        watch = self._watches.get(message.watch_id)
        if watch is None:
            return
        reason = message.cancel_reason
        if "auth" in reason:
            # The stream carries the token of the moment it was opened.
            self._stream.restart()
        elif message.compact_revision or not reason:
            del self._watches[watch.id]
            watch.wake()
        else:
            del self._watches[watch.id]
            if not watch.gone.done():
                watch.gone.set_exception(
                    BackendError(f"etcd refused to watch the lock: {reason}", definite=True)
                )
