"""The operator's part of a client: who holds a lock, which locks there are, and taking one back."""

import os
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

from asyncdlock._arguments import check_key
from asyncdlock._core import Core
from asyncdlock._grants import Grants
from asyncdlock.backend import Inspectable
from asyncdlock.errors import LockError
from asyncdlock.types import LockInfo

_MOST = 2**63 - 1


def default_label() -> str:
    """`host:pid` of this process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Operating:
    """What `LockClient` offers besides taking locks."""

    _core: Core
    _grants: Grants

    async def inspect(self, key: str) -> LockInfo:
        """Who holds the lock, since when and for how long, and who waits for it, in order.

        It is a snapshot: by the time it returns, all of it may have changed. What this backend cannot know is
        `None`; docs/operating.md says what each backend knows.

        :raises LockError: this backend cannot tell (`capabilities.inspection`), or the client is closed.
        :raises InvalidKey, BackendError: as `acquire` does.
        """
        inspectable = self._inspectable()
        found = await inspectable.inspect(self._named(key))
        return replace(found, key=key)

    async def force_release(self, key: str) -> bool:
        """Take the lock away from its holder; `False` if there is none, or if it has just released it itself.

        The next fence is above all that were ever granted or reserved, so a resource that has seen it refuses
        what the former holder writes. That holder learns of it at its next renewal, and may go on until then.
        The next waiter gets the lock at once.

        :raises LockError: this backend cannot (`capabilities.inspection`), or the client is closed.
        :raises InvalidKey: as `acquire` does.
        :raises BackendError: the server failed. Inspect before you call again: it may have happened.
        """
        inspectable = self._inspectable()
        name = self._named(key)
        return await inspectable.force_release(name, self._grants.highest(name))

    async def keys(self) -> AsyncIterator[str]:
        """The keys of all locks that are held or waited for, in any order; of this client's `prefix` only.

        :raises LockError: this backend cannot tell (`capabilities.inspection`), or the client is closed.
        :raises BackendError: the server failed.
        """
        prefix = self._core.prefix
        async for name in self._inspectable().keys(prefix):
            if len(name) > len(prefix):
                yield name[len(prefix) :]

    async def raise_fence(self, key: str, *, above: int) -> None:
        """Make every later fence of `key` larger than `above`.

        The repair for a fence counter that was lost with its server's data: the resource still
        remembers high fences and refuses everybody. Pass the `seen` that it reports.

        :raises ValueError: `above` is no fence.
        :raises LockError: this backend's fences cannot be raised, or the client is closed.
        :raises BackendError: the server failed; calling again is safe.
        """
        self._core.callers.current()
        name = self._named(key)
        if not isinstance(above, int) or isinstance(above, bool) or not 0 <= above < _MOST:
            raise ValueError(f"a fence is a whole number of 1..2^63-1; cannot raise it above {above!r}")
        backend = self._core.backend
        if not backend.capabilities.fence_floor:
            raise LockError(f"the fences of {backend.name} come from its own log and cannot be raised")
        await backend.raise_fence(name, above)

    def _named(self, key: str) -> str:
        return check_key(self._core.prefix + check_key(key))

    def _inspectable(self) -> Inspectable:
        core = self._core
        core.callers.current()
        if not core.backend.capabilities.inspection:
            raise LockError(f"{core.backend.name} cannot tell who holds its locks")
        return cast(Inspectable, core.backend)
