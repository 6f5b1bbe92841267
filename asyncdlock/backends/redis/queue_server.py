"""What the queue asks of its server: scripts with arguments in common, and messages on our channel."""

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Protocol

from asyncdlock.backends.redis.base import ScriptRunner
from asyncdlock.backends.redis.keys import companion, fence_key
from asyncdlock.backends.redis.requests import milliseconds, terms
from asyncdlock.backends.redis.scripts import Script, words
from asyncdlock.types import Claim

ACQUIRE = Script("queue_common.lua", "queue_acquire.lua")
WATCH = Script("queue_common.lua", "queue_watch.lua")
RELEASE = Script("queue_common.lua", "queue_release.lua", done=1)


# Keys that many wait for, and what is said of each, are few: their words are made once.


@lru_cache(maxsize=4096)
def _names(key: str) -> str:
    """The lock and its companions."""
    return words(4, key, fence_key(key), companion("queue", key), companion("sessions", key))


_words = lru_cache(maxsize=4096)(words)


class MessageRunner(ScriptRunner, Protocol):
    """A server or cluster that also brings the messages of our channel."""

    publish_verb: str
    count_verb: str

    def on_message(self, told: Callable[[str], None], lost: Callable[[], None]) -> None:
        """Call `told` with each message, and `lost` when a connection is lost."""
        ...

    def channel_prefix(self, key: str) -> str:
        """What precedes a session in the name of its channel for `key`."""
        ...

    def listening(self, claim: Claim) -> bool:
        """Whether no message for a waiter with this claim can be missed."""
        ...

    async def listen(self, claim: Claim) -> None:
        """Return when that is so."""
        ...

    def stop_listening(self, claim: Claim) -> None:
        """Nobody of this session waits for the claim's key any more."""
        ...


class QueueServer:
    """Runs the scripts of the queue on a server or cluster, and listens there."""

    def __init__(self, messages: MessageRunner, *, patience: float) -> None:
        self.messages = messages
        self._settings = words(milliseconds(patience), messages.publish_verb)
        self._deaf = False

    def run(self, script: Script, claim: Claim, reserve: int, *more: str | int) -> Coroutine[Any, Any, Any]:
        """Run `script` for a claim that gets `reserve` fences beside its own.

        :raises BackendError: as the server does.
        """
        key, owner, ttl = claim
        messages = self.messages
        request = (
            f"{script.start(11 + len(more))}{_names(key)}"
            f"${len(owner)}\r\n{owner}\r\n{terms(ttl, reserve + 1)}{self._settings}"
            f"{_words(messages.channel_prefix(key), *more)}"
        )
        return messages.run(script, key, request.encode("latin-1"))

    def listening(self, claim: Claim) -> bool:
        """Whether a grant to this claim would be heard of."""
        return not self._deaf and self.messages.listening(claim)

    async def listen(self, claim: Claim) -> None:
        """Listen to our channel; refused or cancelled, the next who would wait tries again.

        :raises BackendError: not permitted, or the server cannot be reached.
        """
        try:
            await self.messages.listen(claim)
        except BaseException:
            self._deaf = True
            raise
        self._deaf = False
