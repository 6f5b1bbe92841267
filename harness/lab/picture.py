"""The events of a case as a timeline: a lane for each participant, the lock server and the resource."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from harness.history.rows import Decision, Fault, Row
from harness.lab.story import two_writers
from harness.lab.track import Track, rows_of
from harness.report.timeline import Arrow, Kind, Lane, Mark, Panel, Span

_NOT_GRANTED = ("timed_out", "failed", "interrupted")


def panel(
    title: str,
    tracks: Sequence[Track],
    decisions: Sequence[Decision],
    faults: Sequence[Fault],
    *,
    ttl: float,
    subtitle: str = "",
) -> Panel:
    """The picture of one case. `ttl` is that of its leases, in seconds."""
    rows = rows_of(tracks)
    end = _end(tracks, decisions, faults)
    participants = {track.name for track in tracks}
    lanes = [_participant(track, rows, number, faults, end) for number, track in enumerate(tracks)]
    lanes.append(_lock_server(rows, tracks, faults, participants, ttl, end))
    violations = two_writers(decisions)
    lanes.append(Lane("resource", marks=[_decision(decision, violations) for decision in decisions]))
    return Panel(
        title,
        lanes,
        arrows=list(_writes(rows, decisions, violations, target=len(lanes) - 1)),
        flags=[Mark(decision.decided, "bad", "two writers") for decision in violations],
        subtitle=subtitle,
    )


def _end(tracks: Sequence[Track], decisions: Sequence[Decision], faults: Sequence[Fault]) -> int:
    times = [event.at for track in tracks for event in track.events]
    times += [decision.decided for decision in decisions]
    times += [fault.until or fault.at for fault in faults]
    return max([*times, 1])


def _participant(track: Track, rows: Sequence[Row], number: int, faults: Sequence[Fault], end: int) -> Lane:
    spans: list[Span] = []
    marks: list[Mark] = []
    for row in rows:
        if row.process != number or row.called is None:
            continue
        spans.append(Span(row.called, row.granted or _gave_up(track, row.called, end), "wait", "waits"))
        if row.granted is not None:
            spans.append(Span(row.granted, row.released or end, "hold", "believes it holds the lock"))
            marks.append(Mark(row.granted, "plain", f"granted, fence {row.fence}"))
        if row.write_sent is not None:
            marks.append(Mark(row.write_sent, "plain", "writes"))
    spans += _frozen(track)
    spans += [
        Span(fault.at, fault.until or end, "frozen", fault.name)
        for fault in faults
        if fault.details.get("who") == track.name
    ]
    return Lane(track.name, spans, marks)


def _gave_up(track: Track, called: int, end: int) -> int:
    """When an attempt ended that was not granted."""
    ends = (event.at for event in track.events if event.at >= called and event.name in _NOT_GRANTED)
    return next(ends, end)


def _frozen(track: Track) -> Iterator[Span]:
    """The pauses that a worker took by itself."""
    for first, second in pairwise(track.events):
        if (first.name, second.name) == ("pausing", "resumed"):
            yield Span(first.at, second.at, "frozen", "event loop frozen")


def _lock_server(
    rows: Sequence[Row],
    tracks: Sequence[Track],
    faults: Sequence[Fault],
    participants: set[str],
    ttl: float,
    end: int,
) -> Lane:
    """Leases from grant to release or to the end of their TTL: renewals are not drawn."""
    granted = sorted((row for row in rows if row.granted is not None), key=lambda row: row.granted or 0)
    spans = []
    for row in granted:
        begin = row.granted or 0
        over = begin + round(ttl * 1e9)
        if row.released is not None:
            over = min(over, row.released)
        label = f"lease of {tracks[row.process].name}"
        # One half of the bar for every other participant: leases that overlap are two holders.
        if row.process % 2:
            spans.append(Span(begin, min(over, end), "lease2", label, half="lower"))
        else:
            spans.append(Span(begin, min(over, end), "lease", label, half="upper"))
    marks = [
        Mark(fault.at, "fault", f"{fault.name}: {fault.details.get('who', '')}")
        for fault in faults
        if fault.details.get("who") not in participants
    ]
    return Lane("lock server", spans, marks)


def _decision(decision: Decision, violations: Sequence[Decision]) -> Mark:
    if decision in violations:
        return Mark(decision.decided, "bad", f"accepts {decision.token} after {decision.seen}")
    if decision.accepted:
        return Mark(decision.decided, "good", f"accepts {decision.token}")
    return Mark(decision.decided, "good", f"409: refuses {decision.token}, seen {decision.seen}")


def _writes(
    rows: Sequence[Row], decisions: Sequence[Decision], violations: Sequence[Decision], *, target: int
) -> Iterator[Arrow]:
    for decision in decisions:
        for row in rows:
            if row.owner == decision.owner and row.write_sent is not None:
                kind: Kind = "bad" if decision in violations else "good" if decision.accepted else "plain"
                yield Arrow(row.write_sent, row.process, decision.decided, target, kind)
