"""A set kept in one value of the resource, added to by read, wait and write: the test that loses updates.

Each holder adds an element of its own. An element whose write was acknowledged and that is not in the
set at the end is a lost update, whatever the resource's log looks like.
"""

import json
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple
from urllib.parse import quote

import aiohttp
from yarl import URL

from asyncdlock import StaleFence
from harness.resource.process import Fence
from harness.writer import Reply

Mode = Literal["none", "writes only", "every operation", "check-and-set"]
"""What the resource compares: nothing, the fences of writes, those of reads as well, or versions."""

RESOURCE_FENCE: Mapping[Mode, Fence] = {
    "none": "off",
    "writes only": "writes",
    "every operation": "on",
    "check-and-set": "off",
}
"""How the resource must have been started for each mode."""

CONFLICT = "the value has changed since it was read"


class Snapshot(NamedTuple):
    """What a read found."""

    elements: tuple[str, ...]
    version: int
    """0: never written."""


class SharedSet:
    """The sets of one resource, for holders of one mode. `session` stays the caller's."""

    def __init__(self, base_url: str, session: aiohttp.ClientSession, mode: Mode) -> None:
        self._root = base_url.rstrip("/")
        self._session = session
        self._mode = mode

    async def read(self, key: str, fence: int | None = None) -> Snapshot:
        """The set, read under `fence`; without one by somebody who holds nothing and only looks.

        :raises StaleFence: the resource has seen a later holder.
        :raises aiohttp.ClientError, TimeoutError: no reply.
        """
        # Modes that fence less than everything are told apart by the resource; the token is sent anyway.
        headers = {} if fence is None else {"X-Fence-Token": str(fence)}
        async with self._session.get(self._url(key), headers=headers) as reply:
            body = await reply.read()
            if reply.status == 409:
                raise StaleFence(key, seen=json.loads(body)["seen"], got=fence or 0)
            if reply.status == 404:
                return Snapshot((), 0)
            reply.raise_for_status()
            return Snapshot(tuple(json.loads(body)), int(reply.headers["ETag"].strip('"')))

    async def write(
        self, key: str, found: Snapshot, element: str, *, fence: int, owner: str, seq: int = 0
    ) -> Reply:
        """Store what was found and one more element. A failure is a `Reply`, never an exception.

        `failed` with the error `CONFLICT`: nothing was stored, read again. `seq` numbers the writes of
        one holder.
        """
        headers = {"X-Fence-Token": str(fence), "X-Fence-Seq": str(seq), "X-Fence-Owner": owner}
        if self._mode == "check-and-set":
            version = {"If-Match": f'"{found.version}"'} if found.version else {"If-None-Match": "*"}
            headers |= version
        body = json.dumps([*found.elements, element]).encode()
        try:
            async with self._session.put(self._url(key), data=body, headers=headers) as reply:
                answer = await reply.read()
                if reply.status == 200:
                    return Reply("accepted")
                if reply.status == 409:
                    told = json.loads(answer)
                    # Sent again because its first reply was lost, and found to be what is stored.
                    return Reply("accepted") if told.get("yours") else Reply("stale", told["seen"])
                if reply.status == 412:
                    return Reply("failed", error=CONFLICT)
                definite = 400 <= reply.status < 500
                return Reply("failed" if definite else "unknown", error=f"the resource said {reply.status}")
        except aiohttp.ClientConnectorError as error:
            return Reply("failed", error=f"no connection to the resource: {error}")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Reply("unknown", error=f"no reply of the resource: {type(error).__name__}")

    def _url(self, key: str) -> URL:
        return URL(f"{self._root}/r/{quote(key, safe='')}", encoded=True)


def lost(acknowledged: Collection[str], at_the_end: Collection[str]) -> list[str]:
    """The updates that were acknowledged and are not there."""
    return sorted(set(acknowledged) - set(at_the_end))
