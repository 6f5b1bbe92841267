"""A run as a native Perfetto trace, for https://ui.perfetto.dev: made from its folder alone.

A lane per key, a slice per holder named after its fence, an arrow from each release to the next grant;
refused writes and faults as instants. Packets are written one by one: a file may be larger than memory.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO

from harness.config import UsageError
from harness.history import Fault, Row, load_run

PERFETTO_FILE = "trace.perfetto-trace"
_SEQUENCE = 1
_Details = dict[str, str | int | float]


@dataclass(slots=True)
class _Group:
    """Lanes of one name. Slices of a lane must nest, so that two at the same time take one each."""

    name: str
    busy: dict[int, int] = field(default_factory=dict)
    """Until when each lane is taken."""


def write_perfetto(run_dir: Path) -> Path:
    """Write the trace of the run in `run_dir` and return its path.

    :raises UsageError: the package that writes traces is not installed.
    :raises HistoryError: the history cannot be read.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protocol
    except ImportError:
        raise UsageError("traces need the package perfetto: pip install 'asyncdlock[trace]'") from None
    history = load_run(run_dir)
    path = run_dir / PERFETTO_FILE
    with path.open("wb") as file:
        trace = _Trace(file, protocol)
        trace.faults(history.faults)
        by_key: dict[str, list[Row]] = defaultdict(list)
        for row in history.rows:
            if row.granted is not None:
                by_key[row.key].append(row)
        for key, rows in sorted(by_key.items()):
            trace.key(key, sorted(rows, key=attrgetter("granted")))
    return path


class _Trace:
    """The trace while it is written."""

    def __init__(self, file: BinaryIO, protocol: Any) -> None:
        self._file = file
        self._protocol = protocol
        self._lanes = 0
        self._flows = 0

    def faults(self, faults: Iterable[Fault]) -> None:
        """An instant where each began, and a slice for as long as it lasted."""
        group = _Group("faults")
        for fault in sorted(faults, key=attrgetter("at")):
            details: _Details = {name: str(value) for name, value in fault.details.items()}
            until = fault.at if fault.until is None else fault.until
            lane = self._lane(group, fault.at, until)
            if until > fault.at:
                self._event(lane, fault.at, "SLICE_BEGIN", fault.name, details)
            self._event(lane, fault.at, "INSTANT", fault.name, details)
            if until > fault.at:
                self._event(lane, until, "SLICE_END")

    def key(self, key: str, rows: Iterable[Row]) -> None:
        """The holders of one key in the order of their grants."""
        group = _Group(key)
        arrow: int | None = None
        for row in rows:
            granted, end = row.granted or 0, _end(row)
            lane = self._lane(group, granted, end)
            self._event(lane, granted, "SLICE_BEGIN", f"fence {row.fence}", _details(row), ends=arrow)
            if row.write == "stale":
                self._event(lane, row.write_done or end, "INSTANT", _refusal(row))
            self._flows += 1
            arrow = self._flows
            self._event(lane, end, "SLICE_END", begins=arrow)

    def _lane(self, group: "_Group", start: int, end: int) -> int:
        """One that is free from `start` on, and taken until `end`; a new one when there is none."""
        lane = next((lane for lane, until in group.busy.items() if until <= start), None)
        if lane is None:
            self._lanes += 1
            lane = self._lanes
            packet = self._protocol.TracePacket()
            packet.track_descriptor.uuid = lane
            packet.track_descriptor.name = group.name
            self._write(packet)
        group.busy[lane] = end
        return lane

    def _event(
        self,
        lane: int,
        at: int,
        kind: str,
        name: str = "",
        details: _Details | None = None,
        *,
        begins: int | None = None,
        ends: int | None = None,
    ) -> None:
        packet = self._protocol.TracePacket(timestamp=max(at, 0), trusted_packet_sequence_id=_SEQUENCE)
        event = packet.track_event
        event.type = getattr(self._protocol.TrackEvent, f"TYPE_{kind}")
        event.track_uuid = lane
        if name:
            event.name = name
        if begins is not None:
            event.flow_ids.append(begins)
        if ends is not None:
            event.terminating_flow_ids.append(ends)
        for label, value in (details or {}).items():
            note = event.debug_annotations.add(name=label)
            if isinstance(value, int):
                note.int_value = value
            elif isinstance(value, float):
                note.double_value = value
            else:
                note.string_value = value
        self._write(packet)

    def _write(self, packet: Any) -> None:
        # Traces that follow each other are one trace: that of all their packets.
        self._file.write(self._protocol.Trace(packet=[packet]).SerializeToString())


def _end(row: Row) -> int:
    """When it was over, as far as is known."""
    known = (row.released, row.releasing, row.write_done, row.write_sent, row.granted)
    return next(at for at in known if at is not None)


def _refusal(row: Row) -> str:
    return f"write refused: fence {row.fence}, and {row.seen} was seen"


def _details(row: Row) -> _Details:
    return {
        "arrival": row.id,
        "process": row.process,
        "contender": row.contender,
        "waited_ms": ((row.granted or 0) - row.intended) / 1e6,
        "write": row.write,
        "outcome": row.outcome,
        "owner": row.owner or "",
        **({"frozen": "on purpose"} if row.paused else {}),
    }
