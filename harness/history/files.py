"""The file format of a history: writing, streaming and merging.

A file is JSON lines, gzipped when its name ends in `.gz`. Its first line is a header that names the
columns; a row is a JSON array in that order, or an object (so that a person can write one by hand,
leaving out what has a default). Other objects are faults (`{"fault": …}`), values read back at the end
(`{"value": …}`), notes (`{"note": …}`) and the end mark (`{"end": …}`), whose absence tells that the
writer was killed.
"""

import gzip
import io
import json
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

from harness.history.rows import (
    DECISION_COLUMNS,
    ROW_COLUMNS,
    SCHEMA,
    Damage,
    Decision,
    Fault,
    Header,
    Line,
    Row,
    Value,
    from_list,
    from_mapping,
)
from harness.history.shapes import SHAPES

T = TypeVar("T", Row, Decision)


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class HistoryError(ValueError):
    """A file is not a history, or a line of it cannot be read. The message names file and line."""


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
        self._line(_fault_line(fault))

    def value(self, value: Value) -> None:
        """Append what a key held at the end."""
        self._line({"value": value.key, "version": value.version, "digest": value.digest})

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

    A row with a value of the wrong kind comes as `Damage`, and so does a compressed stream that breaks
    off or fails its checksum.

    :raises HistoryError: no history file, or a line in the middle of it that cannot be read.
    :raises OSError: the file cannot be opened.
    """
    columns: tuple[str, ...] = ()
    number = 0
    damage: list[str] = []
    for lines, last in _batches(path, damage):
        try:
            values = json.loads(b"[" + b",".join(lines) + b"]")
        except (ValueError, RecursionError):
            values = _one_by_one(path, lines, number, forgive_last=last)
        for value in values:
            number += 1
            try:
                line = from_list(columns, value) if type(value) is list else from_mapping(value)
            except (TypeError, ValueError, KeyError) as error:
                raise HistoryError(f"{path}, line {number}: {error}") from None
            if type(line) is Header:
                columns = line.columns
            shape = SHAPES.get(type(line))
            complaint = None if shape is None else shape.complaint(line)
            if complaint is not None:
                row = isinstance(line, Row | Decision)
                line = Damage(f"line {number} of {path.name}: {complaint}", row)
            yield line
    yield from map(Damage, damage)


def _one_by_one(path: Path, lines: Sequence[bytes], before: int, *, forgive_last: bool) -> list[Any]:
    values: list[Any] = []
    for offset, line in enumerate(lines):
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            if forgive_last and offset == len(lines) - 1:
                break  # half a line: the writer was killed
            raise HistoryError(f"{path}, line {before + offset + 1}: not JSON") from None
    return values


def _batches(path: Path, damage: list[str]) -> Iterator[tuple[list[bytes], bool]]:
    """Non-empty lines in batches, and whether the batch ends in a line that nothing terminated."""
    rest = b""
    for block in _blocks(path, damage):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        lines = [line for line in lines if line.strip()]
        if lines:
            yield lines, False
    if rest.strip():
        yield [rest], True


def _blocks(path: Path, damage: list[str], size: int = 1 << 17) -> Iterator[bytes]:
    """The uncompressed content. Of a gzip stream that breaks off, what came before; `damage` is told.

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
            except zlib.error as error:
                damage.append(f"{path.name} is corrupt: {error}")
                return
            block = unpack.unused_data  # the next member, when files were concatenated
            ended = unpack.eof
            if ended:
                unpack = zlib.decompressobj(wbits=31)
            block = block or file.read(size)
        if not ended:
            damage.append(f"{path.name} breaks off in the middle of its compressed data")


def merge(parts: Sequence[Path], into: Path, faults: Iterable[Fault] = ()) -> int:
    """Join the files of several processes, one after the other, without decoding the rows.

    `faults` are added. The parts must be of one kind; the first one's header counts. Returns the number of
    rows. The end mark is written only if every part has one, so a killed process stays visible.

    :raises HistoryError: a part has no header, or other columns than the first.
    """
    rows = 0
    complete = True
    columns: list[str] | None = None
    with gzip.open(into, "wb", compresslevel=1) as out:
        for part in parts:
            header: Any = None
            ended = False
            damage: list[str] = []
            before = rows
            for lines, unterminated in _batches(part, damage):
                if unterminated:
                    break
                if header is None:
                    header = _one_by_one(part, lines[:1], 0, forgive_last=False)[0]
                    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
                        raise HistoryError(f"{part} does not begin with a history's header")
                    if columns is None:
                        columns = header["columns"]
                        lines[0] = _encode(header | {"process": None}).encode()
                    elif header["columns"] == columns:
                        del lines[0]
                    else:
                        raise HistoryError(f"{part} has other columns than {parts[0]}")
                complete = complete and not (ended and lines)  # nothing comes after the end
                if lines and lines[-1].startswith(b'{"end"'):
                    ended = lines.pop() == b'{"end":%d}' % (rows - before + _rows_in(lines))
                rows += _rows_in(lines)
                out.writelines(line + b"\n" for line in lines)
            complete = complete and ended and not damage
        out.writelines(_encode(_fault_line(fault)).encode() + b"\n" for fault in faults)
        if complete:
            out.write(_encode({"end": rows}).encode() + b"\n")
    return rows


def _fault_line(fault: Fault) -> dict[str, Any]:
    return {"fault": fault.name, "at": fault.at, "until": fault.until, **fault.details}


def _rows_in(lines: Sequence[bytes]) -> int:
    return sum(line.startswith(b"[") for line in lines)
