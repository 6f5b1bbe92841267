"""The contender's side of the fenced resource: one PUT with a fence, and what its reply means.

All contenders of a process share one pool of connections.
"""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from harness.history import WriteOutcome
from harness.resource.address import Address
from harness.resource.wire import CONNECTIONS, Connection, NoReply, NotSent, Pool, Response

WRITE_TIMEOUT = 10.0
"""Seconds without a reply after which a write counts as unknown."""


class Reply(NamedTuple):
    """What became of a write."""

    write: WriteOutcome
    seen: int | None = None
    """The highest fence that the resource has accepted, when it refused ours."""
    error: str | None = None


_ACCEPTED = Reply("accepted")


class FencedWriter:
    """Writes to the resource at `base_url`; see `open_writer`."""

    def __init__(self, base_url: str, pool: Pool) -> None:
        self.take = pool.take
        """A connection for `put`, if one is idle."""
        self.connections = pool.connections
        """How many writes can be under way at once."""
        self._pool = pool
        parts = urlsplit(base_url if not base_url.startswith("unix:") else "http://localhost")
        host = parts.netloc.rpartition("@")[2]
        authorization = ""
        if parts.username is not None:
            words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = f"Authorization: Basic {b64encode(words.encode()).decode()}\r\n"
        root = parts.path.rstrip("/")
        # Most keys come again.
        self._head = lru_cache(maxsize=10_000)(
            lambda key: f"PUT {root}/r/{quote(key, safe='')} HTTP/1.1\r\nHost: {host}\r\n{authorization}"
        )

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
        self, key: str, *, fence: int | None, owner: str, body: bytes, on: Connection | None = None
    ) -> Reply:
        """Write `body` under `fence`, or without one. A failure is a `Reply`, never an exception.

        Without a reply the write is `unknown`: it may have happened. It is `failed` only where it
        certainly did not: no connection, or a refusal that the resource promises to be one. With a
        connection that was taken for it, the request leaves before anything else runs.

        :raises ValueError: `owner` cannot be a header's value.
        """
        if not (owner.isascii() and owner.isprintable()):
            raise ValueError(f"an owner is printable ASCII, not {owner!r}")
        token = "" if fence is None else f"X-Fence-Token: {fence}\r\n"
        head = f"{self._head(key)}{token}X-Fence-Owner: {owner}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            on = on or self.take() or await self.connect()
            response = await on.exchange(head.encode() + body)
        except NotSent as error:
            return Reply("failed", error=str(error))
        except NoReply as error:
            return Reply("unknown", error=f"no reply of the resource: {error}")
        return _ACCEPTED if response.status == 200 else _meaning(response)


def _meaning(response: Response) -> Reply:
    """What a reply other than 200 says about the write."""
    text = response.body[:200].decode(errors="replace")
    if response.status == 409:
        try:
            return Reply("stale", int(json.loads(response.body)["seen"]))
        except (ValueError, TypeError, KeyError):
            return Reply("unknown", error=f"the resource answered 409 without a mark: {text}")
    definite = 400 <= response.status < 500
    return Reply(
        "failed" if definite else "unknown", error=f"the resource answered {response.status}: {text}"
    )


@asynccontextmanager
async def open_writer(base_url: str, *, connections: int = CONNECTIONS) -> AsyncIterator[FencedWriter]:
    """A writer whose connections close at the end.

    :raises ValueError: `base_url` is no URL of a resource.
    """
    pool = Pool(Address.of(base_url), timeout=WRITE_TIMEOUT, connections=connections)
    try:
        yield FencedWriter(base_url, pool)
    finally:
        await pool.aclose()
