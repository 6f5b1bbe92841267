"""What a process writes down: one JSON line an event, straight to the file, so that kill -9 loses nothing."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["wait", "got", "beat", "left", "over", "stuck"]


class Event(NamedTuple):
    """`wait` → `got` → `beat`* → `left` → `over`; a wait without a grant ends in `over` at once."""

    at: float
    """`time.monotonic()`, read before `held` was looked at."""
    kind: Kind
    attempt: str
    key: str
    fence: int = 0
    held: bool = False
    until: float = 0.0
    """Until when the client believed in its lease."""
    why: str = ""


class EventLog:
    """Appends events of one process to one file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, kind: Kind, attempt: str, key: str, *, why: str = "") -> None:
        self._put(Event(time.monotonic(), kind, attempt, key, why=why))

    def write_holding(
        self, kind: Kind, attempt: str, key: str, at: float, fence: int, held: bool, left: float
    ) -> None:
        self._put(Event(at, kind, attempt, key, fence, held, time.monotonic() + left))

    def _put(self, event: Event) -> None:
        os.write(self._file, json.dumps(event).encode() + b"\n")


def read_events(folder: Path) -> Iterator[Event]:
    """All events of all processes; a line that a killed process left half written does not count."""
    for path in sorted(folder.glob("*.events")):
        for line in path.read_bytes().split(b"\n"):
            if line.endswith(b"]"):
                yield Event(*json.loads(line))
