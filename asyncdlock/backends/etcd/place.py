"""One claim's place in the server's queue, under one lease: all mutable state of one attempt."""

import asyncio

from asyncdlock.backends.etcd.lease import Lease
from asyncdlock.backends.etcd.requests import QueueKeys
from asyncdlock.backends.etcd.transactions import TxnOutcome
from asyncdlock.backends.etcd.watch import DeletionWatch
from asyncdlock.errors import BackendError
from asyncdlock.types import Claim, SharedClaim, label_of


class EtcdPlace:
    """Made before anything is sent, so that a release finds all it needs without a reply."""

    __slots__ = (
        "claim",
        "doubtful",
        "expires_at",
        "joining",
        "key",
        "lapsed",
        "lease",
        "leaving",
        "left",
        "owner",
        "permits",
        "queue",
        "relieved",
        "revision",
        "watch",
    )

    def __init__(self, claim: Claim, queue: QueueKeys, lease: Lease) -> None:
        self.claim: Claim = claim
        self.queue: QueueKeys = queue
        label = label_of(claim.owner)
        self.owner: bytes = (claim.owner if label is None else f"{claim.owner} {label}").encode()
        """What the key contains: the owner, and its label if it has one of its own."""
        self.lease: Lease = lease
        self.key: bytes = queue.place(lease.id, claim)
        self.permits: int | None = claim.permits if isinstance(claim, SharedClaim) else None
        """How many may hold it beside each other, 0 for any number; `None`: it is wanted alone."""
        self.joining: asyncio.Future[TxnOutcome] | None = None
        """The transaction that puts the key, from when it is submitted."""
        self.doubtful: bool = False
        """A copy of that transaction may be on its way, and put the key at any time."""
        self.revision: int = 0
        """When the key was created: the place in the queue, and the fence."""
        self.watch: DeletionWatch | None = None
        """On the place in front, while waiting."""
        self.relieved: tuple[asyncio.Future[TxnOutcome], asyncio.Future[TxnOutcome]] | None = None
        """The release of the holder in front, if it was of this client, and the reading that went along."""
        self.expires_at: float | None = None
        """Until when the lock was promised to its holder; `None` while it waits."""
        self.leaving: asyncio.Future[TxnOutcome] | None = None
        """The last transaction that was to delete the key."""
        self.left: bool = False
        """Given up by its owner, perhaps not yet by the server."""
        self.lapsed: bool = False
        """Its holder did not renew it in time: it was taken away, not given back."""

    @property
    def name(self) -> str:
        """What it borrows its lease by: never two under one lease that would have the same key."""
        return lease_name(self.claim)

    @property
    def live(self) -> bool:
        """Wanted by its owner and, as far as this client knows, there."""
        return not self.left and not self.lease.dead

    @property
    def never_put(self) -> bool:
        """Whether the transaction that puts the key certainly did not happen."""
        if self.joining is None or not self.joining.done():
            return self.joining is None
        if self.joining.cancelled():
            return True  # withdrawn before it was sent
        error = self.joining.exception()
        return isinstance(error, BackendError) and error.definite


def lease_name(claim: Claim) -> str:
    """The name by which a claim borrows a lease."""
    return claim.key if type(claim) is Claim else f"{claim.key}\0{claim.owner}"
