"""What a client says about itself in Redis, for anyone who inspects its locks: `client:{session}`, a hash.

The plain path pays for it once: the record is sent ahead of a client's first request, and nobody waits for
the answer. After that only an owner with a label of its own, and a lock that is held until its first renewal,
is told of. The record ends with the client; one that died leaves it for an hour.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Sequence
from typing import Any, NamedTuple, Protocol

from asyncdlock.backends.redis.background import Background
from asyncdlock.backends.redis.keys import client_key
from asyncdlock.backends.redis.scripts import Script
from asyncdlock.errors import BackendError
from asyncdlock.types import SESSION_CHARS, Claim, Grant, label_of, validity

TELL = Script("client_tell.lua")
END = Script("client_end.lua")
READ = Script("client_read.lua")

_LASTS = 3600.0
_TELL_AGAIN = _LASTS / 3
_FAREWELL = 0.25  # seconds for the last request to a server that may be gone
_MOST_NOTED = 100_000
_MOST_AT_ONCE = 2000  # words: Lua's stack is not endless, nor shall the server be busy for long


class Sender(Protocol):
    """Who brings the record to its server, or to several."""

    def send(self, script: Script, key: str, request: bytes) -> Awaitable[Any]: ...

    async def run_again(self, error: BackendError, script: Script, key: str, request: bytes) -> Any: ...


class ClientRecord:
    """The record of one client. `fences`: how many each of its grants takes."""

    __slots__ = (
        "_background",
        "_fences",
        "_forgotten",
        "_mixed",
        "_sender",
        "_timer",
        "label",
        "noted",
        "session",
        "ttl",
    )

    def __init__(self, sender: Sender, background: Background, *, fences: int) -> None:
        self._sender = sender
        self._background = background
        self._fences = fences
        self._forgotten: list[str] = []
        self._mixed = False  # locks of several TTLs
        self._timer: asyncio.TimerHandle | None = None
        self.label: str = ""
        self.session: str = ""
        self.ttl: float = math.nan
        """The TTL that the record names; a claim with another one, or the first, is to be told of."""
        self.noted: dict[str, bool] = {}
        """Owners that the record tells of, and whether it says since when they hold their lock."""

    def tell(self, claim: Claim) -> None:
        """Tell of the client itself, of another TTL, or of an owner with a label of its own."""
        fields: list[str | int] = []
        if math.isnan(self.ttl):
            self.session = claim.session
            self.ttl = claim.ttl
            fields += ["label", self.label, "fences", self._fences, "ttl", self._told_ttl]
            self._timer = asyncio.get_running_loop().call_later(_TELL_AGAIN, self._expire)
        elif claim.ttl != self.ttl and not self._mixed:
            self._mixed = True
            fields += ["ttl", self._told_ttl]
        label = label_of(claim.owner)
        if label is not None:
            self._note(claim.owner, since=False)
            fields += [f"label {claim.owner}", label]
        if fields:
            self._send(claim.ttl, *fields)

    def tell_since(self, grants: Sequence[Grant]) -> None:
        """Before they are renewed for the first time: until then the end of a lease tells when it began."""
        fields: list[str | int] = []
        ago = time.time() - time.monotonic()
        for grant in grants:
            owner = grant.claim.owner
            if not self.noted.get(owner):
                self._note(owner, since=True)
                granted = ago + grant.expires_at - validity(grant.claim.ttl)
                fields += [f"since {owner}", f"{granted:.3f} {grant.fence}"]
        for start in range(0, len(fields), _MOST_AT_ONCE):
            longest = max(grant.claim.ttl for grant in grants)
            self._send(longest, *fields[start : start + _MOST_AT_ONCE])

    def forget(self, owner: str) -> None:
        """An owner in `noted` holds nothing any more: said of all of this turn of the loop together."""
        del self.noted[owner]
        if not self._forgotten:
            asyncio.get_running_loop().call_soon(self._send_forgotten)
        self._forgotten.append(owner)

    def _send_forgotten(self) -> None:
        owners, self._forgotten = self._forgotten, []
        self._send(0.0, removed=" ".join(owners))

    async def aclose(self) -> None:
        """Take the record away, if the server answers at once."""
        if self._timer is not None:
            self._timer.cancel()
        if self.session:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FAREWELL):
                    await self._deliver(END, END.request(1, client_key(self.session)))

    @property
    def _told_ttl(self) -> str:
        return "0" if self._mixed else repr(float(self.ttl))

    def _expire(self) -> None:
        self.ttl = math.nan

    def _note(self, owner: str, *, since: bool) -> None:
        if len(self.noted) >= _MOST_NOTED:
            self.noted.clear()
        self.noted[owner] = since

    def _send(self, ttl: float, *fields: str | int, removed: str = "") -> None:
        lasts = int(1000 * max(_LASTS, 2 * ttl))
        request = TELL.request(1, client_key(self.session), lasts, removed, *fields)
        with contextlib.suppress(BackendError):
            # At once, so that it arrives before the request that is about to be sent.
            sent = self._sender.send(TELL, self.session, request)
            self._background.start(self._finish(sent, TELL, request), "tell of this client")

    async def _deliver(self, script: Script, request: bytes) -> None:
        with contextlib.suppress(BackendError):
            await self._finish(self._sender.send(script, self.session, request), script, request)

    async def _finish(self, sent: Awaitable[Any], script: Script, request: bytes) -> None:
        # Whoever may not write it, or cannot, goes without: it is for display.
        with contextlib.suppress(BackendError):
            try:
                await sent
            except BackendError as error:
                await self._sender.run_again(error, script, self.session, request)


class Recorded:
    """A backend that tells of its client."""

    _record: ClientRecord

    @property
    def label(self) -> str:
        return self._record.label

    @label.setter
    def label(self, label: str) -> None:
        self._record.label = label


class OwnerRecord(NamedTuple):
    """What a client tells of one of its owners; all of it unknown if it tells nothing."""

    label: str | None = None
    fences: int | None = None
    ttl: float | None = None
    since: float | None = None
    fence: int | None = None


def session_of(owner: str) -> str | None:
    """The session of an owner that is one of ours, else `None`."""
    return owner[:SESSION_CHARS] if len(owner) == 36 and owner[14:15] == "8" else None


def read_request(session: str, owners: Sequence[str]) -> bytes:
    return READ.request(1, client_key(session), *owners)


def parse(owners: Sequence[str], reply: Sequence[bytes]) -> dict[str, OwnerRecord]:
    """What the answer to `read_request` says of each owner."""
    label, fences, ttl, *of_owners = [word.decode() for word in reply]
    told: dict[str, OwnerRecord] = {}
    for owner, own_label, granted in zip(owners, of_owners[::2], of_owners[1::2], strict=True):
        since, _, fence = granted.partition(" ")
        told[owner] = OwnerRecord(
            label=own_label or label or None,
            fences=int(fences) if fences else None,
            ttl=float(ttl) if ttl and ttl != "0" else None,
            since=float(since) if since else None,
            fence=int(fence) if fence else None,
        )
    return told
