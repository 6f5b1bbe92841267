"""Inspection: who holds a lock in ZooKeeper and who waits, which locks there are, and taking one back."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from kazoo.exceptions import (
    ConnectionLoss,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import Delete, GetChildren, GetData

from asyncdlock.backends.zookeeper.names import (
    ROOT,
    Contenders,
    beside_of,
    is_contender,
    owner_of,
    parent_of,
    path_key,
)
from asyncdlock.backends.zookeeper.queues import Queues, listing
from asyncdlock.backends.zookeeper.sessions import Sessions
from asyncdlock.backends.zookeeper.wire import Wire
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import LockInfo, Waiter, holding_together

T = TypeVar("T")

_TTL = 10.0  # of the session that asks, if none is open
_TRIES = 3
_ANY_VERSION = -1


class InspectedZooKeeper:
    """The operator's part of the backend. A node contains its owner and its label.

    kazoo's contain their identifier, which says the same as a label, and `contenders()` shows both.
    """

    local_handoffs: int
    fence_scale: int
    _chroot: str
    _queues: Queues
    _sessions: Sessions

    @property
    def label(self) -> str:
        return self._queues.label

    @label.setter
    def label(self, label: str) -> None:
        self._queues.label = label

    async def inspect(self, key: str) -> LockInfo:
        """As the protocol says. Neither the time of a grant nor what a session has left can be known."""
        parent = self._chroot + parent_of(key)

        async def look(wire: Wire) -> list[tuple[Waiter, int, int | None]]:
            return await _contents(wire, parent, await listing(wire, parent))

        found = await self._asked(look)
        if not found:
            return LockInfo(key=key, held=False)
        (holder, zxid, _), *others = found
        count = holding_together([permits for _, _, permits in found])
        scale = self.fence_scale
        return LockInfo(
            key=key,
            held=True,
            owner=holder.owner,
            label=holder.label,
            fence=zxid * scale,
            last_fence=(zxid + 1) * scale - 1,
            beside=tuple(one for one, _, _ in others[: count - 1]),
            waiters=tuple(one for one, _, _ in others[count - 1 :]),
        )

    async def force_release(self, key: str, above: int) -> bool:
        """As the protocol says. The next fence is that of a node that was made later, and so above."""
        parent = self._chroot + parent_of(key)
        held: list[str] = []
        evicted = False

        async def evict(wire: Wire) -> bool:
            nonlocal evicted
            if not held:
                queue = list(await listing(wire, parent))
                held.extend(queue[: holding_together([beside_of(node) for node in queue])])
            for deletion in [wire.send(Delete(f"{parent}/{node}", _ANY_VERSION)) for node in held]:
                try:
                    await deletion
                except NoNodeError:
                    continue
                except ConnectionLoss:
                    evicted = True  # by this request or the next: it is gone
                    raise
                evicted = True
            return evicted

        return await self._asked(evict)

    async def keys(self, start: str) -> AsyncIterator[str]:
        paths = [self._chroot + ROOT]
        while paths:
            path = paths.pop()

            async def below(wire: Wire, path: str = path) -> list[str]:
                try:
                    names: list[str] = await wire.send(GetChildren(path, None))
                except NoNodeError:
                    return []
                return names

            children = await self._asked(below)
            paths += [f"{path}/{child}" for child in children if not is_contender(child)]
            key = path_key(path.removeprefix(self._chroot))
            if any(map(is_contender, children)) and key.startswith(start):
                yield key

    async def _asked(self, question: Callable[[Wire], Awaitable[T]]) -> T:
        """What `question` finds; asked again when the connection was lost.

        :raises BackendError: the servers failed, or refused.
        """
        for _ in range(_TRIES):
            session = self._sessions.for_ttl(_TTL)
            session.enter()
            try:
                return await question(await session.wire())
            except (ConnectionLoss, SessionExpiredError, SessionMovedError):
                continue
            except ZookeeperError as error:
                raise BackendError(f"ZooKeeper refused a request: {type(error).__name__}") from None
            finally:
                session.leave()
        raise BackendUnavailable("the connection to ZooKeeper was lost again and again")


async def _contents(wire: Wire, parent: str, queue: Contenders) -> list[tuple[Waiter, int, int | None]]:
    """Each contender that is still there, the transaction that made its node, and how many it shares with."""
    looks: list[tuple[str, Any]] = [(node, wire.send(GetData(f"{parent}/{node}", None))) for node in queue]
    found = []
    for node, look in looks:
        try:
            data, stat = await look
        except NoNodeError:
            continue
        owner, content = owner_of(node), data.decode(errors="replace")
        label = content.removeprefix(f"{owner} ") if content != owner else None
        found.append((Waiter(owner=owner, label=label or None), stat.czxid, beside_of(node)))
    return found
