"""One claim's place in a queue: what is known of its node."""

import asyncio

from kazoo.exceptions import NoAuthError

from asyncdlock.backends.zookeeper.names import parent_of, prefix_of
from asyncdlock.backends.zookeeper.session import Session
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim, SharedClaim


class Place:
    """Made before anything is sent, so that a release knows where to look whatever happened since."""

    __slots__ = (
        "claim",
        "granted",
        "guarded",
        "lapsed",
        "node",
        "owned",
        "parent",
        "permits",
        "prefix",
        "sent",
        "session",
        "timer",
        "unanswered",
        "zxid",
    )

    def __init__(self, claim: Claim, chroot: str) -> None:
        self.claim: Claim = claim
        self.parent: str = chroot + parent_of(claim.key)
        self.permits: int | None = claim.permits if isinstance(claim, SharedClaim) else None
        """How many may hold it beside each other, 0 for any number; `None`: it is wanted alone."""
        self.prefix: str = prefix_of(claim.owner, self.permits)
        self.granted: bool = False
        self.owned: bool = False
        """It was granted, and not given up before it was released."""
        self.lapsed: bool = False
        """It was not renewed in time: its node is taken away, not given back."""
        self.unanswered: bool = False
        """A deletion was sent whose reply did not come: the node may be gone by it."""
        self.timer: asyncio.TimerHandle | None = None
        self.session: Session | None = None
        self.leave()

    def enter(self, session: Session) -> None:
        """Use `session`, which is kept for that long."""
        self.session = session
        session.enter()

    def leave(self) -> None:
        """There is no node, and none under way."""
        if self.session is not None:
            self.session.leave()
        self.session = None
        self.node: str | None = None
        self.zxid: int = 0
        self.sent: bool = False
        """A create was sent: there may be a node, also while `node` does not say its name."""
        self.guarded: bool = False
        """The server will tell when the node goes."""

    @property
    def is_lost(self) -> bool:
        """Whether the lease is certainly gone, as far as this client knows."""
        return not self.granted or self.session is None or self.session.expired

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.node}"

    def stop(self) -> None:
        """The lease is not kept any longer; the node may still be there."""
        self.owned = self.owned or self.granted
        self.granted = False
        if self.timer is not None:
            self.timer.cancel()
        if self.session is not None:
            self.session.unwatch(self.path, self.unguard)

    def unguard(self, _: bool) -> None:
        """A watcher: the next renewal looks at the node again."""
        self.guarded = False

    def failure(self, error: Exception) -> BackendError:
        """What the user reads when the servers refuse a request."""
        if isinstance(error, NoAuthError):
            message = f"ZooKeeper does not let this user queue below {self.parent}: check the URL's password"
        else:
            message = f"ZooKeeper refused a request for {self.parent}: {type(error).__name__}"
        return BackendError(message, definite=not self.sent)

    def unknown(self) -> BackendError:
        """The deletion may have come before the end of the lease or after it."""
        return BackendUnavailable(
            f"whether {self.claim.key!r} was still owned when it was released cannot be known: "
            "the connection to ZooKeeper was lost meanwhile"
        )
