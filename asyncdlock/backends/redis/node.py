"""One Redis server behind one wire: runs our scripts on it, with the repetitions that they allow."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, Unpack

from asyncdlock._backoff import jittered
from asyncdlock.backends.redis.replies import (
    ForeignData,
    NotNow,
    OutcomeUnknown,
    ReadOnly,
    ScriptMissing,
    foreign_data,
    indefinite,
)
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.backends.redis.stream import pack
from asyncdlock.backends.redis.wire import Opener, Wire, WireOptions
from asyncdlock.errors import BackendError, BackendUnavailable


class Node:
    """Runs scripts on one server.

    Every script of ours may be repeated by its owner with the same effect, so a reply that was
    lost with its connection costs one repetition, not an error.

    | answer                                | what follows                                              |
    |---------------------------------------|-----------------------------------------------------------|
    | NOSCRIPT                              | sent again with its text                                  |
    | connection lost before the reply      | repeated once on a new connection                         |
    | LOADING, BUSY, …                      | repeated for `reconnect_for` seconds                      |
    | READONLY                              | connection dropped: the next one looks for the primary    |
    | any other error reply                 | BackendError                                              |

    An error is definite only if none of the tries can have been carried out.
    """

    def __init__(self, opener: Opener, *, reconnect_for: float = 2.0, **options: Unpack[WireOptions]) -> None:
        self.wire: Wire = Wire(opener, reconnect_for=reconnect_for, **options)
        self._patience = reconnect_for

    @property
    def commands(self) -> int:
        return self.wire.commands

    async def run(self, script: Script, key: str, request: bytes) -> Any:
        """Run `script` by its `request`.

        `key` is the lock that the script is about: it decides nothing here, but in a cluster the node.

        :raises OutcomeUnknown: the script works once only, and perhaps had been carried out before.
        :raises BackendError: see the table above.
        """
        try:
            return await self.wire.send(request)
        except BackendError as error:
            return await self.run_again(error, script, key, request)

    def send(self, script: Script, key: str, request: bytes) -> Awaitable[Any]:
        """The first half of `run`, for the verbs of `redis://`: its errors belong to `run_again`.

        A coroutine less for each of a cycle's two requests is 3 % of its instructions.
        """
        return self.wire.send(request)

    async def run_again(self, error: BackendError, script: Script, key: str, request: bytes) -> Any:
        """The second half of `run`: what `error` allows to be done about it.

        :raises BackendError: as `run` does.
        """
        retry = _Retry(self.wire, self._patience)
        in_full = script.in_full(request)
        while True:
            if isinstance(error, ForeignData):
                error = foreign_data(key, str(error), definite=error.definite)
            await retry.after(error)
            try:
                reply = await self.wire.send(in_full)
            except BackendError as again:
                error = again
            else:
                return known(reply, script, key, retry.certain)

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

    async def subscribe(self, verb: str, channel: str) -> None:
        """Return when the server has confirmed it.

        :raises BackendError: not permitted, or the connection was lost twice.
        """
        retry = _Retry(self.wire, self._patience)
        while True:
            try:
                return await self.wire.subscribe(verb, channel)
            except BackendError as error:
                if "NOPERM" in str(error):
                    raise BackendError(
                        f"{error}. Who waits for a lock is told on a channel of its own: "
                        f"the ACL of this user must permit +{verb.lower()} and &asyncdlock:*",
                        definite=True,
                    ) from error
                await retry.after(error)

    async def aclose(self) -> None:
        await self.wire.aclose()


class _Retry:
    """Whether and when a request that failed is sent again; begins with its first failure."""

    __slots__ = ("_delays", "_give_up", "_lost", "_wire", "certain")

    def __init__(self, wire: Wire, patience: float) -> None:
        self._wire = wire
        self._give_up = time.monotonic() + patience
        self._delays = jittered(0.02, 0.25)
        self._lost = False
        self.certain = True
        """Whether none of the tries can have been carried out."""

    async def after(self, error: BackendError) -> None:
        """Return when the next try may start.

        :raises BackendError: there shall be none.
        """
        self.certain = self.certain and error.definite
        if isinstance(error, ScriptMissing):
            return
        if not error.definite and not self._lost:
            self._lost = True
            return
        if isinstance(error, ReadOnly):
            self._wire.drop("the server became a replica")
        elif isinstance(error, NotNow):
            delay = next(self._delays)
            if time.monotonic() + delay < self._give_up:
                await asyncio.sleep(delay)
                return
        raise error if self.certain else indefinite(error)


def known(reply: Any, script: Script, key: str, certain: bool) -> Any:
    """The reply to a try; `certain`: no earlier one can have been carried out.

    :raises OutcomeUnknown: it does not tell whether an earlier one was.
    """
    if script.once and not certain and not reply:
        raise OutcomeUnknown(
            f"the connection was lost before it was confirmed that {key!r} was given back, and now it is not "
            "ours: it may have been given back, or lost before"
        )
    return reply
