"""The resource's log, read piece by piece: what was decided since the last reading."""

import json
from collections.abc import Callable

import aiohttp

from harness.rows import DECISION_COLUMNS, Decision


class ResourceLog:
    """The log of one resource, which several trials write to one after the other or side by side."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.after = 0
        """Everything up to this number has been read."""
        self._session = session

    async def read(self, origin: int, *, mine: Callable[[str], bool]) -> list[Decision]:
        """The decisions since the last reading on keys that are `mine`; times relative to `origin`.

        Those on other keys are skipped, and not offered again.

        :raises aiohttp.ClientError: the resource does not answer.
        """
        decisions = []
        after = self.after
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
        self.after = after
        return decisions
