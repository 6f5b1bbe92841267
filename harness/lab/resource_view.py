"""The fenced resource as experiments see it: values with their versions, and the decisions of its log."""

from collections.abc import Callable
from typing import Any, NamedTuple

from asyncdlock import StaleFence
from harness.history.rows import DECISION_COLUMNS, Decision
from harness.resource.client import Reply, ResourceClient, UnexpectedReply

STALE_REJECTIONS = "resource_stale_token_rejections_total"


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
    """Asks a resource; `client` stays the caller's.

    Every method but `put` raises `Unanswered` when it does not answer.
    """

    def __init__(self, client: ResourceClient) -> None:
        self.url = client.url
        self.counter = client.metric
        self.logged = 0
        """Everything up to this number has been read by `new_decisions`."""
        self._client = client

    async def get(self, key: str, fence: int | None = None) -> Stored:
        """The value, read under `fence`; without one by somebody who holds nothing and only looks.

        :raises StaleFence: the resource has seen a later holder.
        """
        reply = await self._client.get(key, fence=fence)
        if reply.status == 409:
            raise StaleFence(key, seen=reply.json["seen"], got=fence or 0)
        if reply.status == 404:
            return Stored(None)
        return Stored(reply.body, _found(reply).headers["ETag"])

    async def put(
        self,
        key: str,
        body: bytes,
        *,
        fence: int | None = None,
        owner: str | None = None,
        found: Stored | None = None,
    ) -> Reply:
        """Write, with `found` only if the value is still that one: else the reply is a `conflict`."""
        condition: dict[str, Any] = {}
        if found is not None:
            condition = {"If_None_Match": "*"} if found.tag is None else {"If_Match": found.tag}
        return await self._client.put(key, body, fence=fence, owner=owner, **condition)

    async def decisions(self, key: str, origin: int) -> list[Decision]:
        """What it decided on writes to `key`, in its order; times are relative to `origin`."""
        return (await self._log(0, origin, lambda other: other == key))[0]

    async def new_decisions(self, origin: int, mine: Callable[[str], bool]) -> list[Decision]:
        """The decisions since the last call on keys that are `mine`; others are not offered again."""
        decisions, self.logged = await self._log(self.logged, origin, mine)
        return decisions

    async def _log(self, after: int, origin: int, mine: Callable[[str], bool]) -> tuple[list[Decision], int]:
        decisions = []
        async for row in self._client.rows(after):
            after = row["seq"]
            if mine(row["key"]):
                decision = Decision(**{name: row[name] for name in DECISION_COLUMNS})
                decision.started -= origin
                decision.decided -= origin
                decisions.append(decision)
        return decisions, after

    async def value(self, key: str) -> Present:
        """The present value, read without a fence."""
        reply = await self._client.get(key, accept="application/json")
        if reply.status == 404:
            return Present(None, 0, reply.json["max_fence"])
        answer = _found(reply).json
        return Present(answer["value"], answer["fence"], answer["max_fence"])


def _found(reply: Reply) -> Reply:
    if reply.status != 200:
        raise UnexpectedReply(f"the resource answered {reply.status} to a read")
    return reply
