"""Joining a queue, reading it, and waiting for the contender ahead.

A session answers its requests in order, and a write after a majority has it. So

- joining sends the create and the listing in one write: one round trip when the lock is free;
- whoever is first in a listing that was read after its own create holds the lock. After a wait the listing
  follows a `sync`, which brings the server that answers up to date with the leader: a server that was cut
  off cannot tell a waiter of an expired session that it is next.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import (
    ConnectionLoss,
    NoNodeError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.serialization import Create2, GetData, Sync

from asyncdlock.backends.zookeeper.names import LAST_SEQUENCE, Contenders, sequence_of
from asyncdlock.backends.zookeeper.parents import Parents
from asyncdlock.backends.zookeeper.place import Place
from asyncdlock.backends.zookeeper.session import Session
from asyncdlock.backends.zookeeper.wire import Wire
from asyncdlock.errors import BackendError
from asyncdlock.types import label_of

_EPHEMERAL_SEQUENTIAL = 3
_JOIN_TRIES = 5  # the server may remove an empty parent between its creation and its use


class Queues:
    """Where a claim's node is made."""

    def __init__(self, parents: Parents, acl: list[Any]) -> None:
        self.label = ""
        """What this client is called."""
        self._parents = parents
        self._acl = acl

    async def join(self, place: Place, wire: Wire) -> Contenders:
        """Create the claim's node, or find the one that a lost reply left, and read the queue."""
        if place.sent:
            queue = await look(place, wire)
            if await _found(place, wire, queue):
                return queue
        owner = place.claim.owner
        content = f"{owner} {label_of(owner) or self.label}".rstrip().encode()
        node = Create2(f"{place.parent}/{place.prefix}", content, self._acl, _EPHEMERAL_SEQUENTIAL)
        refusal: ZookeeperError | None = None
        for _ in range(_JOIN_TRIES):
            self._parents.prepare(wire, place.parent)
            created = wire.send(node)
            listing = wire.list(place.parent)
            place.sent = True
            try:
                path, stat = await created
            except (ConnectionLoss, SessionExpiredError, SessionMovedError):
                raise
            except NoNodeError:
                place.sent = False
                if refusal is not None:
                    raise refusal from None
                refusal = await self._parents.make(wire, place.parent)
                continue
            except ZookeeperError:
                place.sent = False  # the server has said so: there is nothing to take back
                raise
            place.node, place.zxid = path.rpartition("/")[2], stat.czxid
            if not 0 <= sequence_of(place.node) < LAST_SEQUENCE:
                raise BackendError(
                    f"the sequence numbers of {place.parent} are used up: delete that node once it is empty"
                )
            return await listing
        raise BackendError(
            f"cannot create {place.parent} in ZooKeeper: create it, or allow this user to", definite=True
        )


async def _found(place: Place, wire: Wire, queue: Contenders) -> bool:
    for node in queue.named(place.prefix):
        try:
            _, stat = await wire.send(GetData(f"{place.parent}/{node}", None))
        except NoNodeError:
            continue
        place.node, place.zxid = node, stat.czxid
        return True
    return False


async def look(place: Place, wire: Wire) -> Contenders:
    """The queue that a place is in."""
    return await listing(wire, place.parent)


async def listing(wire: Wire, parent: str) -> Contenders:
    """The queue as the leader knows it, not as a server that lags behind does."""
    synced = wire.send(Sync(parent))
    try:
        queue = await wire.list(parent)
    except NoNodeError:
        queue = Contenders(())
    await synced
    return queue


async def any_passed(session: Session, wire: Wire, paths: Sequence[str]) -> None:
    """Return when one of the contenders at `paths` may be gone. A cancellation leaves no watch behind."""
    event: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def watcher(_: bool) -> None:
        if not event.done():
            event.set_result(None)

    for path in paths:
        session.watch(path, watcher)
    try:
        # Not `exists`: that would leave a watch on a node that is already gone, and never comes back.
        for look in [wire.send(GetData(path, True)) for path in paths]:
            await look
        await event
    except NoNodeError:
        pass
    except asyncio.CancelledError:
        for path in paths:
            session.take_back(path, watcher)
        raise
    finally:
        for path in paths:
            session.unwatch(path, watcher)
