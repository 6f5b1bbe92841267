"""`summary.json`: everything that a run found out, in one document."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness import exits
from harness.bounds import find_bound, measure_cycle
from harness.config import RunConfig
from harness.fleet import FleetResult
from harness.history import History
from harness.report.certificate import certificate
from harness.thresholds import Threshold
from harness.trust import doubts

SCHEMA = "asyncdlock-summary/1"
_SHOWN_ERRORS = 5


def build(
    config: RunConfig,
    *,
    command: Sequence[str],
    started: str,
    environment: Mapping[str, Any],
    fleet: FleetResult,
    history: History,
    verdict: str,
    checks: Mapping[str, Any],
    order: Mapping[str, Any],
    stale_rejections_reported: int | None,
    failures: Sequence[str],
    interrupted: bool,
) -> dict[str, Any]:
    """The whole document. `failures` are what went wrong with the run itself, a sentence each."""
    recording = fleet.recording
    arrivals = recording.arrivals() | {"dropped": fleet.dropped}
    latency = recording.latency_ms()
    seconds = fleet.seconds
    cycle = measure_cycle(history.rows, seconds)
    trust = certificate(
        recording.total["schedule_lag"],
        cpu=fleet.cpu,
        seconds=seconds,
        dropped=fleet.dropped,
        pauses=fleet.pauses,
        doubts=doubts(latency, dropped=fleet.dropped, failures=[*failures, *fleet.failures]),
    )
    summary: dict[str, Any] = {
        "schema": SCHEMA,
        "command": list(command),
        "started": started,
        "config": config.to_json(),
        "environment": dict(environment),
        "verdict": verdict,
        "interrupted": interrupted,
        "doubts": trust["reasons"],
        "certificate": trust,
        "checks": dict(checks),
        "arrivals": arrivals,
        "throughput_per_s": round(arrivals["acquired"] / seconds, 3) if seconds else 0.0,
        "duration_s": round(seconds, 3),
        "latency_ms": latency,
        "order": dict(order),
        "resource": _resource(history) | {"stale_rejections_reported": stale_rejections_reported},
        "backend": {
            "name": config.label,
            "capabilities": dict(fleet.capabilities),
            "commands": fleet.commands,
            "commands_per_acquire": _per(fleet.commands, arrivals["acquired"]),
        },
        "cycle_s": {name: round(value, 9) for name, value in asdict(cycle).items()}
        | {"ceiling_per_s": round(cycle.ceiling, 1)},
        "client": {
            "cpu": [round(share, 3) for share in fleet.cpu],
            "max_loop_lag_s": round(fleet.max_loop_lag, 6),
        },
        "bound": asdict(
            find_bound(
                config,
                offered=arrivals["offered"],
                acquired=arrivals["acquired"],
                failed=arrivals["failed"],
                backlog_max=arrivals["backlog_max"],
                seconds=seconds,
                cpu=fleet.cpu,
                cycle=cycle,
            )
        ),
        "errors": _errors(history),
    }
    summary["thresholds"] = [asdict(Threshold.parse(text).judge(summary)) for text in config.thresholds]
    summary["exit_code"] = exit_code(summary)
    return summary


def exit_code(summary: Mapping[str, Any]) -> int:
    """What the process says to its caller; the gravest finding counts, after the user's own Ctrl-C."""
    if summary["interrupted"]:
        return exits.INTERRUPTED
    if summary["verdict"] == "violated":
        return exits.VIOLATED
    if summary["doubts"] or summary["verdict"] != "ok":
        return exits.UNTRUSTED
    if not all(judgement["passed"] for judgement in summary["thresholds"]):
        return exits.THRESHOLD
    return exits.OK


def _resource(history: History) -> dict[str, Any]:
    """What the resource decided, from its own log; from the replies where there is no log."""
    if history.log is not None:
        outcomes = Counter(decision.outcome for decision in history.log)
        return {"accepted": outcomes["accepted"], "stale_rejections": outcomes["stale"], "source": "log"}
    replies = Counter(row.write for row in history.rows)
    return {"accepted": replies["accepted"], "stale_rejections": replies["stale"], "source": "replies"}


def _errors(history: History) -> dict[str, int]:
    """The most frequent errors of arrivals, and how often each came."""
    return dict(Counter(row.error for row in history.rows if row.error).most_common(_SHOWN_ERRORS))


def _per(amount: int | None, count: int) -> float | None:
    return round(amount / count, 3) if amount is not None and count else None
