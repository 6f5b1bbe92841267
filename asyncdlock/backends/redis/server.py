"""One Redis primary, alone or found by Sentinel, and the one channel on which it tells us of grants."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Unpack

from asyncdlock.backends.redis.node import Node
from asyncdlock.backends.redis.wire import Opener, Wire, WireOptions
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim

_CHANNEL = "asyncdlock:"


class Server(Node):
    """A Node that is the whole installation."""

    publish_verb = "PUBLISH"
    count_verb = "NUMSUB"
    stays_listening = True

    def __init__(self, opener: Opener, **options: Unpack[WireOptions]) -> None:
        super().__init__(opener, **options)
        # Subscribed first thing on every connection, once it was confirmed on one.
        self._channel: str | None = None
        self._subscribing = asyncio.Lock()
        self.wire.on_open = self._subscribe_again

    async def nodes(self) -> Sequence[Node]:
        return [self]

    def batches(self, keys: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        return [range(start, min(start + most, len(keys))) for start in range(0, len(keys), most)]

    def shard(self, key: str) -> object:
        return None

    def on_message(self, told: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        def pushed(message: list[Any]) -> None:
            if message[0] == b"message":
                told(message[2])

        self.wire.on_push = pushed
        self.wire.on_lost = lost

    def channel_prefix(self, key: str) -> str:
        return _CHANNEL

    def listening(self, claim: Claim) -> bool:
        return self._channel is not None

    async def listen(self, claim: Claim) -> None:
        async with self._subscribing:
            if self._channel is None:
                channel = _CHANNEL + claim.session
                await self.subscribe("SUBSCRIBE", channel)
                self._channel = channel

    def stop_listening(self, claim: Claim) -> None:
        """The one channel stays."""

    async def _subscribe_again(self, wire: Wire) -> None:
        if self._channel is None:
            return
        try:
            await wire.subscribe("SUBSCRIBE", self._channel)
        except BackendUnavailable:
            raise
        except BackendError:
            # Not permitted any more. That ends the waits, whose next look tries it again and gets this error;
            # whoever need not wait can go on.
            self._channel = None
