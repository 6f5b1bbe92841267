"""The safety argument: the resource never runs backwards on a fencing token.

A key's mark is a pair, compared as pairs are: the highest token seen, and the sequence number of
that holder's last accepted write. A write must exceed the mark and then becomes it. A fenced read
lifts the mark to just below its holder's first write: older holders can no longer write, the
reader still can. Everything here is a pure function; the stores keep the marks.
"""

import enum
import struct
from typing import NamedTuple

READ = -1
"""The sequence number of a mark that a read raised: below every write of the same token."""

MAX_INTEGER = 2**63 - 1
"""The largest token, sequence number and version: what a signed 64-bit column holds."""


class Mark(NamedTuple):
    token: int = 0
    seq: int = READ


def raised(mark: Mark, token: int, seq: int) -> Mark | None:
    """The mark after an operation of the holder of `token`, or None when it must be refused.

    `seq` numbers the holder's writes from 0; a read passes `READ`.
    """
    if seq == READ:
        return max(mark, Mark(token, READ)) if token >= mark.token else None
    return Mark(token, seq) if (token, seq) > mark else None


def lowered(mark: Mark, token: int) -> Mark:
    """The mark after an operator has taken back what a holder of a made-up token had raised it to.

    From then on the holder of `token`, and later ones, may write again.
    """
    return min(mark, Mark(token, READ))


class Fencing(enum.Enum):
    """What the resource enforces. Short of `ON` each mode loses updates, which is its purpose."""

    ON = "on"
    """Every operation that carries a token."""
    WRITES = "writes"
    """Writes only: a read's token neither raises the mark nor is refused."""
    OFF = "off"
    """Nothing: tokens are recorded."""


class Outcome(enum.Enum):
    """What became of a write; also the label of its metric and its word in the log."""

    ACCEPTED = "accepted"
    STALE = "stale"
    """The token runs backwards."""
    CONFLICT = "conflict"
    """The key is not at the version that the write expects."""
    REPEATED = "repeated"
    """As stale, but this very write was accepted before: an earlier reply must have been lost."""


class Write(NamedTuple):
    """A request to store `body`. A `token` of 0 means that none was sent."""

    key: str
    token: int
    seq: int
    body: bytes
    digest: str
    started: int
    """When the request arrived, in nanoseconds of the monotonic clock."""
    expected: int | None = None
    """Only if the key is at this version; 0 is a key that was never written."""
    owner: str | None = None


REMEMBERED = 16
"""How many accepted writes of a key are remembered, so that a repetition gets a true answer."""

_ENTRY = struct.Struct(">QQ16s")
RECENT_BYTES = REMEMBERED * _ENTRY.size


def entry(write: Write) -> bytes:
    """How an accepted write is remembered: whose it was, which of its holder's, and what it said."""
    return _ENTRY.pack(write.token, write.seq, bytes.fromhex(write.digest))


class State(NamedTuple):
    """A key, all but its value: the mark, and the accepted write that the value is from."""

    mark: Mark = Mark()
    token: int = 0
    seq: int = 0
    version: int = 0
    digest: str = ""
    recent: bytes = b""
    """The entries of the last accepted writes, the newest first."""


def judge(fencing: Fencing, state: State, write: Write) -> tuple[Outcome, State]:
    """What becomes of the write, and of the key."""
    mark = raised(state.mark, write.token, write.seq)
    if mark is None and fencing is not Fencing.OFF:
        return Outcome.REPEATED if _was_accepted(state, write) else Outcome.STALE, state
    if write.expected is not None and write.expected != state.version:
        return Outcome.CONFLICT, state
    recent = (entry(write) + state.recent)[:RECENT_BYTES]
    after = State(mark or state.mark, write.token, write.seq, state.version + 1, write.digest, recent)
    return Outcome.ACCEPTED, after


def is_remembered(state: State, write: Write) -> bool:
    """Would the write be known if it had been accepted? Not when it is older than all that are.

    Accepted writes rise, hence those that were forgotten lie below those that were not.
    """
    known = len(state.recent) // _ENTRY.size
    if state.version <= known:
        return True
    oldest = _ENTRY.unpack_from(state.recent, (known - 1) * _ENTRY.size)[:2] if known else state[1:3]
    return (write.token, write.seq) >= oldest


def _was_accepted(state: State, write: Write) -> bool:
    if (write.token, write.seq, write.digest) == (state.token, state.seq, state.digest):
        return True
    wanted = entry(write)
    size = _ENTRY.size
    return any(state.recent[i : i + size] == wanted for i in range(0, len(state.recent), size))
