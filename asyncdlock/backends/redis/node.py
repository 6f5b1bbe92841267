"""One Redis server behind one wire: runs our scripts on it, with the repetitions that they allow."""

import asyncio
from typing import Any, Unpack

from asyncdlock.backends.redis.replies import ReadOnly, ScriptMissing
from asyncdlock.backends.redis.requests import Arguments
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redis.stream import pack
from asyncdlock.backends.redis.wire import Opener, Wire, WireOptions
from asyncdlock.errors import BackendUnavailable


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

    async def run(self, script: Script, key: str, arguments: Arguments) -> Any:
        """Run `script` with arguments of `requests.py`.

        `key` is the lock that the script is about: it decides nothing here, but in a cluster the node.

        :raises BackendError: see the table above.
        """
        try:
            return await self.wire.send(script.by_name(arguments))
        except ScriptMissing:
            return await self.wire.send(script.in_full(arguments))
        except ReadOnly:
            self.wire.drop("the server became a replica")
            raise
        except BackendUnavailable as error:
            if error.definite:
                raise
            return await self._repeat(script, arguments, error)

    async def _repeat(self, script: Script, arguments: Arguments, first: BackendUnavailable) -> Any:
        try:
            return await self.wire.send(script.in_full(arguments)) or script.done
        except BackendUnavailable as error:
            # Also when this try certainly failed, the first one may have been carried out.
            raise BackendUnavailable(str(error), definite=False) from first

    async def run_asking(self, script: Script, arguments: Arguments) -> Any:
        """Run `script` for a slot that is on its way to this node.

        :raises BackendError: as `run` does; not repeated.
        """
        await self.wire.ready()
        # Side by side on the wire: ASKING holds for the one command that follows it.
        asked = self.wire.post(pack(("ASKING",)))
        answer = self.wire.post(script.in_full(arguments))
        if asked is None or answer is None:
            raise BackendUnavailable("the connection is busy", definite=True)
        await asyncio.wait((asked, answer))
        asked.exception()
        return answer.result()

    async def aclose(self) -> None:
        await self.wire.aclose()
