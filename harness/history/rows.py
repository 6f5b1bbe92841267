"""The recorded facts of a run: what a line of a history file can be.

Four kinds of facts: a `Row` per arrival (what the client saw), a `Decision` per write that reached
the resource (what the resource did, in its own order), a `Value` per key that was read back at the end,
and a `Fault` per thing broken on purpose.
All times are integer nanoseconds of the monotonic clock, relative to the run's start.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal

SCHEMA = "asyncdlock-history/1"

Outcome = Literal["ok", "timed_out", "failed", "lost", "stale", "abandoned"]
WriteOutcome = Literal["accepted", "stale", "unknown", "failed", "none"]


# A mutable dataclass with slots, because it is the cheapest thing that a contender can fill in as it
# goes along: 330 ns to make, 20 ns a field. A NamedTuple costs as much to make, and would have to be
# made in every `except` branch; a class with a `__dict__` costs more to fill.
@dataclass(slots=True)
class Row:
    """One arrival: made when it is due, filled in by its contender, recorded when it is over."""

    id: int
    """Unique over all processes of the run."""
    process: int
    contender: int
    """Which member of the fleet served it; -1 while none does."""
    key: str
    intended: int
    """When the arrival was due."""
    dispatched: int | None = None
    """When a contender took it."""
    called: int | None = None
    """Just before `acquire`."""
    granted: int | None = None
    """When `acquire` returned."""
    write_sent: int | None = None
    write_done: int | None = None
    """When the reply to the fenced write arrived; `None` when none did."""
    released: int | None = None
    """When `release` returned."""
    owner: str | None = None
    fence: int | None = None
    outcome: Outcome = "abandoned"
    """`abandoned`: the run ended first."""
    write: WriteOutcome = "none"
    """`unknown`: no reply, so it may have happened; `failed`: it certainly did not."""
    seen: int | None = None
    """The mark that the resource named when it refused the write."""
    paused: bool = False
    """This holder was frozen past its TTL on purpose."""
    error: str | None = None
    releasing: int | None = None
    """Just before `release`: until then the holder relied on the lock."""
    valid_until: int | None = None
    """Until when the lock had promised to hold, as the handle knew just before `release`, or else when it
    was granted."""
    shared: bool = False
    """Others might hold the lock at the same time: a reader, or who had a permit."""


BODY = "{id} {owner}"
"""What a contender writes, as a template over its row; the header's `config` names it as `body`."""


def body_of(row: Row) -> bytes:
    """What this arrival's contender writes to the resource: `BODY`."""
    return f"{row.id} {row.owner}".encode(errors="surrogatepass")


def digest(body: bytes) -> str:
    """How log and history name a body without keeping it: 16 bytes of BLAKE2b, in hex."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()


@dataclass(slots=True)
class Decision:
    """One write that reached the resource, as the resource itself logged it."""

    key: str
    seq: int
    """Position in the resource's own order, over all keys."""
    token: int
    """0: the write carried none."""
    fence_seq: int = 0
    outcome: str = "accepted"
    """`accepted`, `stale`, `repeated` (the same write again, its first reply lost) or `conflict`."""
    seen: int | None = None
    """The highest token that the resource had seen before this write."""
    version: int | None = None
    """How many writes of the key were accepted so far, this one included."""
    started: int = 0
    decided: int = 0
    owner: str | None = None
    digest: str | None = None

    @property
    def accepted(self) -> bool:
        return self.outcome == "accepted"


@dataclass(slots=True, frozen=True)
class Value:
    """What a key held when the run was over, read back from the resource."""

    key: str
    version: int
    """0: it was never written."""
    digest: str


@dataclass(slots=True, frozen=True)
class Fault:
    """Something that was broken on purpose, so that reports can draw it and readers can explain."""

    name: str
    at: int
    until: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def affects(self, effect: str, key: str) -> bool:
        """Whether an accident `frees` or `forgets` this key: a detail that names one, or is true for all."""
        reach = self.details.get(effect)
        return reach is True or reach == key


@dataclass(slots=True, frozen=True)
class Header:
    """What the rows after it are: the first line of a file."""

    columns: tuple[str, ...] = ()
    kind: Literal["arrivals", "resource"] = "arrivals"
    started: str = ""
    """Wall clock, for people only."""
    origin_ns: int = 0
    """The monotonic clock at the run's start."""
    times: Literal["relative", "monotonic"] = "relative"
    """Whether `origin_ns` has already been subtracted from the rows' times."""
    process: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA


@dataclass(slots=True, frozen=True)
class Note:
    """A remark of whoever wrote the file."""

    text: str


@dataclass(slots=True, frozen=True)
class End:
    """The writer closed the file in good order after this many rows."""

    rows: int


@dataclass(slots=True, frozen=True)
class Damage:
    """Something that no writer of ours leaves behind: what it is, in words."""

    text: str
    row: bool = False
    """It stands where a row did."""


Line = Header | Row | Decision | Value | Fault | Note | End | Damage

ROW_COLUMNS: tuple[str, ...] = tuple(column.name for column in fields(Row))
DECISION_COLUMNS: tuple[str, ...] = tuple(column.name for column in fields(Decision))

_HEADER_FIELDS = tuple(column.name for column in fields(Header))
_DECISION_DEFAULTS = {column.name: column.default for column in fields(Decision)}
# A row written by hand may leave out who served it.
_ROW_DEFAULTS = {column.name: column.default for column in fields(Row)} | {"process": 0, "contender": -1}


def from_list(columns: tuple[str, ...], values: list[Any]) -> Row | Decision:
    """The row of a JSON array, given its header's columns.

    :raises ValueError: no such columns, or a value is missing.
    """
    if not columns:
        raise ValueError("a row before the header that names its columns")
    if len(values) != len(columns):
        raise ValueError(f"a row of {len(values)} values under {len(columns)} columns")
    if columns == ROW_COLUMNS:
        return Row(*values)
    if columns == DECISION_COLUMNS:
        return Decision(*values)
    line = from_mapping(dict(zip(columns, values, strict=True)))
    if not isinstance(line, Row | Decision):
        raise ValueError("a row that is neither an arrival nor a decision")
    return line


def from_mapping(value: Any) -> Line:
    """The line of a JSON object. What a newer version added is skipped, what is absent gets its default.

    :raises ValueError: not an object, or none that we know.
    """
    if not isinstance(value, dict):
        raise ValueError("expected a JSON array or object")
    if "schema" in value:
        if value["schema"] != SCHEMA:
            raise ValueError(f"written as {value['schema']!r}, this version reads {SCHEMA!r}")
        return _header(value)
    if "seq" in value:
        if "accepted" in value and "outcome" not in value:
            value = value | {"outcome": "accepted" if value["accepted"] else "stale"}
        return Decision(**_known(value, _DECISION_DEFAULTS))
    if "id" in value:
        return Row(**_known(value, _ROW_DEFAULTS))
    if "fault" in value:
        rest = {name: entry for name, entry in value.items() if name not in ("fault", "at", "until")}
        return Fault(value["fault"], value["at"], value.get("until"), rest)
    if "value" in value:
        return Value(value["value"], value["version"], value["digest"])
    if "note" in value:
        return Note(value["note"])
    if "end" in value:
        return End(value["end"])
    raise ValueError(f"unknown kind of line with {', '.join(value) or 'nothing in it'}")


def _header(value: Mapping[str, Any]) -> Header:
    known = {name: value[name] for name in _HEADER_FIELDS if name in value}
    header = Header(**(known | {"columns": tuple(value.get("columns", ()))}))
    if type(header.origin_ns) is not int or not isinstance(header.config, dict):
        raise ValueError("a header whose origin_ns is no integer, or whose config is no object")
    if header.kind not in ("arrivals", "resource") or header.times not in ("relative", "monotonic"):
        raise ValueError(f"a header of {header.kind!r} with {header.times!r} times: neither is known")
    return header


def _known(value: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    missing = [name for name, default in defaults.items() if default is MISSING and name not in value]
    if missing:
        raise ValueError(f"a row without {', '.join(missing)}")
    return {name: value.get(name, default) for name, default in defaults.items()}
