"""What a run and the processes of its fleet say to each other: one JSON object a line.

orders    `Orders`
reports   {"ready": …}  or  {"error": "one sentence"}
orders    {"start": nanoseconds of the monotonic clock}
reports   {"progress": `MemberProgress`}, twice a second
orders    {"rate": arrivals per second, "at": seconds, "stage": 2}, or {"freeze": "pause:holder@5s+2s"},
          while the run is steered
orders    {"stop": true}, to end early; so does the end of the input
reports   {"done": `MemberReport`}, when the files are written
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from harness.config import RunConfig
from harness.history import Fault
from harness.history.recording import Counters
from harness.live.exposition import Exported
from harness.load.pauses import PauseCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What one process of a fleet is to do."""

    config: RunConfig
    url: str
    resource_url: str
    process: int
    folder: Path
    freezes: Sequence[str] = ()
    """The planned faults of holders."""
    path: Sequence[str] = ()
    """Where the caller finds its modules."""

    def to_json(self) -> dict[str, Any]:
        return {
            "config": self.config.to_json(),
            "url": self.url,
            "resource_url": self.resource_url,
            "process": self.process,
            "folder": str(self.folder),
            "freezes": list(self.freezes),
            "path": list(self.path),
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        return cls(
            config=RunConfig.from_json(told["config"]),
            url=told["url"],
            resource_url=told["resource_url"],
            process=told["process"],
            folder=Path(told["folder"]),
            freezes=told["freezes"],
            path=told["path"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberProgress:
    """One process, while it offers load."""

    at: int
    """Nanoseconds since the start."""
    counters: Counters
    offered_per_s: float
    acquired_per_s: float
    busy: int
    waiting: int
    recent: Mapping[str, str]
    """Distributions as text."""
    metrics: Exported | None = None
    lock: Mapping[str, Any] | None = None
    """See `harness.live.watch`."""

    def to_json(self) -> dict[str, Any]:
        # Not `asdict`, which would copy each part of it in the middle of the load.
        told = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {**told, "counters": asdict(self.counters)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        return cls(**{**told, "counters": Counters(**told["counters"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReport:
    """How one process fared, once it is over; what it measured is in its files."""

    cpu: float
    """Share of one core."""
    seconds: float
    dropped: int
    faults: Sequence[Fault]
    pauses: PauseCounts
    max_loop_lag: float
    commands: int | None
    died: str | None = None
    """What was wrong with the lock server at the end."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        faults = [Fault(**fault) for fault in told["faults"]]
        return cls(**{**told, "faults": faults, "pauses": PauseCounts.from_json(told["pauses"])})


def say(**report: Any) -> None:
    """To whoever started this process."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


async def heard() -> asyncio.StreamReader:
    """What is said to this process."""
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


def history_part(folder: Path, process: int) -> Path:
    return folder / f"history-{process}.jsonl.gz"


def recording_part(folder: Path, process: int) -> Path:
    return folder / f"recording-{process}.json"
