"""A whole run in memory: all that checkers and reports see of it.

This is also the front door to the rows (`harness.rows`) and to their files (`harness.history_file`).
"""

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from harness.history_file import HistoryError, HistoryWriter, merge, read
from harness.rows import Decision, End, Fault, Header, Line, Note, Outcome, Row, WriteOutcome

__all__ = [
    "HISTORY_FILE",
    "RESOURCE_FILE",
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
    faults: list[Fault] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    complete: bool = True
    """`False` when a writer was killed, so that rows or decisions may be missing."""
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
    history = History()
    decisions: list[Decision] = []
    origin: int | None = None
    logged = False
    for path in paths:
        lines = shift = 0
        ended = False
        for line in read(path):
            lines += 1
            if type(line) is Row:
                history.rows.append(line)
            elif type(line) is Decision:
                line.started -= shift
                line.decided -= shift
                decisions.append(line)
            elif type(line) is Header:
                if line.kind == "arrivals":
                    origin = line.origin_ns
                    history.config = {**history.config, **line.config}
                else:
                    logged = True
                    history.log_after = line.config.get("after", 0)
                    # A resource knows only its own clock; the run's start is in the arrivals' header.
                    shift = 0 if line.times == "relative" else line.origin_ns if origin is None else origin
            elif type(line) is Fault:
                history.faults.append(line)
            elif type(line) is Note:
                history.notes.append(line.text)
            else:
                ended = True
        if not lines:
            raise HistoryError(f"{path} is empty")
        history.complete = history.complete and ended
    if logged or decisions:
        history.log = sorted(decisions, key=attrgetter("seq"))
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
