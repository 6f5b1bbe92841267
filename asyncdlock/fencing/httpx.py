"""A client on httpx for resources that speak `X-Fence-Token`, as `asyncdlock.fencing.http` is on aiohttp."""

import httpx

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

__all__ = ["FencedHttpx", "ResourceError", "UnknownOutcome", "Value"]

# A kept connection turned out to be closed, perhaps after the request had been carried out.
_LOST = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


class FencedHttpx:
    """Reads and writes values under the fence of a lock.

    `client` stays the caller's: this neither opens nor closes connections of its own. A failed connection
    raises what the client raises (`httpx.HTTPError`). `sign` makes tokens for a resource that asks for signed
    ones: `FenceSigner.sign`.
    """

    def __init__(self, base_url: str, client: httpx.AsyncClient, *, sign: Sign = unsigned) -> None:
        self._base = base_url.rstrip("/")
        self._client = client
        self._sign = sign

    async def put(self, key: str, body: bytes, *, fence: int, seq: int = 0, repeat: bool = False) -> None:
        """As `FencedHttp.put`: a reply that was lost with its connection is asked for again, once.

        :raises StaleFence, UnknownOutcome, ResourceError: as `FencedHttp.put` does.
        :raises httpx.HTTPError: no reply. Then, and when cancelled, the write may have happened.
        """
        try:
            await self._put(key, body, fence, seq, repeat=repeat)
        except _LOST:
            await self._put(key, body, fence, seq, repeat=True)

    async def _put(self, key: str, body: bytes, fence: int, seq: int, *, repeat: bool) -> None:
        headers = write_headers(self._sign(key, fence), seq, repeat=repeat)
        answer = await self._client.put(
            self._base + path_of(key), content=body, headers=headers, follow_redirects=False
        )
        check_written(key, fence, answer.status_code, answer.content, repeat=repeat)

    async def get(self, key: str, *, fence: int | None = None) -> Value:
        """As `FencedHttp.get`.

        :raises StaleFence, ResourceError: as `FencedHttp.get` does.
        :raises httpx.HTTPError: no reply.
        """
        headers = {} if fence is None else {"X-Fence-Token": self._sign(key, fence)}
        answer = await self._client.get(self._base + path_of(key), headers=headers, follow_redirects=False)
        return value_of(key, fence, answer.status_code, answer.headers, answer.content)
