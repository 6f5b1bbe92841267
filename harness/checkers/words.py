"""Rows and decisions in the words of a finding."""

from harness.history import Decision, Row


def in_words(subject: object) -> object:
    """A row as an arrival, a decision as a write; anything else as it is."""
    if isinstance(subject, Row):
        return arrival(subject)
    return write(subject) if isinstance(subject, Decision) else subject


def arrival(row: Row) -> str:
    fence = "" if row.fence is None else f", fence {row.fence}"
    return f"arrival {row.id} (key {row.key!r}{fence})"


def write(decision: Decision) -> str:
    by = "" if decision.owner is None else f" of {decision.owner}"
    number = f".{decision.fence_seq}" if decision.fence_seq else ""
    at = seconds(decision.decided)
    return f"write #{decision.seq}{by} with fence {decision.token}{number} on {decision.key!r} at {at}"


def seconds(time_ns: int | None) -> str:
    """A time of the run."""
    return "an unknown time" if time_ns is None else f"{time_ns / 1e9:.6f} s"
