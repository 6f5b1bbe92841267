"""Doctored runs: each changes one sound run in one way, and states the verdict that must come out.

`CASES` holds them all. `Case.write` makes the folder of a run, with the files that a real one leaves
(`history.jsonl.gz`, `resource.jsonl.gz`), always the same bytes for the same case.
"""

import gzip
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.history import HISTORY_FILE, RESOURCE_FILE, Decision, Fault, Row
from harness.history.rows import BODY, DECISION_COLUMNS, ROW_COLUMNS, SCHEMA, body_of, digest

MS = 1_000_000
TTL_MS = 1000
VALID_MS = 988

Json = dict[str, Any]


@dataclass
class Run:
    """A run as it will be written: change anything."""

    rows: list[Row]
    log: list[Decision]
    config: Json
    values: list[Json] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    log_config: Json = field(default_factory=dict)
    header: Json = field(default_factory=dict)
    columns: tuple[str, ...] = ROW_COLUMNS
    ends: dict[str, Any] = field(default_factory=dict)
    """File -> its end mark, instead of the right one; `None` for none."""
    after_the_end: dict[str, int] = field(default_factory=dict)
    """File -> how many of its rows stand after the end mark."""
    without: tuple[str, ...] = ()
    """Files that are not there."""
    packed: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    """File -> what happens to its compressed bytes."""

    def lines(self, name: str) -> list[Json | list[Any]]:
        rows: list[Any]
        if name == HISTORY_FILE:
            rows = [[asdict(row)[column] for column in self.columns] for row in self.rows]
            header = {"kind": "arrivals", "config": self.config, "columns": self.columns} | self.header
        else:
            rows = [[asdict(decision)[column] for column in DECISION_COLUMNS] for decision in self.log]
            header = {"kind": "resource", "config": self.log_config, "columns": DECISION_COLUMNS}
        end = self.ends.get(name, len(rows))
        mark = [] if end is None else [{"end": end}]
        late = self.after_the_end.get(name, 0)
        if name == RESOURCE_FILE:
            others = self.values
        else:
            others = [
                {"fault": one.name, "at": one.at, "until": one.until, **one.details} for one in self.faults
            ]
        body = [*rows[: len(rows) - late], *others, *mark, *rows[len(rows) - late :]]
        return [{"schema": SCHEMA} | header, *body]

    def write(self, folder: Path) -> None:
        for name in (HISTORY_FILE, RESOURCE_FILE):
            if name not in self.without:
                text = "".join(json.dumps(line) + "\n" for line in self.lines(name))
                data = gzip.compress(text.encode(), mtime=0)
                change = self.packed.get(name)
                (folder / name).write_bytes(change(data) if change else data)

    def hold(self, number: int, granted: int, *, called: int | None = None) -> None:
        """Move an arrival's grant, and everything of it that follows, to `granted` milliseconds."""
        row, decision = self.rows[number], self.decision(number)
        assert row.granted is not None
        by = granted * MS - row.granted
        row.called = (granted - 1 if called is None else called) * MS
        row.intended = row.dispatched = row.called
        row.valid_until = row.called + VALID_MS * MS
        for name in ("granted", "write_sent", "write_done", "releasing", "released"):
            setattr(row, name, getattr(row, name) + by)
        decision.started += by
        decision.decided += by

    def decision(self, number: int) -> Decision:
        """The decision on the write of that arrival."""
        (found,) = (entry for entry in self.log if entry.owner == f"owner-{number}")
        return found

    def refuse(self, number: int, seen: int) -> None:
        """The write of that arrival came too late."""
        row, decision = self.rows[number], self.decision(number)
        row.outcome = row.write = "stale"
        row.seen = decision.seen = seen
        decision.outcome = "stale"

    def in_order(self) -> None:
        """Number the log by time, count versions, keep marks, and read back what it comes to."""
        self.log.sort(key=lambda decision: decision.decided)
        marks: dict[str, int] = {}
        versions: dict[str, int] = {}
        digests: dict[str, str | None] = {}
        for seq, decision in enumerate(self.log, self.log_config.get("after", 0) + 1):
            key = decision.key
            decision.seq = seq
            decision.seen = marks.get(key, 0)
            if decision.outcome == "accepted":
                marks[key] = max(decision.token, marks.get(key, 0))
                versions[key] = versions.get(key, 0) + 1
                digests[key] = decision.digest
            decision.version = versions.get(key, 0)
        self.values = [
            {"value": key, "version": versions[key], "digest": digest} for key, digest in digests.items()
        ]

    def processes(self, count: int) -> None:
        self.config["processes"] = count
        for row in self.rows:
            row.process = row.id % count

    def as_before(self, *, ttl: bool = True) -> None:
        """As runs were recorded when rows did not say until when a hold was valid."""
        for row in self.rows:
            row.releasing = row.valid_until = None
        self.columns = tuple(name for name in ROW_COLUMNS if name not in ("releasing", "valid_until"))
        if not ttl:
            del self.config["ttl"]

    def skew(self, process: int, milliseconds: int) -> None:
        """Set one process's clock ahead."""
        for row in self.rows:
            if row.process == process:
                for name in _TIMES:
                    if getattr(row, name) is not None:
                        setattr(row, name, getattr(row, name) + milliseconds * MS)


_TIMES = (
    *("intended", "dispatched", "called", "granted", "write_sent", "write_done"),
    *("releasing", "released", "valid_until"),
)


def sound_run() -> Run:
    """Six holders of "a" one after the other, two of "b" meanwhile, and one who gave up."""
    rows, log = [], []
    for number in range(8):
        key, at = ("b" if number in (2, 5) else "a"), 100 * MS * number
        row = Row(number, 0, number, key, at, at, at, at + 1 * MS, at + 2 * MS, at + 4 * MS, at + 6 * MS)
        row.owner, row.fence, row.outcome, row.write = f"owner-{number}", number + 1, "ok", "accepted"
        row.releasing, row.valid_until = at + 5 * MS, at + VALID_MS * MS
        rows.append(row)
        log.append(
            Decision(
                *(key, 0, number + 1, 0, "accepted", 0, 0, at + 2 * MS + MS // 2, at + 3 * MS),
                *(row.owner, digest(body_of(row))),
            )
        )
    rows.append(Row(8, 0, 8, "a", 800 * MS, 800 * MS, 800 * MS, outcome="timed_out"))
    run = Run(rows, log, {"contenders": 9, "processes": 1, "ttl": TTL_MS / 1e3, "fence": True, "body": BODY})
    run.in_order()
    return run


@dataclass(frozen=True)
class Case:
    name: str
    verdict: str
    check: str
    """The check that must say so; empty when all must be `ok`."""
    finding: str
    """Words of the finding that it must give."""
    change: Callable[[Run], None]

    def write(self, folder: Path) -> None:
        run = sound_run()
        self.change(run)
        run.write(folder)


CASES: list[Case] = []


def _case(verdict: str, check: str = "", finding: str = "") -> Callable[[Callable[[Run], None]], None]:
    def add(change: Callable[[Run], None]) -> None:
        CASES.append(Case(f"{verdict}-{change.__name__}", verdict, check, finding, change))

    return add


def ok(change: Callable[[Run], None]) -> None:
    _case("ok")(change)


def violated(check: str, finding: str) -> Callable[[Callable[[Run], None]], None]:
    return _case("violated", check, finding)


def unknown(check: str, finding: str) -> Callable[[Callable[[Run], None]], None]:
    return _case("unknown", check, finding)
