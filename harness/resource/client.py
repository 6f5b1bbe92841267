"""The client of the fenced resource: whole replies, whatever their status, for those who judge them.

A guard that turns replies into success and errors is `asyncdlock.fencing.http`; this one shows them.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from asyncdlock.fencing.http import OneShotBody

_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
_UNIX = "unix:"


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply as it came."""

    status: int
    body: bytes
    headers: CIMultiDictProxy[str]

    @property
    def json(self) -> Any:
        """The document in the body.

        :raises ValueError: it holds none.
        """
        if not self.headers.get("Content-Type", "").startswith("application/json"):
            raise ValueError(f"the reply is no JSON: {self.status} {self.body[:200]!r}")
        return json.loads(self.body)

    @property
    def fence(self) -> int:
        """The fence that the value was written with; 0 if none."""
        return int(self.headers.get("X-Fence-Token", "0"))

    @property
    def max_fence(self) -> int:
        """The highest fence that the resource has seen for the key."""
        return int(self.headers.get("X-Max-Fence", "0"))


class ResourceClient:
    """Speaks to one resource. Every verb raises `aiohttp.ClientError` or `TimeoutError` without a reply.

    Nothing is sent twice and no redirect is followed: a reply belongs to the one request that was made.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = "http://localhost" if url.startswith(_UNIX) else url.rstrip("/")
        self._session = session

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, url: str, *, connections: int = 0, timeout: aiohttp.ClientTimeout = _TIMEOUT
    ) -> AsyncIterator["ResourceClient"]:
        """A client of its own `connections` (0: as many as it takes) to `http://HOST:PORT` or `unix:PATH`."""
        connector: aiohttp.BaseConnector
        if url.startswith(_UNIX):
            connector = aiohttp.UnixConnector(url.removeprefix(_UNIX), limit=connections)
        else:
            connector = aiohttp.TCPConnector(limit=connections)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            yield cls(url, session)

    async def put(
        self, key: str, body: bytes | AsyncIterator[bytes] = b"x", *, token: object = None, **headers: object
    ) -> Reply:
        """Write; `if_match='"1"'`, `x_fence_seq=3` and the like become headers."""
        return await self.send("PUT", _path(key), _headers(token, headers), body)

    async def get(self, key: str, *, token: object = None, **headers: object) -> Reply:
        """Read; with a token, fenced."""
        return await self.send("GET", _path(key), _headers(token, headers))

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
    ) -> Reply:
        """One request, the path exactly as given."""
        data = OneShotBody(body) if isinstance(body, bytes) else body
        url = URL(self.url + path, encoded=True)
        async with self._session.request(
            method, url, headers=headers, data=data, allow_redirects=False
        ) as reply:
            return Reply(reply.status, await reply.read(), reply.headers)

    async def healthz(self) -> Reply:
        return await self.send("GET", "/healthz")

    async def rows(self, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """The rows of the log with a larger `seq`, as they arrive.

        :raises LogIncomplete: the first of them have been dropped.
        """
        async with self._session.get(f"{self.url}/log", params={"after": str(after)}) as reply:
            reply.raise_for_status()
            oldest = int(reply.headers.get("X-Log-From", "1"))
            if oldest > after + 1:
                raise LogIncomplete(
                    f"the resource's log begins at {oldest}: the rows from {after + 1} are gone"
                )
            async for line in reply.content:
                yield json.loads(line)

    async def log(self, after: int = 0) -> list[dict[str, Any]]:
        """As `rows`, all at once."""
        return [row async for row in self.rows(after)]

    async def log_of(self, key: str) -> list[dict[str, Any]]:
        """The rows of one key."""
        return [row async for row in self.rows() if row["key"] == key]

    async def metric(self, name: str) -> float:
        """One sample of /metrics, labels as written there.

        :raises ValueError: there is no such sample.
        """
        answer = await self.send("GET", "/metrics")
        for line in answer.body.decode().splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == name:
                return float(value)
        raise ValueError(f"the resource has no metric {name}")


class LogIncomplete(ValueError):
    """Rows that were asked for have been dropped by the log's retention."""


def _path(key: str) -> str:
    return f"/r/{quote(key, safe='')}"


def _headers(token: object, others: Mapping[str, object]) -> CIMultiDict[str]:
    headers = CIMultiDict({name.replace("_", "-"): str(value) for name, value in others.items()})
    if token is not None:
        headers["X-Fence-Token"] = str(token)
    return headers
