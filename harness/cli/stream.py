"""`--stream`: the state of a run as a line of JSON twice a second, for programs that follow it.

    {"run": 1, "elapsed_s": 3.5, "offered_per_s": 500.0, "acquired_per_s": 498.2, "busy": 12, "waiting": 9,
     "counters": {"offered": 1750, …}, "recent_ms": {"arrival_to_grant": {"p50": …, "p99": …, …}, …}}
    {"run": 1, "verdict": "ok", "exit_code": 0, "folder": "runs/…"}

Rates are those since the line before; `recent_ms` are the latencies of the last two to three seconds.
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from harness.config import UsageError
from harness.load.fleet import Progress
from harness.load.run import Finished
from harness.report.latencies import figures_of

STDOUT = "-"


class Stream:
    """Writes the lines of one command, which may make several runs."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._broken = False
        self.run = 1
        """Which of them is under way."""

    def progress(self, progress: Progress) -> None:
        self._write(
            elapsed_s=round(progress.elapsed, 3),
            offered_per_s=round(progress.offered_per_s, 1),
            acquired_per_s=round(progress.acquired_per_s, 1),
            busy=progress.busy,
            waiting=progress.waiting,
            counters=asdict(progress.counters),
            recent_ms={name: asdict(figures_of(recent)) for name, recent in progress.recent.items()},
        )

    def ended(self, finished: Finished) -> None:
        """The last line of a run."""
        summary = finished.summary
        self._write(verdict=summary.verdict, exit_code=finished.exit_code, folder=str(finished.folder))

    def _write(self, **line: Any) -> None:
        if self._broken:
            return
        try:
            self._file.write(json.dumps({"run": self.run, **line}) + "\n")
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:  # a run is worth more than its stream
            self._broken = True
            reason = error.strerror or error
            print(f"harness: --stream cannot be written any more: {reason}; the run goes on", file=sys.stderr)


@contextlib.contextmanager
def open_stream(where: str | None) -> Iterator[Stream | None]:
    """The stream to a file, or to standard output for `-`; none for `None`.

    :raises UsageError: the file cannot be written.
    """
    if where is None:
        yield None
    elif where == STDOUT:
        yield Stream(sys.stdout)
    else:
        try:
            file = Path(where).open("w", encoding="utf-8")  # noqa: SIM115 - closed below
        except OSError as error:
            raise UsageError(f"--stream {where!r} cannot be written: {error.strerror or error}") from None
        try:
            yield Stream(file)
        finally:
            with contextlib.suppress(OSError):  # told when it was written
                file.close()
