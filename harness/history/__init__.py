"""A whole run in memory: all that checkers and reports see of it.

This is also the front door to the rows (`harness.history.rows`) and to their files (`harness.history.files`).
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.history.files import HistoryError, HistoryWriter, merge, read
from harness.history.rows import (
    Damage,
    Decision,
    End,
    Fault,
    Header,
    Line,
    Note,
    Outcome,
    Row,
    Value,
    WriteOutcome,
)

__all__ = [
    "HISTORY_FILE",
    "RESOURCE_FILE",
    "Damage",
    "Decision",
    "End",
    "Fault",
    "Header",
    "History",
    "HistoryError",
    "HistoryWriter",
    "Line",
    "Note",
    "Outcome",
    "Row",
    "Value",
    "WriteOutcome",
    "collector_paused",
    "load",
    "load_run",
    "merge",
    "read",
]

HISTORY_FILE = "history.jsonl.gz"
RESOURCE_FILE = "resource.jsonl.gz"


@dataclass(slots=True)
class History:
    """A whole run in memory: all that a checker or a report may look at."""

    rows: list[Row] = field(default_factory=list)
    log: list[Decision] | None = None
    """In the resource's order; `None` when the resource's log is not there."""
    log_after: int = 0
    """The log holds what was decided after this number: what came before was not this run's."""
    log_selected: bool = False
    """The log was cut down to some keys on purpose, so that its numbers have gaps."""
    values: dict[str, Value] = field(default_factory=dict)
    """What keys held at the end, as far as they were read back."""
    faults: list[Fault] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    """`False` when a writer was killed or a file is damaged, so that rows or decisions may be missing."""
    damage: list[str] = field(default_factory=list)
    """What is wrong with the files, a sentence each."""
    notes: list[str] = field(default_factory=list)


def load(*paths: Path) -> History:
    """Read one or several files into one history: a run's arrivals of every process, and its log.

    :raises HistoryError: as `read`.
    """
    with collector_paused():
        return _load(paths)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection: of millions of new objects none is garbage, and looking doubles the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _load(paths: Sequence[Path]) -> History:
    loading = _Loading()
    for path in paths:
        loading.add(path)
    history = loading.history
    history.complete = not history.damage
    if loading.logged or loading.decisions:
        history.log = sorted(loading.decisions, key=attrgetter("seq"))
    return history


class _Loading:
    """A history that grows file by file."""

    def __init__(self) -> None:
        self.history = History()
        self.decisions: list[Decision] = []
        self.logged = False
        self._origin: int | None = None
        self._shift = 0
        self._written = 0
        """Rows since the header."""
        self._ended = True
        self._config: Mapping[str, Any] = {}
        """Of the file's first header."""
        self._contested: set[str] = set()
        """Keys whose value nobody knows."""

    def add(self, path: Path) -> None:
        """:raises HistoryError: as `read`."""
        history = self.history
        lines = 0
        self._shift, self._written, self._ended = 0, 0, False
        for line in read(path):
            lines += 1
            if type(line) is Row:
                self._count(path)
                history.rows.append(line)
            elif type(line) is Decision:
                self._count(path)
                line.started -= self._shift
                line.decided -= self._shift
                self.decisions.append(line)
            elif type(line) is End:
                self._end(path, line)
            elif type(line) is Header:
                self._header(path, line, first=lines == 1)
            elif type(line) is Damage:
                self._written += line.row
                history.damage.append(line.text)
            elif type(line) is Value:
                self._value(line)
            elif type(line) is Fault:
                history.faults.append(line)
            elif type(line) is Note:
                history.notes.append(line.text)
        if not lines:
            raise HistoryError(f"{path} is empty")
        self._close(path)

    def _count(self, path: Path) -> None:
        if self._ended:
            self.history.damage.append(f"{path.name} goes on after its end mark")
            self._ended = False
        self._written += 1

    def _close(self, path: Path) -> None:
        if not self._ended:
            self.history.damage.append(f"{path.name} has no end mark: its writer was killed")
        for key in self._contested:
            self.history.values.pop(key, None)

    def _value(self, value: Value) -> None:
        if self.history.values.setdefault(value.key, value) != value:
            self.history.damage.append(f"key {value.key!r} was read back twice, with different values")
            self._contested.add(value.key)

    def _end(self, path: Path, end: End) -> None:
        if type(end.rows) is not int or end.rows != self._written:
            self.history.damage.append(
                f"{path.name} ends after {self._written} rows, but its end mark says {end.rows!r}"
            )
        self._ended = True

    def _header(self, path: Path, header: Header, *, first: bool) -> None:
        history = self.history
        if not first and not self._ended:
            history.damage.append(f"{path.name} has no end mark before its next header")
        self._written, self._ended = 0, False
        if first:
            self._config = header.config
        elif header.config != self._config:
            history.damage.append(f"{path.name} has another header, which says something else of the run")
            return
        if header.kind == "arrivals":
            self._origin = header.origin_ns
            history.config = {**history.config, **header.config}
            return
        self.logged = True
        after = header.config.get("after", 0)
        if type(after) is not int:
            history.damage.append(f"{path.name} says that it begins after {after!r}, which is no number")
            after = 0
        history.log_after = after
        history.log_selected = bool(header.config.get("selected"))
        # A resource knows only its own clock; the run's start is in the arrivals' header.
        if header.times != "relative":
            self._shift = header.origin_ns if self._origin is None else self._origin


def load_run(folder: Path) -> History:
    """The history of a run folder: its arrivals, and the resource's log beside them if there is one.

    :raises HistoryError: no history in that folder, or one that cannot be read.
    """
    arrivals = folder / HISTORY_FILE
    if not arrivals.is_file():
        raise HistoryError(f"{folder} holds no {HISTORY_FILE}: name the folder of a run")
    resource = folder / RESOURCE_FILE
    return load(arrivals, resource) if resource.is_file() else load(arrivals)
