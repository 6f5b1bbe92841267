"""The contender's side of the fenced resource: one PUT with a fence, and what its reply means.

All contenders of a process share one pool of connections: measured with a thousand tasks, about a
hundred connections carry more writes per second than one each.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

import aiohttp
from yarl import URL

from harness.history import WriteOutcome

CONNECTIONS = 100
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

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self._session = session
        root = base_url.rstrip("/")
        # Parsing a URL costs as much as a twentieth of the whole request, and keys come again.
        self._url = lru_cache(maxsize=10_000)(
            lambda key: URL(f"{root}/r/{quote(key, safe='')}", encoded=True)
        )

    async def put(self, key: str, *, fence: int | None, owner: str, body: bytes) -> Reply:
        """Write `body` under `fence`, or without one. A failure is a `Reply`, never an exception.

        Without a reply the write is `unknown`: it may have happened. It is `failed` only where it
        certainly did not: no connection, or a refusal that the resource promises to be one.
        """
        headers = {"X-Fence-Owner": owner}
        if fence is not None:
            headers["X-Fence-Token"] = str(fence)
        try:
            async with self._session.put(self._url(key), data=body, headers=headers) as reply:
                if reply.status == 200:
                    await reply.read()
                    return _ACCEPTED
                if reply.status == 409:
                    return Reply("stale", (await reply.json())["seen"])
                text = (await reply.text())[:200]
                definite = 400 <= reply.status < 500
                return Reply(
                    "failed" if definite else "unknown", error=f"the resource answered {reply.status}: {text}"
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return Reply("failed", error=f"no connection to the resource: {error}")
        except TimeoutError:
            return Reply("unknown", error=f"the resource did not answer within {WRITE_TIMEOUT:g} s")
        except (aiohttp.ClientError, OSError, ValueError, KeyError) as error:
            return Reply(
                "unknown", error=f"the reply of the resource was lost: {type(error).__name__}: {error}"
            )


@asynccontextmanager
async def open_writer(base_url: str, *, connections: int = CONNECTIONS) -> AsyncIterator[FencedWriter]:
    """A writer whose connections close at the end."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=WRITE_TIMEOUT),
        # Nothing else may look like a write: no redirect is followed, no cookie is kept.
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    try:
        yield FencedWriter(base_url, session)
    finally:
        await session.close()
        # aiohttp closes its sockets in the next turns of the loop.
        await asyncio.sleep(0)
