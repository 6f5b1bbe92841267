"""A network in memory: each piece of each connection takes a time of its own, and connections break half-way.

TCP keeps the order of bytes within a connection, and so does this: a piece is late, or arrives in parts. When
a connection breaks, what is on it reaches the server up to some byte and no further, perhaps long after the
client has opened another: so requests are lost, cut off, overtaken by later ones and, since they are sent
again, carried out twice.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import hiredis

from tests.schedules.fake_redis import FakeRedis, pushed, requests_in

_USUAL = 0.0005
_APART = 1e-6


class FakeConnection:
    """What `take_over` takes from a connection of redis-py that is open, and both of its ends."""

    protocol = 3

    def __init__(self, network: "Network", number: int) -> None:
        self._network = network
        self._rng = random.Random(f"{network.seed} {number}")
        self._requests = hiredis.Reader()
        self._protocol: Any = None
        self._open = self._served = True
        self._channels: set[bytes] = set()
        self._arrives = {"server": 0.0, "client": 0.0}
        self._on_the_way = 0
        """Pieces to the server that are yet to arrive."""
        self.reader = self._reader = self
        self._writer = self.transport = self

    # What is asked of a reader, a writer and a transport

    def at_eof(self) -> bool:
        return not self._open

    def exception(self) -> None:
        return None

    def is_closing(self) -> bool:
        return not self._open

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        if self._open:
            self._on_the_way += 1
            self._carry("server", data, self._at_server)

    def abort(self) -> None:
        """The client lets go of it."""
        if self._open:
            self._open = False
            self._network.connections.remove(self)
            self._ends_at_server()

    def break_off(self) -> None:
        """The network does, and the client is told at once."""
        if self._open:
            self.abort()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, ConnectionResetError("cut"))

    def _ends_at_server(self) -> None:
        # Some of what is on its way arrives all the same; the rest never does.
        self._served = self._rng.random() < 0.5
        self._loses_after = self._rng.randrange(200)
        if not self._on_the_way or not self._served:
            self._closed_at_server()

    def _closed_at_server(self) -> None:
        self._served = False
        for channel in self._channels:
            self._network.server.listeners[channel].discard(self._tell)
        self._channels.clear()

    def _carry(self, end: str, data: bytes, arrive: Callable[[bytes], None]) -> None:
        """In order, late, and perhaps in two parts."""
        loop = asyncio.get_running_loop()
        cut = self._rng.randrange(1, len(data)) if len(data) > 1 and self._rng.random() < 0.1 else len(data)
        if end == "server" and cut < len(data):
            self._on_the_way += 1
        for part in filter(None, (data[:cut], data[cut:])):
            late = _USUAL * self._rng.random()
            if self._rng.random() < self._network.slow:
                late += self._rng.choice((0.01, 0.2, 1.5)) * self._rng.random()
            # Never at the same time: timers of one time fire in any order.
            self._arrives[end] = max(self._arrives[end] + _APART, loop.time() + late)
            loop.call_at(self._arrives[end], arrive, part)

    def _at_server(self, data: bytes) -> None:
        self._on_the_way -= 1
        if not self._served:
            return
        if not self._open:
            data, self._loses_after = data[: self._loses_after], max(0, self._loses_after - len(data))
        for words in requests_in(self._requests, data):
            self._answer(words)
        if not self._open and not self._on_the_way:
            self._closed_at_server()

    def _answer(self, words: list[bytes]) -> None:
        server = self._network.server
        if words[0].upper() == b"SUBSCRIBE":
            server.listeners.setdefault(words[1], set()).add(self._tell)
            self._channels.add(words[1])
            self._reply(pushed(b"subscribe", words[1], 1))
        else:
            self._reply(server.execute(words))

    def _tell(self, message: bytes) -> None:
        (channel,) = self._channels
        self._reply(pushed(b"message", channel, message))

    def _reply(self, data: bytes) -> None:
        if self._open:
            self._carry("client", data, self._at_client)

    def _at_client(self, data: bytes) -> None:
        if self._open:
            self._protocol.data_received(data)


class Network:
    """One server and the connections to it; `slow`: the share of pieces that are late."""

    def __init__(self, seed: int, slow: float) -> None:
        self.seed = seed
        self.slow = slow
        self.server = FakeRedis()
        self.connections: list[FakeConnection] = []
        self._number = 0

    async def open(self) -> Any:
        """As an `Opener` of the wire."""
        await asyncio.sleep(_USUAL)
        self._number += 1
        connection = FakeConnection(self, self._number)
        self.connections.append(connection)
        return connection
