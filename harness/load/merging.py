"""Joins shares into one run: counts are summed, histories put on one clock, and one verdict given on all.

Clocks of different machines are compared by the writes that passed between them and the one resource, as the
judges do. Every share's times are moved onto the clock of one of them, by the middle of what is possible.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path

from harness.config import RunConfig, UsageError
from harness.history import (
    HISTORY_FILE,
    RESOURCE_FILE,
    Decision,
    History,
    HistoryWriter,
    Row,
    Value,
    load_run,
)
from harness.history.hlog import HLOG_FILE, write_hlog
from harness.history.recording import Recording
from harness.judge import checkers
from harness.judge.checkers.evidence import Evidence
from harness.load.result import FleetResult, all_together
from harness.load.share import Share, read_share
from harness.report import summary
from harness.report.html import write_html
from harness.report.model import MachineFigures, Summary
from harness.report.summary_json import write_summary

_TIMES = (
    "intended",
    "dispatched",
    "called",
    "granted",
    "write_sent",
    "write_done",
    "released",
    "releasing",
    "valid_until",
)
_OWN = ("share", "out", "quiet", "live", "metrics_port", "junit", "start_at", "url", "resource_url", "fleet")
"""Settings in which the shares of one run may differ."""


@dataclass(frozen=True, slots=True)
class _Clock:
    """Where a share's start lies on the resource's clock, in nanoseconds: between two bounds."""

    earliest: int
    latest: int

    @property
    def middle(self) -> int:
        return (self.earliest + self.latest) // 2

    @property
    def doubt(self) -> int:
        return (self.latest - self.earliest + 1) // 2


def merge_shares(
    folders: Sequence[Path],
    into: Path,
    *,
    command: Sequence[str],
    missing: Mapping[int, str] | None = None,
    failures: Sequence[str] = (),
    lock_server: str | None = None,
    interrupted: bool = False,
) -> Summary:
    """Write the whole run into the folder `into`. `missing`: number of a share -> why it is not there.

    :raises UsageError: these are not shares of one run.
    :raises HistoryError: a history cannot be read.
    """
    shares = sorted((read_share(folder) for folder in folders), key=lambda share: share.number)
    config = _one_config(shares)
    count = shares[0].config.share[1]
    absent = {
        number: (missing or {}).get(number, "it was not given")
        for number in range(1, count + 1)
        if number not in {share.number for share in shares}
    }
    parts = {share.number: load_run(share.folder) for share in shares}
    clocks = _join(shares, parts, config, into)
    result = _whole(shares)
    started = min(share.started for share in shares)
    write_hlog(into / HLOG_FILE, result.recording, started=started)
    history = load_run(into)
    failures = [*failures]
    failures += [f"share {share.number}: {sentence}" for share in shares for sentence in share.failures]
    failures += [f"share {number}: {damage}" for number, part in parts.items() for damage in part.damage]
    failures += [f"share {number} of {count} is missing: {reason}" for number, reason in absent.items()]
    failures += [
        f"share {share.number}: its clock could not be compared with the others', for none of its writes was "
        "answered"
        for share in shares
        if clocks[share.number] is None
    ]
    document = summary.build(
        config,
        command=command,
        started=started.isoformat(timespec="seconds"),
        environment={**shares[0].environment, **({"lock_server": lock_server} if lock_server else {})},
        fleet=result,
        history=history,
        checks=checkers.run_checks(history),
        stale_rejections_reported=max((share.reported or 0 for share in shares), default=None),
        failures=failures,
        interrupted=interrupted,
        machines=[
            *(_machine(share, clocks) for share in shares),
            *(MachineFigures(share=number, missing=reason) for number, reason in absent.items()),
        ],
    )
    write_summary(into, document)
    write_html(into)
    return document


def _one_config(shares: Sequence[Share]) -> RunConfig:
    if not shares:
        raise UsageError("there is no share to make a run of")
    first = shares[0].config
    for share in shares[1:]:
        different = [
            field.name
            for field in fields(RunConfig)
            if field.name not in _OWN and getattr(share.config, field.name) != getattr(first, field.name)
        ]
        if different or share.config.share[1] != first.share[1]:
            what = ", ".join(different) or "how many shares there are"
            raise UsageError(
                f"{share.folder} and {shares[0].folder} are of different runs: not the same {what}"
            )
    for one, other in pairwise(shares):
        if one.number == other.number:
            raise UsageError(f"{one.folder} and {other.folder} are both share {one.number}")
    return replace(first, share=(0, 1), processes=first.all_processes, start_at=None)


def _join(
    shares: Sequence[Share], parts: Mapping[int, History], config: RunConfig, into: Path
) -> dict[int, _Clock | None]:
    """Write histories and logs as one, on the clock of the share that began first."""
    clocks = {share.number: _clock(share, parts[share.number]) for share in shares}
    known = {number: clock for number, clock in clocks.items() if clock is not None}
    first = min(known, key=lambda number: known[number].middle) if known else shares[0].number
    origin = next(share.result.start for share in shares if share.number == first)
    header = {**parts[first].config, **config.to_json(), "machines": len(shares)}
    with HistoryWriter(into / HISTORY_FILE, Row, origin_ns=origin, config=header) as writer:
        for share in shares:
            clock = known.get(share.number)
            shift = 0 if clock is None else clock.middle - known[first].middle
            writer.write(_shifted(row, shift) for row in parts[share.number].rows)
            for fault in parts[share.number].faults:
                until = None if fault.until is None else fault.until + shift
                writer.fault(replace(fault, at=fault.at + shift, until=until))
    _join_logs([(share.result.start, parts[share.number]) for share in shares], into, origin)
    return clocks


def _join_logs(parts: Iterable[tuple[int, History]], into: Path, origin: int) -> None:
    """Every share saved what the one resource decided while it ran: each decision once."""
    decisions: dict[int, Decision] = {}
    values: dict[str, Value] = {}
    afters = []
    for start, part in parts:
        if part.log is None:
            continue
        afters.append(part.log_after)
        for decision in part.log:
            decision.started += start - origin
            decision.decided += start - origin
            decisions[decision.seq] = decision
        for key, value in part.values.items():
            if key not in values or value.version > values[key].version:
                values[key] = value
    if not afters:
        return
    after = {"after": min(afters)}
    with HistoryWriter(into / RESOURCE_FILE, Decision, origin_ns=origin, config=after) as writer:
        writer.write(decisions[seq] for seq in sorted(decisions))
        for value in values.values():
            writer.value(value)


def _clock(share: Share, part: History) -> _Clock | None:
    """Where its start lies on the resource's clock; `None` when no answered write tells."""
    clocks = Evidence(part).clocks
    bounds = [
        found
        for row in {row.process: row for row in part.rows}.values()
        if (found := clocks.bounds(row)) is not None
    ]
    if not bounds:
        return None
    start = share.result.start
    return _Clock(start - min(found.high for found in bounds), start - max(found.low for found in bounds))


def _shifted(row: Row, shift: int) -> Row:
    if shift:
        for name in _TIMES:
            at = getattr(row, name)
            if at is not None:
                setattr(row, name, at + shift)
    return row


def _whole(shares: Sequence[Share]) -> FleetResult:
    results = [share.result for share in shares]
    return FleetResult(
        min(result.start for result in results),
        Recording.merged(result.recording for result in results),
        [],
        results[0].capabilities,
        seconds=max(result.seconds for result in results),
        cpu=[share for result in results for share in result.cpu],
        commands=all_together(result.commands for result in results),
        max_loop_lag=max(result.max_loop_lag for result in results),
        dropped=sum(result.dropped for result in results),
        pauses=[part for result in results for part in result.pauses],
        failures=[f"share {share.number}: {text}" for share in shares for text in share.result.failures],
    )


def _machine(share: Share, clocks: Mapping[int, _Clock | None]) -> MachineFigures:
    counters, lag = share.result.recording.counters, share.result.recording.total["schedule_lag"]
    clock, reference = clocks[share.number], next((clock for clock in clocks.values() if clock), None)
    offset = bound = None
    if clock is not None and reference is not None:
        offset = round((clock.middle - reference.middle) / 1e6, 3)
        bound = round((clock.doubt + reference.doubt) / 1e6, 3) if clock is not reference else 0.0
    return MachineFigures(
        share=share.number,
        host=str(share.environment.get("host", "")),
        offered=counters.offered,
        acquired=counters.acquired,
        accepted=counters.accepted,
        lag_p99_ms=round(lag.percentiles(99)[0] / 1e6, 6),
        cpu=tuple(round(used, 3) for used in share.result.cpu),
        start_offset_ms=offset,
        offset_bound_ms=bound,
    )
