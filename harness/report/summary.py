"""Puts together what a run found out: its figures, its verdict, and its exit code."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness import exits
from harness.config import RunConfig
from harness.history import Fault, History, Row
from harness.history.recording import Recording
from harness.judge.bounds import advised, find_bound
from harness.judge.checkers.fairness import order_of
from harness.judge.checkers.registry import verdict_of
from harness.judge.checkers.result import CheckResult
from harness.judge.cycle import busiest_key, measure_cycle
from harness.judge.thresholds import Threshold
from harness.judge.under_way import measure_under_way
from harness.load.result import FleetResult
from harness.report.certificate import certificate
from harness.report.latencies import latencies
from harness.report.model import (
    Arrivals,
    Backend,
    Client,
    FaultFigures,
    Judgement,
    MachineFigures,
    ResourceFigures,
    Summary,
)
from harness.report.stages import stages_of

TRUST = "trust"
"""The check beside those of the history: whether the run's own tools can be believed."""
SCHEMA = "asyncdlock-summary/1"
_SHOWN_ERRORS = 5
_NANOSECONDS = 1_000_000_000


def build(
    config: RunConfig,
    *,
    command: Sequence[str],
    started: str,
    environment: Mapping[str, Any],
    fleet: FleetResult,
    history: History,
    checks: Mapping[str, CheckResult],
    stale_rejections_reported: int | None,
    failures: Sequence[str],
    interrupted: bool,
    crossed: Judgement | None = None,
    machines: Sequence[MachineFigures] = (),
) -> Summary:
    """The whole summary. `failures` are what went wrong with the run itself, a sentence each; `crossed` is
    the bound that ended it."""
    recording = fleet.recording
    rows = measured(history.rows, config)
    arrivals = _arrivals(recording, rows, config, fleet.dropped)
    seconds = max(fleet.seconds - config.warmup, 0.0)
    window = min(config.duration, seconds)
    until = (config.warmup + window) * _NANOSECONDS
    drained = sum(row.granted is not None and row.granted > until for row in rows)
    cycle = measure_cycle(rows, seconds, config.timeout)
    trust = certificate(
        recording.total["schedule_lag"],
        cpu=fleet.cpu,
        seconds=fleet.seconds,
        dropped=fleet.dropped,
        pauses=fleet.pauses,
        failures=[*failures, *fleet.failures],
    )
    trust = replace(trust, machines=tuple(machines))
    checks = judged_with_trust(checks, trust.reasons)
    summary = Summary(
        schema=SCHEMA,
        command=tuple(command),
        started=started,
        config=config,
        environment=environment,
        verdict=verdict_of(checks),
        interrupted=interrupted,
        doubts=trust.reasons,
        certificate=trust,
        checks=checks,
        arrivals=arrivals,
        throughput_per_s=round((arrivals.acquired - drained) / window, 3) if window else 0.0,
        duration_s=round(seconds, 3),
        drain_s=round(seconds - window, 3),
        drained=drained,
        latency_ms=latencies(recording, rows, config, fleet.seconds),
        order=order_of(rows, patience=config.timeout),
        resource=_resource(history, stale_rejections_reported),
        backend=Backend(
            name=config.label,
            capabilities=fleet.capabilities,
            commands=fleet.commands,
            commands_per_acquire=_per(fleet.commands, _granted(history.rows)),
        ),
        cycle_s=cycle,
        client=Client(
            cpu=tuple(round(share, 3) for share in fleet.cpu),
            max_loop_lag_s=round(fleet.max_loop_lag, 6),
        ),
        bound=find_bound(
            config,
            offered=arrivals.offered,
            acquired=arrivals.acquired,
            failed=arrivals.failed,
            backlog_max=arrivals.backlog_max,
            seconds=seconds,
            cpu=fleet.cpu,
            cycle=cycle,
            busiest_key=busiest_key(rows, seconds, config.timeout),
            under_way=measure_under_way(rows, seconds),
        ),
        errors=_errors(history),
        faults=tuple(_fault(fault) for fault in history.faults),
        stages=stages_of(config, rows),
    )
    bound = advised(
        summary.bound,
        config,
        violated=summary.verdict == "violated",
        timed_out=arrivals.timed_out,
        offered=arrivals.offered,
    )
    # Those of a share are the whole run's: see harness.load.merging.
    wanted = () if config.is_share else config.thresholds
    thresholds = [Threshold.parse(text).judge(summary) for text in wanted]
    summary = replace(summary, bound=bound, thresholds=(*thresholds, *([crossed] if crossed else [])))
    return replace(summary, exit_code=exit_code(summary))


def measured(rows: Sequence[Row], config: RunConfig) -> Sequence[Row]:
    """The arrivals that count in figures: those that were due after the warm-up."""
    if not config.warmup:
        return rows
    return [row for row in rows if row.intended >= config.warmup * _NANOSECONDS]


def _arrivals(recording: Recording, rows: Sequence[Row], config: RunConfig, dropped: int) -> Arrivals:
    counted = recording.arrivals()
    if config.warmup:  # the runner counts them all
        counted["offered"] = len(rows)
        counted["dispatched"] = sum(row.dispatched is not None for row in rows)
    return Arrivals(**counted, dropped=dropped)


def _granted(rows: Sequence[Row]) -> int:
    return sum(row.granted is not None for row in rows)


def judged_with_trust(checks: Mapping[str, CheckResult], doubts: Sequence[str]) -> dict[str, CheckResult]:
    """The checks and one more: a run that cannot be trusted has not shown that all is well."""
    trust = CheckResult("unknown" if doubts else "ok", list(doubts))
    return {**checks, TRUST: trust}


def exit_code(summary: Summary) -> int:
    """What the process says to its caller; the gravest finding counts, after the user's own Ctrl-C."""
    if summary.interrupted:
        return exits.INTERRUPTED
    if summary.verdict == "violated":
        return exits.VIOLATED
    if summary.doubts or (summary.verdict != "ok" and not summary.config.is_share):
        return exits.UNTRUSTED
    if not all(judgement.passed for judgement in summary.thresholds):
        return exits.THRESHOLD
    return exits.OK


def _resource(history: History, reported: int | None) -> ResourceFigures:
    log = history.log
    counts = Counter([row.write for row in history.rows] if log is None else [entry.outcome for entry in log])
    return ResourceFigures(
        accepted=counts["accepted"],
        stale_rejections=counts["stale"],
        source="replies" if log is None else "log",
        stale_rejections_reported=reported,
    )


def _errors(history: History) -> dict[str, int]:
    """The most frequent errors of arrivals, and how often each came."""
    return dict(Counter(row.error for row in history.rows if row.error).most_common(_SHOWN_ERRORS))


def _fault(fault: Fault) -> FaultFigures:
    until = None if fault.until is None else round(fault.until / _NANOSECONDS, 3)
    return FaultFigures(
        name=fault.name, at_s=round(fault.at / _NANOSECONDS, 3), until_s=until, details=fault.details
    )


def _per(amount: int | None, count: int) -> float | None:
    return round(amount / count, 3) if amount is not None and count else None
