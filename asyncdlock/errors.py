"""The error tree. Contention is never a BackendError; only a server's failure is."""

from collections.abc import Sequence


class LockError(Exception):
    """Root of everything that asyncdlock raises on purpose.

    `key`, `owner` and `fence` say which lock and which attempt the error is about, as far as they are known.
    """

    key: str | None
    owner: str | None
    fence: int | None

    def __init__(
        self, *args: object, key: str | None = None, owner: str | None = None, fence: int | None = None
    ) -> None:
        super().__init__(*args)
        self.key = key
        self.owner = owner
        self.fence = fence


class AcquireTimeout(LockError, TimeoutError):
    """The lock was not granted within `timeout`. Nothing is left behind on the server."""


class LockLost(LockError):
    """The lease is gone, or can no longer be shown to be alive."""


class QueueFull(LockError):
    """The lock already has as many waiters as `max_waiters` allows."""


class InvalidKey(LockError, ValueError):
    """The key is empty, too long, or contains NUL. Nothing was sent."""


class StaleFence(LockError):
    """The resource has seen a higher fence: this holder was displaced."""

    key: str
    seen: int
    got: int

    def __init__(self, key: str, *, seen: int, got: int) -> None:
        super().__init__(
            f"stale fencing token for {key!r}: got {got}, the resource has seen {seen}", key=key, fence=got
        )
        self.seen = seen
        self.got = got

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_stale_fence, (self.key, self.seen, self.got)


def _rebuild_stale_fence(key: str, seen: int, got: int) -> StaleFence:
    return StaleFence(key, seen=seen, got=got)


class BackendError(LockError):
    """The lock server failed.

    `definite` tells whether the operation certainly did not happen. A request whose reply was
    lost is indefinite: it may have taken effect.
    """

    definite: bool

    def __init__(self, message: str, *, definite: bool = False) -> None:
        super().__init__(message)
        self.definite = definite


class BackendUnavailable(BackendError):
    """The server cannot be reached, or did not answer in time."""


class QuorumError(BackendError):
    """Too few nodes answered. `causes` holds what each failed node said."""

    causes: ExceptionGroup[Exception] | None

    def __init__(self, message: str, causes: Sequence[Exception] = (), *, definite: bool = False) -> None:
        super().__init__(message, definite=definite)
        self.causes = ExceptionGroup(message, list(causes)) if causes else None
        if self.causes is not None:
            self.__cause__: BaseException | None = self.causes
