"""What the tests speak to a resource with: whole answers, and single bytes where it matters."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harness.resource import ResourceProcess


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: CIMultiDictProxy[str]

    @property
    def json(self) -> Any:
        assert self.headers["Content-Type"].startswith("application/json"), self
        return json.loads(self.body)


class Client:
    def __init__(self, node: ResourceProcess, session: aiohttp.ClientSession) -> None:
        self.node = node
        self._session = session

    @classmethod
    @asynccontextmanager
    async def of(cls, node: ResourceProcess) -> AsyncIterator["Client"]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield cls(node, session)

    async def put(
        self, key: str, body: bytes | AsyncIterator[bytes] = b"x", *, token: object = None, **headers: object
    ) -> Answer:
        """PUT; `if_match='"1"'` and the like become headers."""
        return await self.send("PUT", f"/r/{quote(key, safe='')}", _headers(token, headers), body)

    async def get(self, key: str, *, token: object = None, **headers: object) -> Answer:
        return await self.send("GET", f"/r/{quote(key, safe='')}", _headers(token, headers))

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
    ) -> Answer:
        """One request, the path exactly as given."""
        url = URL(self.node.url + path, encoded=True)
        async with self._session.request(method, url, headers=headers, data=body) as response:
            return Answer(response.status, await response.read(), response.headers)

    async def log(self, after: int = 0) -> list[dict[str, Any]]:
        answer = await self.send("GET", f"/log?after={after}")
        assert answer.status == 200
        return [json.loads(line) for line in answer.body.splitlines()]

    async def log_of(self, key: str) -> list[dict[str, Any]]:
        return [row for row in await self.log() if row["key"] == key]

    async def metric(self, name: str) -> float:
        """One sample of /metrics, labels as written there."""
        answer = await self.send("GET", "/metrics")
        samples = [line.rpartition(" ") for line in answer.body.decode().splitlines()]
        return next(float(value) for sample, _, value in samples if sample == name)


def _headers(token: object, others: Mapping[str, object]) -> CIMultiDict[str]:
    headers = CIMultiDict({name.replace("_", "-"): str(value) for name, value in others.items()})
    if token is not None:
        headers["X-Fence-Token"] = str(token)
    return headers


async def exchange(node: ResourceProcess, request: bytes, *, within: float = 60.0) -> bytes:
    """Send these bytes on a connection of their own; all that comes back until it is closed."""
    reader, writer = await asyncio.open_connection(node.host, node.port)
    try:
        writer.write(request)
        async with asyncio.timeout(within):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
