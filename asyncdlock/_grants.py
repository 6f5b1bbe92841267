"""Makes sure that a grant can be relied on: that it came in time, and that its fence rises."""

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from asyncdlock._core import Core
from asyncdlock._fence_memory import FenceMemory
from asyncdlock.errors import BackendError, BackendUnavailable
from asyncdlock.types import Claim, Grant, NamedOwner, label_of

_log = logging.getLogger("asyncdlock")

_TRIES = 4
_TOO_SLOW = "never for longer than the answer took: its ttl of {ttl:g} s is too short for this server"
_LOSES_DATA = "its fences ran backwards each time: its server goes on losing data"

Verb = Callable[[Claim], Awaitable[Grant | None]]


class Grants:
    """Judges the grants of one client, and asks again for those that are of no use."""

    __slots__ = ("_core", "_fences", "_new_owner", "rises")

    def __init__(self, core: Core, new_owner: Callable[[], str]) -> None:
        self._core = core
        self._new_owner = new_owner
        self._fences = FenceMemory()
        self.rises = self._fences.rises
        """Note the fence of a grant; whether it is above what was seen before."""

    def highest(self, key: str) -> int:
        """The highest fence of `key` that this client remembers; 0 when it has seen none."""
        return self._fences.highest(key)

    async def win(self, verb: Verb, claim: Claim) -> Grant | None:
        """What `verb` grants, once it is a grant to rely on."""
        sound = self._judge(claim)
        grant = await verb(claim)
        return grant if grant is None or sound(grant) else await self.win_again(verb, grant)

    def _judge(self, claim: Claim) -> Callable[[Grant], bool]:
        """What tells whether a grant that is asked for now can be relied on."""
        if type(claim) is Claim:
            return self._sound
        return partial(self._sound_beside_others, self._fences.highest(claim.key))

    def _sound(self, grant: Grant) -> bool:
        """Whether the lease can still be relied on, and its fence is above all that were seen."""
        return grant.expires_at > time.monotonic() and self.rises(grant.claim.key, grant.fence)

    def _sound_beside_others(self, floor: int, grant: Grant) -> bool:
        """The same for one of several holders: what they are granted at the same time comes in any order.

        So the fence must be above all that were seen when it was asked for.
        """
        self.rises(grant.claim.key, grant.fence)
        return grant.expires_at > time.monotonic() and grant.fence > floor

    async def win_again(self, verb: Verb, grant: Grant) -> Grant | None:
        """Give back a grant that is not sound, and ask for another."""
        core = self._core
        key, first_owner, ttl = grant.claim
        label = label_of(first_owner)
        why = ""
        for _ in range(_TRIES):
            try:
                if grant.expires_at <= time.monotonic():
                    # The answer took longer than the lease lasts: returning it would be a lie.
                    why = _TOO_SLOW.format(ttl=ttl)
                elif await self._counter_raised(grant):
                    why = _LOSES_DATA
                else:
                    return grant
                await core.backend.release(grant.claim)
            except BaseException as error:
                self._still_granted(grant, first_owner, error)
                raise
            # With an owner of its own: late requests of the first try cannot touch the next one.
            owner = self._new_owner()
            claim = grant.claim.again(owner if label is None else NamedOwner.of(owner, label))
            sound = self._judge(claim)
            try:
                again = await verb(claim)
            except BaseException:
                core.cleanup.give_back(claim, may_wait=True)
                raise
            if again is None or sound(again):
                return again
            grant = again
        in_vain = BackendUnavailable(f"{key!r} was granted {_TRIES + 1} times, but {why}")
        self._still_granted(grant, first_owner, in_vain)
        raise in_vain

    def _still_granted(self, grant: Grant, first_owner: str, error: BaseException) -> None:
        """The call ends with `error`, and with `grant` on the server, whatever `error` says of the repair."""
        if isinstance(error, BackendError):
            error.definite = False  # so the caller's own claim will be given back
        if grant.claim.owner != first_owner:
            self._core.cleanup.give_back(grant.claim)

    async def _counter_raised(self, grant: Grant) -> bool:
        """The server handed out a fence that this client has seen pass: it lost data.

        Where the counter can be raised above what we know, do so before the lock is given back and taken
        again: neither this caller nor the next one sees its fences run backwards. Elsewhere the resource
        will refuse them.
        """
        core = self._core
        key = grant.claim.key
        highest = self._fences.highest(key)
        core.metrics.fence_regressions += 1
        _log.error(
            "the fence of %r went back from %d to %d: its server lost data",
            *(key, highest, grant.fence),
            extra={"key": key[len(core.prefix) :], "fence": grant.fence},
        )
        if not core.backend.capabilities.fence_floor:
            return False
        await core.backend.raise_fence(key, highest)
        return True
