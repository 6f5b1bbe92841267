"""The client of the fenced resource: contenders write with it, judges read with it.

A guard that turns replies into success and errors is `asyncdlock.fencing.http`; this one shows them.
"""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from harness.resource.address import UNIX, Address
from harness.resource.reply import Meaning, Reply
from harness.resource.wire import CONNECTIONS, Connection, NoReply, NotSent, Pool, Unanswered

__all__ = ["LogIncomplete", "NotSent", "Reply", "ResourceClient", "Unanswered", "UnexpectedReply"]

TIMEOUT = 10.0
"""Seconds without a reply after which a request is given up."""
_LOG_PAGE = 4096
"""Rows of the log that are asked for at a time."""


class UnexpectedReply(Unanswered):
    """A reply with another status than the question can have."""


class LogIncomplete(UnexpectedReply):
    """Rows that were asked for have been dropped by the log's retention."""


class ResourceClient:
    """Speaks to one resource over kept connections. Belongs to one event loop; use as `async with`.

    Nothing is sent twice and no redirect is followed: a reply belongs to the one request that was made.
    Every verb but `put` raises `Unanswered` where there was no reply, or none that could be used.
    """

    def __init__(self, url: str, *, connections: int = CONNECTIONS, timeout: float = TIMEOUT) -> None:
        """At `http://HOST:PORT`, `https://…` or `unix:PATH`. `timeout` seconds bound the wait for a
        connection, and then the wait for a reply.

        :raises ValueError: `url` is none of these.
        """
        self.url = url.rstrip("/")
        self.connections = connections
        """How many requests can be under way at once."""
        self._pool = Pool(Address.of(url), timeout=timeout, connections=connections)
        self.take = self._pool.take
        """A connection for `put`, if one is idle."""
        parts = urlsplit("http://localhost" if url.startswith(UNIX) else url)
        authorization = ""
        if parts.username is not None:
            words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Authorization: Basic {b64encode(words.encode()).decode()}\r\n"
        self._root = parts.path.rstrip("/")
        self._common = f" HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n{authorization}"
        # Most keys come again.
        self._put_head = lru_cache(maxsize=10_000)(lambda key: self._head("PUT", _path(key)))

    async def __aenter__(self) -> "ResourceClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection; requests in flight get no reply."""
        await self._pool.aclose()

    @property
    def idle(self) -> int:
        """Connections that are open and not in use."""
        return self._pool.idle

    async def connect(self) -> Connection:
        """A connection for `put`, opened or waited for.

        :raises NotSent: there is none; nothing was written.
        """
        try:
            return await self._pool.connection()
        except NotSent as error:
            raise NotSent(f"no connection to the resource: {error}") from None

    async def put(
        self,
        key: str,
        body: bytes = b"x",
        *,
        fence: object = None,
        owner: str | None = None,
        on: Connection | None = None,
        **headers: object,
    ) -> Reply:
        """Write `body` under `fence`, or without one. A failure is a `Reply`, never an exception.

        Without a reply the write is `unknown`: it may have happened. With a connection that was taken for it,
        the request leaves before anything else runs. `if_match='"1"'`, `x_fence_seq=3` and the like become
        headers.

        :raises ValueError: `owner` cannot be a header's value.
        """
        lines = "" if fence is None else f"X-Fence-Token: {fence}\r\n"
        if owner is not None:
            if not (owner.isascii() and owner.isprintable()):
                raise ValueError(f"an owner is printable ASCII, not {owner!r}")
            lines += f"X-Fence-Owner: {owner}\r\n"
        if headers:
            lines += _lines(_named(headers))
        request = f"{self._put_head(key)}{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body
        try:
            return await (on or self.take() or await self.connect()).exchange(request)
        except NotSent as error:
            return Reply(0, missing=Meaning("failed", error=str(error)))
        except NoReply as error:
            return Reply(0, missing=Meaning("unknown", error=f"no reply of the resource: {error}"))

    async def get(self, key: str, *, fence: object = None, **headers: object) -> Reply:
        """Read; with a fence, fenced."""
        token = {} if fence is None else {"X-Fence-Token": str(fence)}
        return await self.send("GET", _path(key), token | _named(headers))

    async def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Reply:
        """One request, the path exactly as given. Not HEAD, whose reply announces a body that never comes."""
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{self._head(method, path)}{_lines(headers or {})}{length}\r\n"
        connection = self.take() or await self.connect()
        return await connection.exchange(head.encode() + (body or b""))

    async def healthz(self) -> Reply:
        return await self.send("GET", "/healthz")

    async def rows(self, after: int = 0, *, whole: bool = True) -> AsyncIterator[dict[str, Any]]:
        """The rows of the log with a larger `seq`, as they arrive; with `whole`, or none.

        :raises LogIncomplete: the first of them have been dropped.
        :raises UnexpectedReply: it shows no log.
        """
        while True:
            reply = await self._ask(f"/log?after={after}&limit={_LOG_PAGE}")
            oldest = int(reply.headers.get("X-Log-From", "1"))
            if whole and oldest > after + 1:
                raise LogIncomplete(
                    f"the resource's log begins at {oldest}: the rows from {after + 1} are gone"
                )
            lines = reply.body.splitlines()
            for line in lines:
                row = json.loads(line)
                after = _following(row, after)
                yield row
            if len(lines) < _LOG_PAGE:
                return

    async def log(self, after: int = 0) -> list[dict[str, Any]]:
        """As `rows`, all at once."""
        return [row async for row in self.rows(after)]

    async def log_of(self, key: str) -> list[dict[str, Any]]:
        """The rows of one key."""
        return [row async for row in self.rows() if row["key"] == key]

    async def metric(self, name: str) -> float:
        """One sample of /metrics, labels as written there.

        :raises UnexpectedReply: there is no such sample.
        """
        reply = await self._ask("/metrics")
        for line in reply.body.decode().splitlines():
            sample, _, value = line.rpartition(" ")
            if sample == name:
                return float(value)
        raise UnexpectedReply(f"the resource has no metric {name}")

    async def _ask(self, path: str) -> Reply:
        reply = await self.send("GET", path)
        if reply.status != 200:
            raise UnexpectedReply(f"the resource answered {reply.status} to {path}")
        return reply

    def _head(self, method: str, path: str) -> str:
        return f"{method} {self._root}{path}{self._common}"


def _following(row: object, after: int) -> int:
    """The number of a row of the log, where it comes after another.

    :raises UnexpectedReply: it does not, or has none: whoever went on asking would not come to an end.
    """
    number = row.get("seq") if isinstance(row, dict) else None
    if not isinstance(number, int) or number <= after:
        raise UnexpectedReply(f"its log has number {number!r} after {after}")
    return number


def _path(key: str) -> str:
    return f"/r/{quote(key, safe='')}"


def _named(words: Mapping[str, object]) -> dict[str, str]:
    return {name.replace("_", "-"): str(value) for name, value in words.items()}


def _lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
