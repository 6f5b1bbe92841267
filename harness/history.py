"""The recorded facts of a run as rows, and the files that carry them.

Three kinds of facts: a `Row` per arrival (what the client saw), a `Decision` per write that reached
the resource (what the resource did, in its own order), and a `Fault` per thing broken on purpose.
Checkers and reports see nothing else.

The file is JSON lines, gzipped when its name ends in `.gz`. Its first line is a header that names the
columns; a row is a JSON array in that order, or an object (so that a person can write one by hand,
leaving out what has a default). Other objects are faults (`{"fault": …}`), notes (`{"note": …}`) and
the end mark (`{"end": …}`), whose absence tells that the writer was killed.

All times of a row are integer nanoseconds of the monotonic clock, relative to the run's start. The
clock is shared by all processes of a machine, so the rows of several processes merge as they are.
"""

import gzip
import io
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

SCHEMA = "asyncdlock-history/1"
HISTORY_FILE = "history.jsonl.gz"
RESOURCE_FILE = "resource.jsonl.gz"

Outcome = Literal["ok", "timed_out", "failed", "lost", "stale", "abandoned"]
WriteOutcome = Literal["accepted", "stale", "unknown", "failed", "none"]


class HistoryError(ValueError):
    """A file is not a history, or a line of it cannot be read. The message names file and line."""


# A mutable dataclass with slots, because it is the cheapest thing that a contender can fill in as it
# goes along: 330 ns to make, 20 ns a field, 20 ns to append. A NamedTuple costs as much to make and
# would have to be made in every `except` branch; a class with a `__dict__` costs more to fill.
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


@dataclass(slots=True)
class Decision:
    """One write that reached the resource, as the resource itself logged it."""

    key: str
    seq: int
    """Position in the resource's own total order."""
    token: int
    fence_seq: int = 0
    accepted: bool = True
    seen: int = 0
    """The mark before this write."""
    started: int = 0
    decided: int = 0
    owner: str | None = None
    digest: str | None = None


@dataclass(slots=True, frozen=True)
class Fault:
    """Something that was broken on purpose, so that reports can draw it and readers can explain."""

    name: str
    at: int
    until: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Header:
    """What the rows after it are: the first line of a file."""

    columns: tuple[str, ...]
    kind: Literal["arrivals", "resource"] = "arrivals"
    schema: str = SCHEMA
    started: str = ""
    """Wall clock, for people only."""
    origin_ns: int = 0
    """The monotonic clock at the run's start."""
    times: Literal["relative", "monotonic"] = "relative"
    """Whether `origin_ns` has already been subtracted."""
    process: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Note:
    """A remark of whoever wrote the file."""

    text: str


@dataclass(slots=True, frozen=True)
class End:
    """The writer closed the file in good order after this many rows."""

    rows: int


Line = Header | Row | Decision | Fault | Note | End
T = TypeVar("T", Row, Decision)

ROW_COLUMNS: tuple[str, ...] = tuple(column.name for column in fields(Row))
DECISION_COLUMNS: tuple[str, ...] = tuple(column.name for column in fields(Decision))

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class HistoryWriter(Generic[T]):
    """Appends rows of one kind to a file, in batches.

        with HistoryWriter(folder / HISTORY_FILE, Row, origin_ns=start, config=config) as writer:
            writer.write(rows)

    Encoding and compressing cost 2 to 3 µs a row (in batches of 64), so call `write` off the hot path:
    `Recorder` does that. Every `write` of more than a second after the last is flushed down to the
    file, so that a killed run leaves a readable prefix.

    :raises OSError: from the constructor and from every method, when the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        kind: type[T],
        *,
        origin_ns: int,
        config: Mapping[str, Any] | None = None,
        process: int | None = None,
        started: datetime | None = None,
        times: Literal["relative", "monotonic"] = "relative",
    ) -> None:
        self.path = path
        self.rows = 0
        columns = ROW_COLUMNS if kind is Row else DECISION_COLUMNS
        self._values = attrgetter(*columns)
        # Level 1: level 6 takes four times as long for 10 % less.
        self._raw: io.BufferedWriter | gzip.GzipFile = (
            gzip.GzipFile(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb")
        )
        self._synced = time.monotonic()
        header: dict[str, Any] = {
            "schema": SCHEMA,
            "kind": "arrivals" if kind is Row else "resource",
            "started": (started or datetime.now(UTC)).isoformat(timespec="milliseconds"),
            "origin_ns": origin_ns,
            "times": times,
            "process": process,
            "config": dict(config or {}),
            "columns": columns,
        }
        self._line(header)
        self._raw.flush()

    def write(self, rows: Iterable[T]) -> None:
        """Append `rows`. The rows are encoded at once and may be changed afterwards."""
        batch = [self._values(row) for row in rows]
        if not batch:
            return
        # One call for many rows takes half the time of one call each. `],[` can only come from
        # between two rows, or from inside a string: then the slow way is the right one.
        text = _encode(batch)
        if text.count("],[") == len(batch) - 1:
            text = text[1:-1].replace("],[", "]\n[")
        else:
            text = "\n".join(map(_encode, batch))
        self._raw.write(text.encode() + b"\n")
        self.rows += len(batch)
        if time.monotonic() - self._synced > 1.0:
            self.sync()

    def fault(self, fault: Fault) -> None:
        """Append a fault line."""
        self._line({"fault": fault.name, "at": fault.at, "until": fault.until, **fault.details})

    def note(self, text: str) -> None:
        """Append a remark."""
        self._line({"note": text})

    def sync(self) -> None:
        """Hand everything written so far to the operating system."""
        self._raw.flush()
        self._synced = time.monotonic()

    def close(self) -> None:
        """Write the end mark and close. Safe to call twice."""
        if not self._raw.closed:
            try:
                self._line({"end": self.rows})
            finally:
                self._raw.close()

    def _line(self, value: Mapping[str, Any]) -> None:
        self._raw.write(_encode(value).encode() + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> Iterator[Line]:
    """Every line of a history file, streamed. A file cut off anywhere gives what came before the cut.

    :raises HistoryError: no history file, or a line in the middle of it that cannot be read.
    :raises OSError: the file cannot be opened.
    """
    columns: tuple[str, ...] = ()
    number = 0
    for lines, last in _batches(path):
        try:
            values = json.loads(b"[" + b",".join(lines) + b"]")
        except ValueError:
            values = _one_by_one(path, lines, number, forgive_last=last)
        for value in values:
            number += 1
            try:
                if type(value) is list:
                    yield _from_list(columns, value)
                    continue
                line = _from_mapping(value)
            except (TypeError, ValueError, KeyError) as error:
                raise HistoryError(f"{path}, line {number}: {error}") from None
            if type(line) is Header:
                columns = line.columns
            yield line


def _from_list(columns: tuple[str, ...], values: list[Any]) -> Row | Decision:
    if columns == ROW_COLUMNS:
        return Row(*values)
    if columns == DECISION_COLUMNS:
        return Decision(*values)
    if not columns:
        raise ValueError("a row before the header that names its columns")
    line = _from_mapping(dict(zip(columns, values, strict=True)))
    if not isinstance(line, Row | Decision):
        raise ValueError("a row that is neither an arrival nor a decision")
    return line


def _from_mapping(value: Any) -> Line:
    if not isinstance(value, dict):
        raise ValueError("expected a JSON array or object")
    if "schema" in value:
        if value["schema"] != SCHEMA:
            raise ValueError(f"written as {value['schema']!r}, this version reads {SCHEMA!r}")
        known = {name: value[name] for name in _HEADER_FIELDS if name in value}
        return Header(**(known | {"columns": tuple(value.get("columns", ()))}))
    if "seq" in value:
        return Decision(**_known(value, _DECISION_DEFAULTS))
    if "id" in value:
        return Row(**_known(value, _ROW_DEFAULTS))
    if "fault" in value:
        rest = {name: entry for name, entry in value.items() if name not in ("fault", "at", "until")}
        return Fault(value["fault"], value["at"], value.get("until"), rest)
    if "note" in value:
        return Note(value["note"])
    if "end" in value:
        return End(value["end"])
    raise ValueError(f"unknown kind of line with {', '.join(value) or 'nothing in it'}")


_HEADER_FIELDS = tuple(column.name for column in fields(Header))
_ROW_DEFAULTS = {column.name: column.default for column in fields(Row)} | {"process": 0, "contender": -1}
_DECISION_DEFAULTS = {column.name: column.default for column in fields(Decision)}


def _known(value: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What we know of a row: a newer version's further columns are skipped, absent ones get defaults."""
    missing = [name for name, default in defaults.items() if default is MISSING and name not in value]
    if missing:
        raise ValueError(f"a row without {', '.join(missing)}")
    return {name: value.get(name, default) for name, default in defaults.items()}


def _one_by_one(path: Path, lines: Sequence[bytes], before: int, *, forgive_last: bool) -> list[Any]:
    values: list[Any] = []
    for offset, line in enumerate(lines):
        try:
            values.append(json.loads(line))
        except ValueError:
            if forgive_last and offset == len(lines) - 1:
                break  # half a line: the writer was killed
            raise HistoryError(f"{path}, line {before + offset + 1}: not JSON") from None
    return values


def _batches(path: Path) -> Iterator[tuple[list[bytes], bool]]:
    """Non-empty lines in batches, and whether the batch ends in a line that nothing terminated."""
    rest = b""
    for block in _blocks(path):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        lines = [line for line in lines if line.strip()]
        if lines:
            yield lines, False
    if rest.strip():
        yield [rest], True


def _blocks(path: Path, size: int = 1 << 17) -> Iterator[bytes]:
    """The uncompressed content. A gzip stream that breaks off ends quietly: `End` is what shows it.

    `gzip.open` would raise in the middle of a read and lose what it had already unpacked.
    """
    with path.open("rb") as file:
        block = file.read(size)
        if not block.startswith(b"\x1f\x8b"):
            while block:
                yield block
                block = file.read(size)
            return
        unpack = zlib.decompressobj(wbits=31)
        while block:
            try:
                yield unpack.decompress(block)
            except zlib.error:
                return
            block = unpack.unused_data  # the next member, when files were concatenated
            if unpack.eof:
                unpack = zlib.decompressobj(wbits=31)
            block = block or file.read(size)


@dataclass(slots=True)
class History:
    """A whole run in memory: all that a checker or a report may look at."""

    rows: list[Row] = field(default_factory=list)
    log: list[Decision] | None = None
    """In the resource's order; `None` when the resource's log is not there."""
    faults: list[Fault] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    """`False` when a writer was killed, so that rows or decisions may be missing."""
    notes: list[str] = field(default_factory=list)


def load(*paths: Path) -> History:
    """Read one or several files into one history: a run's arrivals of every process, and its log.

    :raises HistoryError: as `read`.
    """
    history = History()
    origin = 0
    decisions: list[Decision] = []
    has_log = False
    for path in paths:
        header = Header(())
        ended = False
        shift = 0
        for line in read(path):
            if type(line) is Row:
                history.rows.append(line)
            elif type(line) is Decision:
                has_log = True
                line.started -= shift
                line.decided -= shift
                decisions.append(line)
            elif type(line) is Header:
                header = line
                if line.kind == "arrivals":
                    origin = line.origin_ns
                    history.config = {**history.config, **line.config}
                else:
                    has_log = True
                    shift = (origin or line.origin_ns) if line.times == "monotonic" else 0
            elif type(line) is Fault:
                history.faults.append(line)
            elif type(line) is Note:
                history.notes.append(line.text)
            elif type(line) is End:
                ended = True
        if not header.columns and not header.started and not history.rows and not decisions:
            raise HistoryError(f"{path} holds no history")
        history.complete = history.complete and ended
    if has_log:
        decisions.sort(key=attrgetter("seq"))
        history.log = decisions
    return history


def load_run(folder: Path) -> History:
    """The history of a run folder: its arrivals, and the resource's log beside them if there is one.

    :raises HistoryError: no history in that folder, or one that cannot be read.
    """
    arrivals = folder / HISTORY_FILE
    if not arrivals.is_file():
        raise HistoryError(f"{folder} holds no {HISTORY_FILE}: name the folder of a run")
    resource = folder / RESOURCE_FILE
    return load(arrivals, resource) if resource.is_file() else load(arrivals)


def merge(parts: Sequence[Path], into: Path) -> int:
    """Join the files of several processes, one after the other, without decoding the rows.

    The parts must be of one kind; the first one's header counts. Returns the number of rows. The end
    mark is written only if every part has one, so a killed process stays visible.

    :raises HistoryError: a part has no header, or other columns than the first.
    """
    rows = 0
    complete = True
    columns: list[str] | None = None
    with gzip.open(into, "wb", compresslevel=1) as out:
        for part in parts:
            ended = False
            first = True
            for lines, unterminated in _batches(part):
                if unterminated:
                    break
                if first:
                    header = _one_by_one(part, lines[:1], 0, forgive_last=False)[0]
                    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
                        raise HistoryError(f"{part} does not begin with a history's header")
                    if columns is None:
                        columns = header["columns"]
                        out.write(_encode(header | {"process": None}).encode() + b"\n")
                    elif header["columns"] != columns:
                        raise HistoryError(f"{part} has other columns than {parts[0]}")
                    del lines[0]
                    first = False
                if lines and lines[-1].startswith(b'{"end"'):
                    ended = True
                    lines.pop()
                rows += sum(line.startswith(b"[") for line in lines)
                out.write(b"\n".join(lines) + b"\n" if lines else b"")
            complete = complete and ended
        if complete:
            out.write(_encode({"end": rows}).encode() + b"\n")
    return rows
