"""What the queue asks of its server: scripts, what they reply, and messages on our channel."""

from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from asyncdlock.backends.redis.base import ScriptRunner
from asyncdlock.backends.redis.fence_counter import FenceCounter
from asyncdlock.backends.redis.keys import companion, fence_key, key_of, lock_name, shard_key
from asyncdlock.backends.redis.requests import milliseconds, terms
from asyncdlock.backends.redis.scripts import Script, words
from asyncdlock.types import Claim, SharedClaim

_COMMON = "shared.lua", "queue_common.lua", "queue_shared.lua"


class QueueScripts(NamedTuple):
    """The scripts of the queue, with one kind of fence counters."""

    acquire: Script
    acquire_shared: Script
    watch: Script
    release: Script
    force_release: Script
    renew_shared: Script

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, counter: FenceCounter) -> "QueueScripts":
        return cls(
            acquire=counter.granting(*_COMMON, "queue_acquire.lua", "queue_join.lua"),
            acquire_shared=counter.granting(*_COMMON, "queue_acquire_shared.lua", "queue_join.lua"),
            watch=counter.granting(*_COMMON, "queue_watch.lua"),
            release=counter.granting(*_COMMON, "queue_release.lua", once=True),
            force_release=counter.granting(*_COMMON, "queue_force_release.lua", lifts=True, once=True),
            renew_shared=counter.renewing("shared.lua", "renew_shared.lua"),
        )


PATIENCE = 3.0

_DO_NOT_JOIN = 0
_ANY_NUMBER = -1


class Handed(NamedTuple):
    """A grant to a waiter of our own session, told by the reply to another request of ours."""

    owner: str
    last_fence: int

    @classmethod
    def parse(cls, words: list[Any]) -> "Handed | None":
        return cls(words[0].decode(), int(words[1])) if words and words[0] is not None else None


class Joined(NamedTuple):
    """The reply to an acquire that was not granted."""

    place: int
    """In the order of arrival; 0: not in the queue."""
    pttl: int
    """Of the holder's lease, in ms; -1: it never ends."""
    server_ms: int
    handed: Handed | None

    @classmethod
    def parse(cls, reply: list[Any]) -> "Joined":
        place, pttl, now, *handed = reply
        return cls(place, pttl, now, Handed.parse(handed))


class Watched(NamedTuple):
    """The reply to a look at the queue."""

    waits: bool
    """Whether the waiter that was asked about is in the queue, or has the lock now."""
    pttl: int
    server_ms: int
    tells: bool
    """Whether the holder will pass the lock on by a message."""
    holder: str
    """If it is of our session, else empty."""
    handed: Handed | None

    @classmethod
    def parse(cls, reply: list[Any]) -> "Watched":
        waits, pttl, now, tells, holder, *handed = reply
        return cls(bool(waits), pttl, now, bool(tells), holder.decode(), Handed.parse(handed))


class Told(NamedTuple):
    """A message: a grant to one of our waiters."""

    owner: str
    last_fence: int
    server_ms: int
    key: str

    @classmethod
    def parse(cls, message: bytes) -> "Told | None":
        """`owner fence time lock`; None for anything else, for everybody may publish."""
        try:
            owner, fence, now, lock = message.decode().split(" ", 3)
            return cls(owner, int(fence), int(now), key_of(lock))
        except ValueError:
            return None


# Keys that many wait for, and what is said of each, are few: their words are made once.


@lru_cache(maxsize=4096)
def _names(key: str) -> str:
    """The lock and its companions."""
    return words(4, *_own_names(key))


@lru_cache(maxsize=4096)
def _names_and_shard(key: str) -> str:
    return words(5, *_own_names(key), shard_key(key))


def _own_names(key: str) -> tuple[str, ...]:
    return lock_name(key), fence_key(key), companion("queue", key), companion("sessions", key)


@lru_cache(maxsize=4096)
def _frame(
    script: Script,
    sharded: bool,
    ttl: float,
    fences: int | str,
    settings: str,
    channel: str,
    *more: str | int,
) -> tuple[str, str]:
    """What precedes the names and what follows the owner."""
    return script.start(11 + sharded + len(more)), f"{terms(ttl, fences)}{settings}{words(channel, *more)}"


class MessageRunner(ScriptRunner, Protocol):
    """A server or cluster that also brings the messages of our channel."""

    publish_verb: str
    count_verb: str
    stays_listening: bool
    """Whether one channel serves all keys, and is kept once it is open."""

    def on_message(self, told: Callable[[bytes], None], lost: Callable[[], None]) -> None:
        """Call `told` with each message, and `lost` when a connection is lost."""
        ...

    def channel_prefix(self, key: str) -> str:
        """What precedes a session in the name of its channel for `key`."""
        ...

    def listening(self, claim: Claim) -> bool:
        """Whether no message for a waiter with this claim can be missed."""
        ...

    async def listen(self, claim: Claim) -> None:
        """Return when that is so; refused or cancelled, the next who would wait tries again.

        :raises BackendError: not permitted, or the server cannot be reached.
        """
        ...

    def stop_listening(self, claim: Claim) -> None:
        """Nobody of this session waits for the claim's key any more."""
        ...


class QueueServer:
    """Runs the scripts of the queue on a server or cluster.

    `handoffs`: fences that every grant brings beside its own. `max_waiters`: places in the queue of a key.
    All that it returns must be awaited, and raises BackendError as the server does.
    """

    def __init__(
        self,
        messages: MessageRunner,
        *,
        patience: float,
        handoffs: int,
        max_waiters: int | None,
        counter: FenceCounter,
    ) -> None:
        self.messages = messages
        self.patience = patience
        self.handoffs = handoffs
        self.max_waiters = max_waiters
        self._places = _ANY_NUMBER if max_waiters is None else max_waiters
        self._counter = counter
        self._scripts = QueueScripts.of(counter)
        self._sharded = bool(counter.keys(""))
        self._names = _names_and_shard if self._sharded else _names
        self._settings = words(milliseconds(patience), messages.publish_verb)

    def acquire(self, claim: Claim, *, join: bool) -> Coroutine[Any, Any, Any]:
        """Take the lock, or join its queue; the reply is a fence or for `Joined`."""
        script = self._scripts.acquire if type(claim) is Claim else self._scripts.acquire_shared
        return self._run(script, claim, self.handoffs, self._places if join else _DO_NOT_JOIN)

    def try_acquire(self, claim: Claim) -> Coroutine[Any, Any, Any]:
        """Take the lock, or nothing; the reply is a fence or for `Joined`."""
        script = self._scripts.acquire if type(claim) is Claim else self._scripts.acquire_shared
        return self._run(script, claim, self.handoffs, _DO_NOT_JOIN)

    def watch(self, claim: Claim) -> Coroutine[Any, Any, Any]:
        """Look at the queue for a waiter; the reply is for `Watched`."""
        return self._run(self._scripts.watch, claim, self.handoffs, self.messages.count_verb)

    def release(self, claim: Claim) -> Coroutine[Any, Any, Any]:
        """Pass the lock on, or leave the queue; the reply is for `Handed` or whether it was owned."""
        return self._run(self._scripts.release, claim, self.handoffs)

    def force_release(self, claim: Claim, holder: str, above: int) -> Coroutine[Any, Any, Any]:
        """Take the lock from `holder`; the reply is for `Handed` or whether it held it."""
        return self._run(self._scripts.force_release, claim, self.handoffs, above, holder)

    def extend_shared(self, claims: Sequence[Claim]) -> Coroutine[Any, Any, Any]:
        """Extend the leases of claims that hold locks together with others; the reply is 1 or 0 for each."""
        keys = [claim.key for claim in claims]
        script = self._scripts.renew_shared
        counters = self._counter.renewed(keys)
        request = script.request(
            2 * len(claims) + len(counters),
            *map(lock_name, keys),
            *[companion("holders", key) for key in keys],
            *counters,
            *[claim.owner for claim in claims],
            *[milliseconds(claim.ttl) for claim in claims],
        )
        return self.messages.run(script, keys[0], request)

    def give_back(self, key: str, owner: str, last_fence: int) -> Coroutine[Any, Any, Any]:
        """Release this grant and no later one."""
        return self._run(self._scripts.release, Claim(key, owner, 1.0), 0, last_fence)

    def _run(self, script: Script, claim: Claim, reserve: int, *more: str | int) -> Coroutine[Any, Any, Any]:
        key, owner, ttl = claim
        fences = f"1 {claim.permits}" if isinstance(claim, SharedClaim) else reserve + 1
        messages = self.messages
        channel = messages.channel_prefix(key)
        start, end = _frame(script, self._sharded, ttl, fences, self._settings, channel, *more)
        request = f"{start}{self._names(key)}${len(owner)}\r\n{owner}\r\n{end}"
        return messages.run(script, key, request.encode("latin-1"))
