"""Semaphore: at most N holders of one key at a time, each with a lease and a fence of its own."""

from functools import partial
from typing import TYPE_CHECKING

from asyncdlock._arguments import check_key
from asyncdlock._hold import Hold
from asyncdlock.handle import Handle
from asyncdlock.kinds.shared import SharedHolders

if TYPE_CHECKING:
    from asyncdlock.client import LockClient

MOST_PERMITS = 1_000_000


class Semaphore:
    """What `LockClient.semaphore` returns: `acquire`, `try_acquire` and `hold`, each for one permit.

    Permits are leased like locks. If a holder dies, its permit comes back after its TTL. Waiters are served
    in order of arrival. `permits` is the number that this object goes by: it gets a permit when fewer than
    that are held. Others may go by a different number; docs/kinds.md says what that means.
    """

    __slots__ = ("_holders", "key", "permits")

    key: str
    permits: int

    def __init__(self, client: "LockClient", key: str, permits: int) -> None:
        name = check_key(key)
        if not isinstance(permits, int) or isinstance(permits, bool) or not 1 <= permits <= MOST_PERMITS:
            raise ValueError(f"permits must be a whole number from 1 to {MOST_PERMITS:,}, not {permits!r}")
        self.key = name
        self.permits = permits
        self._holders = SharedHolders(client, permits)

    async def acquire(
        self,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
    ) -> Handle:
        """Wait for a permit, as `LockClient.acquire` waits for a lock.

        :raises AcquireTimeout, ValueError, QueueFull, BackendError, LockError: as `LockClient.acquire`.
        """
        return await self._holders.acquire(
            self.key, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, label=label
        )

    async def try_acquire(
        self,
        *,
        ttl: float = 10.0,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
    ) -> Handle | None:
        """One attempt that never waits; `None` when all permits are held, or others wait for one.

        :raises ValueError, BackendError, LockError: as `LockClient.acquire`.
        """
        return await self._holders.try_acquire(self.key, ttl=ttl, renew=renew, max_hold=max_hold, label=label)

    def hold(
        self,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
    ) -> Hold:
        """`async with semaphore.hold() as handle:` runs the body while a permit is held.

        What `LockClient.hold` is to a lock, this is to a permit.

        :raises LockLost: the permit's lease was lost while the body ran, or the release found it lost.
        :raises LockError: the object that this returns is already in use.
        :raises AcquireTimeout, ValueError, QueueFull, BackendError: as `LockClient.acquire`.
        """
        wait = partial(self.acquire, ttl=ttl, timeout=timeout, renew=renew, max_hold=max_hold, label=label)
        return Hold(self.key, wait)
