"""One Redis primary, alone or found by Sentinel, and the one channel on which it tells us of grants."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from asyncdlock.backends.redis.node import Node
from asyncdlock.backends.redis.wire import Opener, Wire, WireOptions
from asyncdlock.types import Claim

_CHANNEL = "asyncdlock:"


class Server(Node):
    """A Node that is the whole installation."""

    publish_verb = "PUBLISH"
    count_verb = "NUMSUB"

    def __init__(self, opener: Opener, **options: Unpack[WireOptions]) -> None:
        super().__init__(opener, **options)
        self._session: str | None = None
        self.wire.on_open = self._subscribe

    def batches(self, keys: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        return [range(start, min(start + most, len(keys))) for start in range(0, len(keys), most)]

    def on_message(self, told: Callable[[str], None], lost: Callable[[], None]) -> None:
        def pushed(message: list[Any]) -> None:
            if message[0] == b"message":
                told(message[2].decode())

        self.wire.on_push = pushed
        self.wire.on_lost = lost

    def channel_prefix(self, key: str) -> str:
        return _CHANNEL

    def listening(self, claim: Claim) -> bool:
        return self._session is not None

    async def listen(self, claim: Claim) -> None:
        # One channel for all keys, from now on subscribed first thing on every connection.
        self._session = claim.session
        if self.wire.is_open:
            await self._subscribe(self.wire)

    def stop_listening(self, claim: Claim) -> None:
        """The one channel stays."""

    async def _subscribe(self, wire: Wire) -> None:
        if self._session is not None:
            await wire.subscribe("SUBSCRIBE", _CHANNEL + self._session)
