"""Inspection: who holds a lock, who waits for it, which locks there are, and taking one back."""

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from asyncdlock.backends.postgres.wire import Wire
from asyncdlock.types import Claim, LockInfo, Waiter

_PAGE = 1000  # keys in one reply


class _Holder(NamedTuple):
    owner: str
    label: str | None
    since: float | None
    lease_left: float
    fence: int | None


class _Seen(NamedTuple):
    """What `inspect_2` of schema.sql returns."""

    holders: list[_Holder]
    waiters: tuple[Waiter, ...]
    last_fence: int
    grant: str

    @classmethod
    def parse(cls, details: str | None) -> "_Seen":
        found: dict[str, Any] = json.loads(details) if details else {}
        return cls(
            holders=[_Holder(*one) for one in found.get("holders") or ()],
            waiters=tuple(Waiter(owner=owner, label=label) for owner, label in found.get("waiters") or ()),
            last_fence=found.get("last_fence", 0),
            grant=found.get("grant", ""),
        )

    def info(self, key: str) -> LockInfo:
        if not self.holders:
            return LockInfo(key=key, held=False, waiters=self.waiters)
        first, *others = self.holders
        return LockInfo(
            key=key,
            held=True,
            **first._asdict(),
            last_fence=None if first.fence is None else self.last_fence,
            beside=tuple(Waiter(owner=one.owner, label=one.label) for one in others),
            waiters=self.waiters,
        )


class InspectedPostgres:
    """The operator's part of the backend."""

    _wire: Wire

    @property
    def label(self) -> str:
        return self._wire.label

    @label.setter
    def label(self, label: str) -> None:
        self._wire.label = label

    async def inspect(self, key: str) -> LockInfo:
        return (await self._look(key)).info(key)

    async def _look(self, key: str) -> _Seen:
        return _Seen.parse((await self._wire.send("inspect", Claim(key, "", 0.0))).details)

    async def force_release(self, key: str, above: int) -> bool:
        # From the holder of this moment: sent again after a lost reply, it must not meet the next one.
        seen = await self._look(key)
        reply = await self._wire.send("force", Claim(key, seen.grant, 0.0), above)
        return bool(seen.holders) and reply.outcome == "released"

    async def keys(self, start: str) -> AsyncIterator[str]:
        after = ""
        while True:
            reply = await self._wire.send("list", Claim(start, after, 0.0), _PAGE)
            page: list[str] = json.loads(reply.details or "[]")
            for key in page:
                yield key
            if len(page) < _PAGE:
                return
            after = page[-1]
