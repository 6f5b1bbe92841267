"""Settings and certificates for reading: every figure with its unit."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.config import RunConfig
from harness.durations import format_duration
from harness.report.model import Certificate, Pauses
from harness.report.terminal import machine_in_words

_DURATIONS = ("duration", "ttl", "work", "pause", "timeout")


def settings_with_units(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Every setting that says something, as on the command line."""
    for name, value in config.to_json().items():
        if value is None or value == [] or value == ():
            continue
        yield name.replace("_", " "), _setting(name, value)


def described(environment: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in environment.items():
        yield name.replace("_", " "), value


def certificate_with_units(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """How far the generator can be trusted, a line each."""
    lag = {"p50": "p50", "p99": "p99", "p999": "p99.9", "max": "most", "min": "least"}
    yield "trustworthy", "yes" if certificate.trustworthy else "no: " + "; ".join(certificate.reasons)
    yield (
        "arrivals let go late by",
        ", ".join(
            f"{label} {format_duration(getattr(certificate, f'lag_{name}_ms') / 1e3)}"
            for name, label in lag.items()
        ),
    )
    yield "event loop stood still", f"{_pauses(certificate.loop_stalls)} ({certificate.stalled_share:.1%})"
    yield "garbage collections", _pauses(certificate.gc_pauses)
    yield "full collections", _pauses(certificate.gc_full_pauses)
    if certificate.run_delay_share is not None:
        yield "ready, but without a processor", f"{certificate.run_delay_share:.1%} of the run"
    yield "arrivals dropped", f"{certificate.dropped:,}"
    for machine in certificate.machines:
        yield f"share {machine.share}", machine_in_words(machine)
    saturated = ", saturated" if certificate.cpu_saturated else ""
    yield "processor", f"{', '.join(f'{share:.0%}' for share in certificate.cpu) or '?'} of a core{saturated}"


def _pauses(pauses: Pauses) -> str:
    if not pauses.count:
        return "never"
    total, longest = format_duration(pauses.total_ms / 1e3), format_duration(pauses.longest_ms / 1e3)
    return f"{pauses.count:,} times, {total} in all, {longest} at most"


def _setting(name: str, value: Any) -> str:
    if name in _DURATIONS:
        return format_duration(value)
    if name == "rate":
        return f"{value:g} arrivals/s"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and name in ("contenders", "keys") else str(value)
