"""Holding a key together with others: what shared locks and semaphores have in common."""

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from asyncdlock._arguments import check_timeout
from asyncdlock._holding import HELD, Holding
from asyncdlock.errors import LockError
from asyncdlock.handle import Handle
from asyncdlock.types import SharedClaim

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

_Task = asyncio.Task[object]

_KEYS_KEPT = 64  # of one task, before those that it no longer holds are dropped


def unavailable(client: "LockClient", what: str) -> LockError:
    """The error for a backend on which nobody can hold a lock together with others."""
    return LockError(f"{client._backend.name} has no {what}; redis-queue, etcd, zookeeper and postgres do")


def upgrade(who: str, key: str) -> LockError:
    """The error for a caller that holds `key` together with others, and asks for it exclusively."""
    return LockError(
        f"this {who} holds {key!r} beside others, and would wait for itself: a shared lock cannot be "
        "upgraded; release it first, and read again what it protects",
        key=key,
    )


def readers(client: "LockClient") -> "SharedHolders":
    """:raises LockError: the backend has no shared locks."""
    if not client.capabilities.shared:
        raise unavailable(client, "shared locks")
    return SharedHolders(client, 0)


class SharedHolders:
    """`acquire` and `try_acquire` of a client, for those who hold a key together with others.

    `permits`: how many may hold it at once; 0: any number, as readers.
    """

    __slots__ = ("_client", "_permits")

    def __init__(self, client: "LockClient", permits: int) -> None:
        self._client = client
        self._permits = permits

    async def acquire(
        self,
        key: str,
        *,
        ttl: float,
        timeout: float | None,
        renew: bool,
        max_hold: float | None,
        label: str | None,
    ) -> Handle:
        """As `LockClient.acquire`; raises what that raises."""
        client = self._client
        claim = self._claim(key, ttl, max_hold, label)
        if timeout is not None:
            check_timeout(timeout)
            if timeout <= 0:
                handle = await self._ask(claim, renew, max_hold, wait=False)
                if handle is None:
                    raise client._core.too_late(claim, timeout)
                return handle
        client._metrics.waiters += 1
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                handle = await self._ask(claim, renew, max_hold, wait=True)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise client._core.too_late(claim, timeout) from None
        finally:
            client._metrics.waiters -= 1
        assert handle is not None, "acquire waits until there is one"
        return handle

    async def try_acquire(
        self, key: str, *, ttl: float, renew: bool, max_hold: float | None, label: str | None
    ) -> Handle | None:
        """As `LockClient.try_acquire`; raises what that raises."""
        return await self._ask(self._claim(key, ttl, max_hold, label), renew, max_hold, wait=False)

    def _claim(self, key: str, ttl: float, max_hold: float | None, label: str | None) -> SharedClaim:
        return SharedClaim(*self._client._claim(key, ttl, max_hold, label, exclusive=False), self._permits)

    async def _ask(
        self, claim: SharedClaim, renew: bool, max_hold: float | None, *, wait: bool
    ) -> Handle | None:
        client = self._client
        verb = client._backend.acquire if wait else client._backend.try_acquire
        handle = await client._attempt(verb, claim, renew, max_hold)
        if handle is not None:
            client._upgrades.note(handle._holding)
        return handle


class Upgrades:
    """Which task shares which key with others: to refuse an upgrade that could only wait for itself."""

    __slots__ = ("_holdings", "possible")

    def __init__(self) -> None:
        self._holdings: WeakKeyDictionary[_Task, dict[str, list[Holding]]] = WeakKeyDictionary()
        self.possible: bool = False
        """Whether anything was ever held together with others."""

    def note(self, holding: Holding) -> None:
        """The current task now holds this."""
        self.possible = True
        task = asyncio.current_task()
        assert task is not None
        keys = self._holdings.setdefault(task, {})
        if len(keys) >= _KEYS_KEPT:
            for key in [key for key, holdings in keys.items() if not _held(holdings)]:
                del keys[key]
        key = holding.grant.claim.key
        keys[key] = [*_held(keys.get(key, [])), holding]

    def refuse(self, name: str, prefix: str) -> None:
        """:raises LockError: the current task shares the lock with others, and now wants it exclusively."""
        task = asyncio.current_task()
        assert task is not None
        if _held(self._holdings.get(task, {}).get(name, [])):
            raise upgrade("task", name.removeprefix(prefix))


def _held(holdings: list[Holding]) -> list[Holding]:
    return [holding for holding in holdings if holding.state is HELD]
