"""ReentrantLock: a lock that its holder may enter again; the outermost exit gives it back.

The hold count lives here and not on the server. A count on the server is a second thing that a lease
can take away: when it has expired, entering again finds nothing, counts from one, and looks like
success. A local count cannot outlive what it counts, because each entry asks the handle first.
"""

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from asyncdlock._hold import Hold
from asyncdlock.errors import LockError
from asyncdlock.handle import Handle

if TYPE_CHECKING:
    from asyncdlock.client import LockClient


class _Inside:
    """One task inside: how deep, and what the outermost exit has to leave."""

    __slots__ = ("depth", "handle", "hold")

    def __init__(self, hold: Hold, handle: Handle) -> None:
        self.hold = hold
        self.handle = handle
        self.depth = 1


class ReentrantLock:
    """`async with lock as handle:`, even if the same task is already inside.

    The first entry of a task is `LockClient.hold`, and so is its exit. Entries inside it are local: no
    request, the same handle, the same fence. One holding has one token, however deep it is. They do
    not extend the lease either; only a renewal that the server confirmed does.

    The lock is held by a *task*. Any other task waits its turn, even a child of the holder: it may
    outlive the block that it was started in, and would go on believing itself inside. A holder that
    waits for such a child waits for itself, so give `timeout`, or pass the child the handle. Before
    Python 3.12 `asyncio.wait_for` runs a coroutine in such a child; `asyncio.timeout` does not.

    Share one object between the functions that call each other: two objects of one key are two
    holders. Entering again inside does not help against losing the lease; see docs/safety.md.
    """

    __slots__ = ("_client", "_holdings", "_max_hold", "_timeout", "_ttl", "key")

    key: str

    def __init__(
        self,
        client: "LockClient",
        key: str,
        *,
        ttl: float = 10.0,
        timeout: float | None = None,
        max_hold: float | None = None,
    ) -> None:
        self.key = key
        self._client = client
        self._ttl = ttl
        self._timeout = timeout
        self._max_hold = max_hold
        # By task, not one holder: a task that lost its lease may still be inside when the next one is.
        self._holdings: dict[asyncio.Task[Any], _Inside] = {}

    @property
    def depth(self) -> int:
        """How many times the current task is inside; 0 when it does not hold the lock."""
        holding = self._holdings.get(_current_task())
        return 0 if holding is None else holding.depth

    async def __aenter__(self) -> Handle:
        """Wait for the lock, or step further inside.

        An entry that is cancelled leaves nothing behind; one further inside cannot be, it never waits.

        :raises LockLost: this task is inside, but its lease is lost. Until it has left the outermost
            block it cannot acquire anew: what it did there may have been overtaken.
        :raises AcquireTimeout, InvalidKey, ValueError, QueueFull, BackendError: as `LockClient.acquire`.
        """
        task = _current_task()
        holding = self._holdings.get(task)
        if holding is not None:
            holding.handle.check()
            holding.depth += 1
            return holding.handle
        hold = self._client.hold(self.key, ttl=self._ttl, timeout=self._timeout, max_hold=self._max_hold)
        handle = await hold.__aenter__()
        self._holdings[task] = _Inside(hold, handle)
        task.add_done_callback(self._abandoned)
        return handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Step outside; the outermost exit gives the lock back, as that of `LockClient.hold` does.

        When cancelled, giving it back goes on in the background.

        :raises LockLost: the lease was lost inside. Inner blocks say so too: their code cannot know
            whether it runs in the outermost one.
        :raises LockError: this task is not inside.
        """
        task = _current_task()
        holding = self._holdings.get(task)
        if holding is None:
            raise LockError(f"lock {self.key!r} is left by a task that is not inside it")
        holding.depth -= 1
        if holding.depth:
            if kind is None:
                holding.handle.check()
            return
        # Before the first await: from here on this task is outside, whatever becomes of the release.
        del self._holdings[task]
        task.remove_done_callback(self._abandoned)
        await holding.hold.__aexit__(kind, error, trace)

    def _abandoned(self, task: "asyncio.Task[Any]") -> None:
        """The task ended inside, as in an asynchronous generator that nobody closed: nobody can leave."""
        holding = self._holdings.pop(task).handle._holding
        holding.deadman = None
        holding.lose("the task that held it has ended")
        holding.core.cleanup.give_back(holding.grant.claim)


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None, "only a task can hold a lock"
    return task
