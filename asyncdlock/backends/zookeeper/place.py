"""One claim's place in a queue: what is known of its node."""

import asyncio

from kazoo.exceptions import NoAuthError, ZookeeperError

from asyncdlock.backends.zookeeper.names import parent_of, prefix_of
from asyncdlock.backends.zookeeper.session import Session
from asyncdlock.errors import BackendError
from asyncdlock.types import Claim


class Place:
    """Made before anything is sent, so that a release knows where to look whatever happened since."""

    __slots__ = (
        "claim",
        "granted",
        "guarded",
        "node",
        "parent",
        "prefix",
        "sent",
        "session",
        "timer",
        "zxid",
    )

    def __init__(self, claim: Claim, chroot: str) -> None:
        self.claim = claim
        self.parent = chroot + parent_of(claim.key)
        self.prefix = prefix_of(claim.owner)
        self.granted = False
        self.timer: asyncio.TimerHandle | None = None
        self.leave()

    def leave(self) -> None:
        """There is no node, and none under way."""
        self.session: Session | None = None
        self.node: str | None = None
        self.zxid = 0
        self.sent = False
        """A create was sent: there may be a node, also while `node` does not say its name."""
        self.guarded = False
        """The server will tell when the node goes."""

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.node}"

    def unguard(self, _: bool) -> None:
        """A watcher: the next renewal looks at the node again."""
        self.guarded = False

    def failure(self, error: ZookeeperError) -> BackendError:
        """What the user reads when the servers refuse a request."""
        if isinstance(error, NoAuthError):
            message = f"ZooKeeper does not let this user queue below {self.parent}: check the URL's password"
        else:
            message = f"ZooKeeper refused a request for {self.parent}: {type(error).__name__}"
        return BackendError(message, definite=not self.sent)
