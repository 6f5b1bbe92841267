"""What the steps of a cycle cost, in seconds: given, or taken from a measured run."""

import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal
from urllib.parse import parse_qsl

from asyncdlock._options import flag
from harness.config import UsageError
from harness.history import Row
from harness.report.model import Summary

Discipline = Literal["queue", "local", "poll"]
DISCIPLINES: tuple[Discipline, ...] = ("queue", "local", "poll")
_STRETCH = 500
_ENOUGH = 30
"""Values below which a distribution is a few values' luck."""


class Samples:
    """Measured values, drawn in stretches as they were recorded: a slow moment outlasts one value."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values = values

    def stream(self, rng: random.Random) -> Callable[[], float]:
        """Draws without end, the same for the same state of `rng`."""
        values, last = self.values, len(self.values)
        place, left = 0, 0

        def draw() -> float:
            nonlocal place, left
            if not left:
                place, left = rng.randrange(last), _STRETCH
            left -= 1
            place = (place + 1) % last
            return values[place]

        return draw


def always(seconds: float) -> Samples:
    """The same every time."""
    return Samples([seconds])


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Costs without the network, whose round trip is added where a message travels."""

    hold: Samples
    """From the grant until the holder begins to release: work and write."""
    exchange: Samples
    """A request for a free lock and its answer."""
    handoff: Samples
    """From the beginning of a release until the next holder, which the server tells, knows."""
    local: Samples
    """The same within a process."""
    service: float
    """For how long a request keeps the server's thread."""


DEFAULTS = Parameters(
    hold=always(300e-6),
    exchange=always(100e-6),
    handoff=always(120e-6),
    local=always(25e-6),
    service=8e-6,
)
"""About what one machine with a Redis and a fenced resource shows; `--from RUN` measures yours."""


def discipline_of(summary: Summary) -> Discipline:
    """How a measured run's waiters were served."""
    config = summary.config
    options = dict(parse_qsl((config.url or "").partition("?")[2]))
    options.update((name, value) for name, _, value in (option.partition("=") for option in config.options))
    if config.scheme in ("redlock", "redlocks"):
        return "queue" if flag("local_queue", options.get("local_queue", True)) else "poll"
    if config.scheme in ("redis", "rediss", "unix"):
        return "poll"
    if not flag("local_queue", options.get("local_queue", True)):
        return "queue"
    hands_on = config.scheme.startswith(("redis", "unix", "postgres"))  # unless told otherwise
    return "queue" if options.get("local_handoffs", "256" if hands_on else "0") == "0" else "local"


def measured(rows: Sequence[Row], discipline: Discipline, service: float) -> Parameters:
    """The costs that a run's own rows show.

    :raises UsageError: too little of it was contended, or idle, to tell.
    """
    holds: list[float] = []
    exchanges: list[float] = []
    handoffs: list[float] = []
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.granted is not None and row.releasing is not None and not (row.paused or row.shared):
            by_key[row.key].append(row)
    for holders in by_key.values():
        holders.sort(key=attrgetter("granted"))
        called = sorted(row.called or 0 for row in holders)
        before: Row | None = None
        for row in holders:
            granted, asked = row.granted or 0, row.called or 0
            holds.append(((row.releasing or 0) - granted) / 1e9)
            if before is None or asked >= (before.released or 0):
                exchanges.append((granted - asked) / 1e9)
            elif asked <= (before.releasing or 0) <= granted and bisect_left(called, before.releasing or 0):
                handoffs.append((granted - (before.releasing or 0)) / 1e9)
            before = row
    for name, values in (("held", holds), ("granted at once", exchanges), ("handed on", handoffs)):
        if len(values) < _ENOUGH and not (name == "handed on" and discipline == "poll"):
            raise UsageError(
                f"too few locks were {name} in that run ({len(values)}) to measure from: take one in which "
                "some arrivals wait and some do not"
            )
    exchange = Samples(exchanges)
    handed = Samples(handoffs or exchanges)
    return Parameters(
        hold=Samples(holds),
        exchange=exchange,
        handoff=exchange if discipline == "local" else handed,
        local=handed if discipline == "local" else DEFAULTS.local,
        service=service,
    )
