"""The fenced resource, seen from outside: its value, its counters and its log."""

import json
from typing import NamedTuple
from urllib.parse import quote

import aiohttp

from harness.rows import DECISION_COLUMNS, Decision

STALE_REJECTIONS = "resource_stale_token_rejections_total"


class Value(NamedTuple):
    """What a key holds now."""

    text: str | None
    """None: it was never written."""
    fence: int
    max_fence: int


class ResourceView:
    """Asks a resource; every method raises `aiohttp.ClientError` when it does not answer."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def decisions(self, key: str, origin: int) -> list[Decision]:
        """What it decided on writes to `key`, in its order; times are relative to `origin`."""
        decisions = []
        async with self._session.get(f"{self.url}/log") as reply:
            reply.raise_for_status()
            async for line in reply.content:
                row = json.loads(line)
                if row["key"] == key:
                    decision = Decision(**{name: row[name] for name in DECISION_COLUMNS})
                    decision.started -= origin
                    decision.decided -= origin
                    decisions.append(decision)
        return decisions

    async def value(self, key: str) -> Value:
        """The present value, read without a fence."""
        headers = {"Accept": "application/json"}
        async with self._session.get(f"{self.url}/r/{quote(key, safe='')}", headers=headers) as reply:
            answer = await reply.json()
            if reply.status == 404:
                return Value(None, 0, answer["max_fence"])
            reply.raise_for_status()
            return Value(answer["value"], answer["fence"], answer["max_fence"])

    async def counter(self, name: str) -> float:
        """The value of a metric without labels."""
        async with self._session.get(f"{self.url}/metrics") as reply:
            reply.raise_for_status()
            for line in (await reply.text()).splitlines():
                if line.startswith(f"{name} "):
                    return float(line.split()[1])
        raise ValueError(f"the resource has no metric {name}")
