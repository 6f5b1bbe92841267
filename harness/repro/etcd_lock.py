"""etcd's own Lock service, as a client of any language uses it: a lease, keep-alives, Lock, Unlock.

Asked over etcd's JSON gateway. There is no fence in it, and no look at the lease: that is what is measured.
"""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp


class EtcdLockFailed(Exception):
    """etcd did not answer, or refused; nothing is held for longer than the lease."""


class EtcdLock:
    """Locks at one member. `session` stays the caller's."""

    def __init__(self, member_url: str, session: aiohttp.ClientSession, *, ttl: int) -> None:
        self._root = f"{member_url}/v3"
        self._session = session
        self._ttl = ttl

    @contextlib.asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[int]:
        """Wait for the lock and hold it while the body runs, come what may; yields etcd's revision.

        :raises EtcdLockFailed: on the way in; on the way out the lease ends by itself.
        """
        lease = await self.grant(self._ttl)
        keeping = asyncio.create_task(self._keep_alive(lease))
        try:
            locked = await self.lock(name, lease)
            yield int(locked["header"]["revision"])
            with contextlib.suppress(EtcdLockFailed):
                await self._call("lock/unlock", {"key": locked["key"]})
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            with contextlib.suppress(EtcdLockFailed):
                await self._call("lease/revoke", {"ID": lease})

    async def grant(self, ttl: int) -> str:
        """A lease that nobody keeps alive.

        :raises EtcdLockFailed: no answer.
        """
        return str((await self._call("lease/grant", {"TTL": ttl}))["ID"])

    async def lock(self, name: str, lease: str) -> dict[str, Any]:
        """Wait for the lock under `lease`; etcd's answer.

        :raises EtcdLockFailed: no answer, or a refusal.
        """
        encoded = base64.b64encode(name.encode()).decode()
        return await self._call("lock/lock", {"name": encoded, "lease": lease})

    async def _keep_alive(self, lease: str) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            with contextlib.suppress(EtcdLockFailed):
                await self._call("lease/keepalive", {"ID": lease})

    async def _call(self, path: str, message: Mapping[str, Any]) -> dict[str, Any]:
        try:
            async with self._session.post(f"{self._root}/{path}", json=message) as reply:
                if reply.status != 200:
                    raise EtcdLockFailed(await reply.text())
                answer: dict[str, Any] = await reply.json()
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EtcdLockFailed(str(error) or type(error).__name__) from None
