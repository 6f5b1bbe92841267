"""Rows and decisions in the words of a finding."""

from collections.abc import Mapping

from harness.history import Decision, Row


def in_words(subject: object, arrivals: Mapping[str, int]) -> object:
    """A row as an arrival, a decision as a write; anything else as it is.

    `arrivals` tells which arrival is behind an owner.
    """
    if isinstance(subject, Row):
        return arrival(subject)
    return write(subject, arrivals) if isinstance(subject, Decision) else subject


def arrival(row: Row) -> str:
    fence = "" if row.fence is None else f", fence {row.fence}"
    return f"arrival {row.id} (key {row.key!r}{fence})"


def write(decision: Decision, arrivals: Mapping[str, int]) -> str:
    by = ""
    if decision.owner is not None:
        known = arrivals.get(decision.owner)
        by = f" of {_printable(decision.owner)}" if known is None else f" of arrival {known}"
    number = f".{decision.fence_seq}" if decision.fence_seq else ""
    at = seconds(decision.decided)
    return f"write #{decision.seq}{by} with fence {decision.token}{number} on {decision.key!r} at {at}"


def _printable(owner: str) -> str:
    """Without what a terminal obeys: a log may name anybody."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in owner)


def seconds(time_ns: int | None) -> str:
    """A time of the run."""
    return "an unknown time" if time_ns is None else f"{time_ns / 1e9:.6f} s"
