"""A client on aiohttp for resources that speak `X-Fence-Token`, such as `python -m harness resource`."""

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from asyncdlock.fencing._resource import (
    ResourceError,
    Sign,
    UnknownOutcome,
    Value,
    check_written,
    path_of,
    unsigned,
    value_of,
    write_headers,
)

__all__ = ["FencedHttp", "OneShotBody", "ResourceError", "UnknownOutcome", "Value"]


class OneShotBody(aiohttp.BytesPayload):
    """A body that is sent once.

    aiohttp sends a PUT again by itself when a kept connection turns out to be closed, though the first one
    may have been carried out. Nobody could then tell which of the two an answer belongs to.
    """

    @property
    def consumed(self) -> bool:
        """Whether it was sent: then aiohttp does not send it once more."""
        return self._sent

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._sent = False
        self.withheld: bool = False
        """Whether it should have been sent once more, and was not."""

    async def write(self, writer: AbstractStreamWriter) -> None:
        """:raises aiohttp.ClientConnectionError: it was sent before."""
        self._send()
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """:raises aiohttp.ClientConnectionError: it was sent before."""
        self._send()
        await super().write_with_length(writer, content_length)

    def _send(self) -> None:
        if self._sent:
            self.withheld = True
            raise aiohttp.ClientConnectionError("the body was sent before, on a connection that was lost")
        self._sent = True


class FencedHttp:
    """Reads and writes values under the fence of a lock.

    `session` stays the caller's: this neither opens nor closes connections of its own. A failed connection
    raises what the session raises (`aiohttp.ClientError`, `TimeoutError`). `sign` makes tokens for a
    resource that asks for signed ones: `FenceSigner.sign`.
    """

    def __init__(self, base_url: str, session: aiohttp.ClientSession, *, sign: Sign = unsigned) -> None:
        self._base = base_url.rstrip("/")
        self._session = session
        self._sign = sign

    async def put(self, key: str, body: bytes, *, fence: int, seq: int = 0, repeat: bool = False) -> None:
        """Store `body`, unless a later holder of the lock has been here.

        A holder that writes more than once numbers its writes upwards with `seq`. A call whose reply was
        lost may be repeated, with `repeat`: the resource recognises what it has accepted, also when others
        have written since. A kept connection that turns out to be closed is such a case, and is
        repeated here, once.

        :raises StaleFence: the lock has passed on; nothing was stored.
        :raises UnknownOutcome: the lock has passed on; a repeated write may have been stored before that.
        :raises ResourceError: the request was refused for another reason, or the resource failed.
        :raises aiohttp.ClientError: no reply. Then, and when cancelled, the write may have happened.
        """
        once = OneShotBody(body)
        try:
            await self._put(key, once, fence, seq, repeat=repeat)
        except aiohttp.ClientConnectorError:
            raise  # no connection, hence nothing that was lost with one
        except aiohttp.ClientConnectionError as error:
            # Before 3.14.5 aiohttp tries to send it again, and tells of that instead of the loss.
            lost = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
            if not lost and not once.withheld:
                raise
            await self._put(key, OneShotBody(body), fence, seq, repeat=True)

    async def _put(self, key: str, body: OneShotBody, fence: int, seq: int, *, repeat: bool) -> None:
        headers = write_headers(self._sign(key, fence), seq, repeat=repeat)
        async with self._session.put(
            self._url(key), data=body, headers=headers, allow_redirects=False
        ) as response:
            check_written(key, fence, response.status, await response.read(), repeat=repeat)

    async def get(self, key: str, *, fence: int | None = None) -> Value:
        """The value. With a `fence`, older holders can no longer write once this returns.

        A read-modify-write is only safe if its read carries the fence as well: otherwise an older
        holder may write between that read and the write that is based on it.

        :raises StaleFence: the lock has passed on.
        :raises ResourceError: the request was refused for another reason, the resource failed, or it
            does not fence reads.
        :raises aiohttp.ClientError: no reply.
        """
        headers = {} if fence is None else {"X-Fence-Token": self._sign(key, fence)}
        async with self._session.get(self._url(key), headers=headers, allow_redirects=False) as response:
            return value_of(key, fence, response.status, response.headers, await response.read())

    def _url(self, key: str) -> URL:
        return URL(self._base + path_of(key), encoded=True)
