"""A lock that was won for a turn: a term of a leader, a tick of a job."""

from types import TracebackType

from asyncdlock._hold import Guard, give_back
from asyncdlock.errors import LockError
from asyncdlock.handle import Handle


class Turn:
    """`async with turn as handle:` runs the body, once, under the dead man's switch of `hold()`."""

    __slots__ = ("_guard", "_handle")

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._guard: Guard | None = None

    @property
    def key(self) -> str:
        """The lock's name as the caller gave it, without the client's prefix."""
        return self._handle.key

    @property
    def fence(self) -> int:
        """Larger than that of every earlier turn: attach it to every write."""
        return self._handle.fence

    async def __aenter__(self) -> Handle:
        """:raises LockError: it was entered before."""
        if self._guard is not None:
            raise LockError(f"this turn of {self.key!r} was entered before", key=self.key, fence=self.fence)
        self._guard = Guard(self._handle)
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """:raises LockLost: the lease was lost while the body ran."""
        assert self._guard is not None, "left without having been entered"
        await self._guard.leave(error)
        return False

    async def _finish(self) -> None:
        """Called before the next turn.

        :raises LockError: this one was never entered; its lock is given back.
        """
        if self._guard is None:
            await give_back(self._handle)
            raise LockError(
                f"a turn of {self.key!r} was not used: enter each one with `async with`",
                key=self.key,
                fence=self.fence,
            )
