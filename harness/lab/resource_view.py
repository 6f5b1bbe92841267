"""The fenced resource, seen from outside: its values, its counters and its log."""

import json
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import aiohttp
from yarl import URL

from asyncdlock import StaleFence
from harness.history.rows import DECISION_COLUMNS, Decision
from harness.load.writer import Reply

STALE_REJECTIONS = "resource_stale_token_rejections_total"
CONFLICT = "the value has changed since it was read"


class Stored(NamedTuple):
    """What a read found."""

    body: bytes | None
    """None: it was never written."""
    tag: str | None = None
    """Of its version."""


class Present(NamedTuple):
    """What a key holds now, and the marks beside it."""

    text: str | None
    """None: it was never written."""
    fence: int
    max_fence: int


class ResourceView:
    """Asks a resource; `session` stays the caller's.

    Every method but `put` raises `aiohttp.ClientError` or `TimeoutError` when it does not answer.
    """

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self.logged = 0
        """Everything up to this number has been read by `new_decisions`."""
        self._session = session

    async def get(self, key: str, fence: int | None = None) -> Stored:
        """The value, read under `fence`; without one by somebody who holds nothing and only looks.

        :raises StaleFence: the resource has seen a later holder.
        """
        headers = {} if fence is None else {"X-Fence-Token": str(fence)}
        async with self._session.get(self._at(key), headers=headers) as reply:
            body = await reply.read()
            if reply.status == 409:
                raise StaleFence(key, seen=json.loads(body)["seen"], got=fence or 0)
            if reply.status == 404:
                return Stored(None)
            reply.raise_for_status()
            return Stored(body, reply.headers["ETag"])

    async def put(
        self,
        key: str,
        body: bytes,
        *,
        fence: int | None = None,
        owner: str | None = None,
        found: Stored | None = None,
    ) -> Reply:
        """Write, with `found` only if the value is still that one.

        A failure is a `Reply`, never an exception. `failed` with the error `CONFLICT`: nothing was stored,
        read again.
        """
        given = {"X-Fence-Token": None if fence is None else str(fence), "X-Fence-Owner": owner}
        headers = {name: value for name, value in given.items() if value is not None}
        if found is not None:
            headers |= {"If-None-Match": "*"} if found.tag is None else {"If-Match": found.tag}
        try:
            async with self._session.put(self._at(key), data=body, headers=headers) as reply:
                return _meaning(reply.status, await reply.read())
        except aiohttp.ClientConnectorError as error:
            return Reply("failed", error=f"no connection to the resource: {error}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Reply("unknown", error=f"no reply of the resource: {type(error).__name__}")

    async def decisions(self, key: str, origin: int) -> list[Decision]:
        """What it decided on writes to `key`, in its order; times are relative to `origin`."""
        return (await self._log(0, origin, lambda other: other == key))[0]

    async def new_decisions(self, origin: int, mine: Callable[[str], bool]) -> list[Decision]:
        """The decisions since the last call on keys that are `mine`; others are not offered again."""
        decisions, self.logged = await self._log(self.logged, origin, mine)
        return decisions

    async def _log(self, after: int, origin: int, mine: Callable[[str], bool]) -> tuple[list[Decision], int]:
        decisions = []
        async with self._session.get(f"{self.url}/log", params={"after": str(after)}) as reply:
            reply.raise_for_status()
            async for line in reply.content:
                row = json.loads(line)
                after = row["seq"]
                if mine(row["key"]):
                    decision = Decision(**{name: row[name] for name in DECISION_COLUMNS})
                    decision.started -= origin
                    decision.decided -= origin
                    decisions.append(decision)
        return decisions, after

    async def value(self, key: str) -> Present:
        """The present value, read without a fence."""
        async with self._session.get(self._at(key), headers={"Accept": "application/json"}) as reply:
            answer = await reply.json()
            if reply.status == 404:
                return Present(None, 0, answer["max_fence"])
            reply.raise_for_status()
            return Present(answer["value"], answer["fence"], answer["max_fence"])

    async def counter(self, name: str) -> float:
        """The value of a metric without labels."""
        async with self._session.get(f"{self.url}/metrics") as reply:
            reply.raise_for_status()
            for line in (await reply.text()).splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[1])
        raise ValueError(f"the resource has no metric {name}")

    def _at(self, key: str) -> URL:
        return URL(f"{self.url}/r/{quote(key, safe='')}", encoded=True)


def _meaning(status: int, answer: bytes) -> Reply:
    if status == 200:
        return Reply("accepted")
    if status == 409:
        told = json.loads(answer)
        # Sent again because its first reply was lost, and found to be what is stored.
        return Reply("accepted") if told.get("yours") else Reply("stale", told["seen"])
    if status == 412:
        return Reply("failed", error=CONFLICT)
    return Reply("failed" if 400 <= status < 500 else "unknown", error=f"the resource said {status}")
