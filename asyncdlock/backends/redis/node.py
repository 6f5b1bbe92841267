"""One Redis server behind one wire: runs our scripts on it, with the repetitions that they allow."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Unpack

from asyncdlock.backends.redis.replies import ReadOnly, ScriptMissing
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redis.stream import pack
from asyncdlock.backends.redis.wire import Opener, Wire, WireOptions
from asyncdlock.errors import BackendError, BackendUnavailable


class Node:
    """Runs scripts on one server.

    Every script of ours may be repeated by its owner with the same effect, so a reply that was
    lost with its connection costs one repetition, not an error. An empty reply to a repetition means
    that the first request had done the work; `Script.done` says what to tell the caller then.

    | answer                                | what follows                                   |
    |---------------------------------------|------------------------------------------------|
    | NOSCRIPT                              | sent again with its text, once                 |
    | connection lost before the reply      | repeated once on a new connection              |
    | READONLY                              | connection dropped, the next one looks anew    |
    | LOADING, BUSY, …                      | BackendUnavailable, definite                   |
    | any other error reply                 | BackendError, definite                         |
    """

    def __init__(self, opener: Opener, *, reconnect_for: float = 2.0, **options: Unpack[WireOptions]) -> None:
        self.wire = Wire(opener, reconnect_for=reconnect_for, **options)

    @property
    def commands(self) -> int:
        return self.wire.commands

    async def run(self, script: Script, key: str, request: bytes) -> Any:
        """Run `script` by its `request`.

        `key` is the lock that the script is about: it decides nothing here, but in a cluster the node.

        :raises BackendError: see the table above.
        """
        try:
            return await self.send(script, key, request)
        except BackendError as error:
            return await self.mend(error, script, key, request)

    def send(self, script: Script, key: str, request: bytes) -> Awaitable[Any]:
        """The first half of `run`, for whoever cannot spare a coroutine: its errors belong to `mend`."""
        return self.wire.send(request)

    async def mend(self, error: BackendError, script: Script, key: str, request: bytes) -> Any:
        """The second half: what `error` allows to be done about it.

        :raises BackendError: nothing, or it did not help.
        """
        if isinstance(error, ScriptMissing):
            return await self.wire.send(script.in_full(request))
        if isinstance(error, ReadOnly):
            self.wire.drop("the server became a replica")
        if error.definite:
            raise error
        try:
            return await self.wire.send(script.in_full(request)) or script.done
        except BackendUnavailable as again:
            # Also when this try certainly failed, the first one may have been carried out.
            raise BackendUnavailable(str(again), definite=False) from error

    async def run_asking(self, script: Script, request: bytes) -> Any:
        """Run `script` for a slot that is on its way to this node.

        :raises BackendError: as `run` does; not repeated.
        """
        await self.wire.ready()
        # Side by side on the wire: ASKING holds for the one command that follows it.
        asked = self.wire.post(pack(("ASKING",)))
        answer = self.wire.post(script.in_full(request))
        if asked is None or answer is None:
            raise BackendUnavailable("the connection is busy", definite=True)
        await asyncio.wait((asked, answer))
        asked.exception()
        return answer.result()

    async def aclose(self) -> None:
        await self.wire.aclose()
