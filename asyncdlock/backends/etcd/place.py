"""One claim's place in the server's queue: all mutable state of one attempt."""

import asyncio

from asyncdlock.backends.etcd.lease import Lease
from asyncdlock.backends.etcd.requests import Queue
from asyncdlock.backends.etcd.transactions import Outcome
from asyncdlock.backends.etcd.watch import Watch
from asyncdlock.errors import BackendError
from asyncdlock.types import Claim


class Place:
    """Made before anything is sent, so that a release finds all it needs without a reply."""

    __slots__ = (
        "claim",
        "expires_at",
        "key",
        "lease",
        "leaving",
        "owner",
        "pending",
        "queue",
        "revision",
        "watch",
    )

    def __init__(self, claim: Claim, queue: Queue, lease: Lease) -> None:
        self.claim = claim
        self.queue = queue
        self.owner = claim.owner.encode()
        self.move(lease)
        self.expires_at: float | None = None
        """Until when the lock was promised to its holder; `None` while it waits."""
        self.leaving = False
        """Given up by its owner, perhaps not yet by the server."""

    @property
    def live(self) -> bool:
        """Wanted by its owner and, as far as this client knows, there."""
        return not self.leaving and not self.lease.dead

    @property
    def never_put(self) -> bool:
        """Whether the transaction that puts the key certainly did not happen."""
        if self.pending is None or not self.pending.done():
            return self.pending is None
        if self.pending.cancelled():
            return True  # withdrawn before it was sent
        error = self.pending.exception()
        return isinstance(error, BackendError) and error.definite

    def move(self, lease: Lease) -> None:
        """Start over under another lease: the key and all that was known of it are gone."""
        self.lease = lease
        self.key = self.queue.place(lease.id)
        self.pending: asyncio.Future[Outcome] | None = None
        """The transaction that puts the key, from when it is submitted."""
        self.revision = 0
        """When the key was created: the place in the queue, and the fence."""
        self.watch: Watch | None = None
        """On the place in front, while waiting."""
