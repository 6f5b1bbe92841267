"""A lean HTTP/1.1 client for many small requests to one server: kept connections, exact outcomes.

Speed is bought here: a fenced PUT takes a fifth of the CPU that aiohttp's client takes for it
(`python -m bench.harness`). It does one request at a time on a connection and knows no redirects, no
cookies and no second tries: what was sent was sent once.
"""

import asyncio
import ssl
from collections import deque
from functools import partial
from time import monotonic
from typing import cast

import httptools

from harness.resource.address import Address
from harness.resource.reply import Reply

CONNECTIONS = 256
"""The most that one pool keeps open."""
IDLE_LIMIT = 15.0
"""Seconds after which an unused connection is not used again. Servers close theirs later, aiohttp's
after 75 s: a request that meets the closing half-way has no known outcome."""
MAX_REPLY = 1 << 24
"""Bytes of a reply beyond which it is not read on."""


class Unanswered(OSError):
    """There is no reply that could be used: one sentence that says why."""


class NotSent(Unanswered):
    """No byte of the request has left: it certainly was not carried out."""


class NoReply(Unanswered):
    """The request was sent and no whole reply came: it may have been carried out."""


class Connection(asyncio.Protocol):
    """One connection; between two requests it lies in its pool."""

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Reply] | None = None
        self._received = 0
        self._head = b""
        """The first of what was received: it holds the headers."""
        self._body: list[bytes] = []
        self._status = 0
        """Of a reply that has come in whole; 0 until then."""
        self._keep = False
        self.last_used = monotonic()

    async def exchange(self, request: bytes) -> Reply:
        """Send `request` before anything else runs, and wait for its reply.

        The connection then belongs to the pool again, or is closed. A cancellation closes it; the
        request may have been carried out.

        :raises NotSent: the connection was closed meanwhile.
        :raises NoReply: no whole reply came in time.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotSent("the connection has been closed")
        pool = self._pool
        waiter: asyncio.Future[Reply] = pool.loop.create_future()
        self._waiter = waiter
        self.last_used = at = monotonic()
        pool.expect_reply(self, at)
        transport.write(request)
        try:
            return await waiter
        except asyncio.CancelledError:
            if self._waiter is waiter:  # else the reply is in, and the connection may be in other hands
                self.fail("the caller was cancelled")
            raise

    def usable(self, at: float) -> bool:
        """Whether it is open and has not been idle for too long."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and at - self.last_used < IDLE_LIMIT

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def fail(self, reason: str) -> None:
        """Give up the reply that is due, and the connection with it."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._pool.reply_over(self)
            if not waiter.done():
                waiter.set_exception(NoReply(reason))
        self.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self._pool.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.fail(f"the connection was closed before the reply was complete{f': {error}' if error else ''}")
        self._pool.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            self.abort()  # nobody asked: it must not be taken for the reply to the next request
            return
        if not self._received or b"\r\n\r\n" not in self._head:
            self._head = self._head + data if self._received else data
        self._received += len(data)
        if self._received > MAX_REPLY:
            self.fail(f"the reply is longer than {MAX_REPLY} bytes")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep = False
            if not self._status:
                self.fail(f"the reply is not HTTP/1.1: {error}")
                return
        if self._status:
            self._replied()

    def _replied(self) -> None:
        waiter, self._waiter = self._waiter, None
        reply = Reply(self._status, b"".join(self._body), self._head)
        self._received = self._status = 0
        self._body.clear()
        self._pool.reply_over(self)
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)
        if self._keep:
            self._pool.give_back(self)
        else:
            self.abort()

    # What the parser calls.

    def on_body(self, body: bytes) -> None:
        if not self._status:
            self._body.append(body)

    def on_message_complete(self) -> None:
        if self._status:
            self._keep = False  # more than was asked for: the first counts, the rest goes
            return
        status = self._parser.get_status_code()
        if status < 200:  # a remark on the way to the reply
            self._received = 0
        else:
            self._status = status
            # To be asked now: the parser forgets it when it goes on to the next message.
            self._keep = self._parser.should_keep_alive()


class Pool:
    """Connections to one server, opened when they are needed and kept. Belongs to one event loop."""

    def __init__(self, address: Address, *, timeout: float, connections: int = CONNECTIONS) -> None:
        """`timeout` seconds bound the wait for a connection, and then the wait for a reply."""
        self.loop = asyncio.get_running_loop()
        self.connections = connections
        self._address = address
        self._timeout = timeout
        self._open: set[Connection] = set()
        self._opening = 0
        self._idle: list[Connection] = []
        self._wanted: deque[asyncio.Future[Connection | None]] = deque()
        # In order of time, as all wait equally long: the first is the next to time out.
        self._expecting: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    @property
    def idle(self) -> int:
        """Connections that are open and not in use."""
        return len(self._idle)

    def take(self) -> Connection | None:
        """A connection that is there; `None` when all are in use. Use it before anything else runs."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.usable(monotonic()):
                return connection
            connection.abort()
        return None

    async def connection(self) -> Connection:
        """A connection that is there, a new one, or the next that is given back. Use it at once.

        :raises NotSent: there was none in time.
        """
        try:
            async with asyncio.timeout(self._timeout):
                return await self._any()
        except TimeoutError:
            raise NotSent(f"none within {self._timeout:g} s") from None
        except OSError as error:
            raise NotSent(str(error) or type(error).__name__) from None

    async def aclose(self) -> None:
        """Close every connection; requests in flight get no reply."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    async def _any(self) -> Connection:
        while True:
            connection = self.take()
            if connection is not None:
                return connection
            if len(self._open) + self._opening < self.connections:
                return await self._dial()
            wanted: asyncio.Future[Connection | None] = self.loop.create_future()
            self._wanted.append(wanted)
            try:
                connection = await wanted
            except asyncio.CancelledError:
                if wanted.done() and not wanted.cancelled():
                    self._pass_on(wanted.result())
                raise
            if connection is not None and connection.usable(monotonic()):
                return connection

    async def _dial(self) -> Connection:
        address = self._address
        factory = partial(Connection, self)
        self._opening += 1
        try:
            if address.path is not None:
                return (await self.loop.create_unix_connection(factory, address.path))[1]
            tls = ssl.create_default_context() if address.tls else None
            return (await self.loop.create_connection(factory, address.host, address.port, ssl=tls))[1]
        except BaseException:
            self._pass_on(None)
            raise
        finally:
            self._opening -= 1

    # What connections tell their pool.

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)
        if self._ended:
            connection.abort()

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._pass_on(None)  # there is room for another

    def give_back(self, connection: Connection) -> None:
        """It is idle: for whoever has waited longest, or for later."""
        if self._wanted:
            self._pass_on(connection)
        else:
            self._idle.append(connection)

    def expect_reply(self, connection: Connection, at: float) -> None:
        self._expecting[connection] = at + self._timeout
        if self._timer is None:
            self._timer = self.loop.call_later(self._timeout, self._look_for_late)

    def reply_over(self, connection: Connection) -> None:
        self._expecting.pop(connection, None)

    def _pass_on(self, connection: Connection | None) -> None:
        """Give it to whoever has waited longest; without one, that one may open another."""
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(connection)
                return
        if connection is not None:
            self._idle.append(connection)

    def _look_for_late(self) -> None:
        self._timer = None
        at = monotonic()
        while self._expecting:
            connection, deadline = next(iter(self._expecting.items()))
            if deadline > at:
                self._timer = self.loop.call_later(max(deadline - at, 0.001), self._look_for_late)
                return
            connection.fail(f"it did not answer within {self._timeout:g} s")
