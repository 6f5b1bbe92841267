"""A history, validated and arranged for the checkers: by key, in order, each index built once.

The validation is of what every checker takes for granted. A history that breaks it says nothing
reliable, so the checks that need that part are `unknown`, not `violated`.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TypeVar

from harness.history import Decision, History, Outcome, Row, WriteOutcome
from harness.history.rows import BODY
from harness.judge.checkers.clocks import Clocks, compare_clocks
from harness.judge.checkers.result import Findings, Unsound

T = TypeVar("T")

_CONTRADICTIONS: Mapping[Outcome, tuple[WriteOutcome, ...]] = {
    "ok": ("stale", "unknown", "failed"),
    "stale": ("accepted", "unknown", "failed", "none"),
    "timed_out": ("accepted", "stale", "unknown", "failed"),
}
"""Outcome of an arrival -> what its write cannot have been."""
_NANOSECONDS = 1_000_000_000
_NEVER = 1 << 63


class Evidence:
    """What the checkers see. The properties raise `Unsound` when that part of the history is unsound."""

    def __init__(self, history: History) -> None:
        self.history = history

    def findings(self) -> Findings:
        """An empty collection, whose findings name the arrivals behind the owners."""
        return Findings(lambda: self._arrivals)

    @cached_property
    def _arrivals(self) -> dict[str, int]:
        return {row.owner: row.id for row in self.history.rows if row.owner is not None}

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The arrivals: each once, each attempt with an owner of its own, its times in order."""
        rows = self.history.rows
        findings = self.findings()
        for row in _repeated(rows, "id"):
            findings.unknown("{} is recorded twice", row)
        for row in _repeated([row for row in rows if row.owner is not None], "owner"):
            findings.unknown("{} shares its owner {} with another", row, row.owner)
        for row in rows:
            if row.id < 0:
                findings.unknown("{} has a number below 0", row)
            elif not _in_order(row):
                findings.unknown("{} has times that run backwards", row)
            elif row.granted is None and (row.outcome == "ok" or row.fence is not None):
                findings.unknown("{} ended well without a grant", row)
            elif row.write_sent is None and row.write in ("accepted", "stale", "unknown"):
                findings.unknown("{} has a reply to a write that was never sent", row)
            elif row.write in ("accepted", "stale") and row.write_done is None:
                findings.unknown("{} was told that its write was {} at no time", row, row.write)
            elif row.outcome in _CONTRADICTIONS and row.write in _CONTRADICTIONS[row.outcome]:
                findings.unknown(
                    "{} contradicts itself: it ended as {}, but its write was {}", row, row.outcome, row.write
                )
            elif row.outcome == "timed_out" and row.granted is not None:
                findings.unknown("{} timed out although it was granted the lock", row)
            elif row.shared:
                self._check_shared(row, findings)
        findings.demand()
        return rows

    def _check_shared(self, row: Row, findings: Findings) -> None:
        """Only some kinds of lock are held together with others, and their readers do not write."""
        text = str(self.history.config.get("kind", ""))
        kind = text.partition(":")[0]
        if kind == "exclusive":
            findings.unknown("{} took the lock beside others, in a run of exclusive locks", row)
        elif not kind:
            findings.unknown("{} took the lock beside others, but the run does not say who may", row)
        elif kind not in ("shared", "semaphore") or (kind == "semaphore" and self.permits is None):
            findings.unknown("{} took the lock beside others, but {!r} says not how many may", row, text)
        elif kind == "shared" and row.write != "none":
            findings.unknown("{} is a reader, but wrote", row)

    @cached_property
    def log(self) -> Sequence[Decision]:
        """The resource's decisions, in its order, which does not contradict its clock."""
        log = self.history.log
        if log is None:
            raise Unsound(["there is no log of the resource: nobody but the clients can tell what it did"])
        findings = self.findings()
        for decision in _repeated(log, "seq"):
            findings.unknown("number {} is twice in the resource's log", decision.seq)
        # Decisions may overlap in time; but one that began when a later one was already over was
        # not before it.
        over = 1 << 63
        for decision in reversed(log):
            if min(decision.seq, decision.token, decision.fence_seq, decision.seen or 0) < 0:
                findings.unknown("the resource's log has a number below 0: {}", decision)
            if decision.started > decision.decided:
                findings.unknown("{} was decided before it began", decision)
            if decision.started > over:
                findings.unknown("{} began after a later number of the log was decided", decision)
            over = min(over, decision.decided)
        findings.demand()
        return log

    @cached_property
    def ttl(self) -> int | None:
        """The lease's length in nanoseconds, if the history names it."""
        ttl = self.history.config.get("ttl")
        if isinstance(ttl, int | float) and 0 < ttl < float("inf"):
            return round(ttl * _NANOSECONDS)
        return None

    @cached_property
    def permits(self) -> int | None:
        """How many may hold a key at once; `None` when it was no semaphore."""
        kind, _, number = str(self.history.config.get("kind", "")).partition(":")
        return int(number) if kind == "semaphore" and number.isdecimal() else None

    @cached_property
    def bodies_known(self) -> bool:
        """Whether each arrival wrote once, and what `body_of` says."""
        config = self.history.config
        # Runs wrote this body before their headers said so.
        return bool(config.get("body", BODY if "contenders" in config else None) == BODY)

    @cached_property
    def by_owner(self) -> Mapping[str, Row]:
        """The arrival behind each owner."""
        return {row.owner: row for row in self.rows if row.owner is not None}

    @cached_property
    def one_clock(self) -> bool:
        """Whether the run's processes were on one machine, as far as is known."""
        machines = self.history.config.get("machines", 1)
        return not isinstance(machines, int) or machines <= 1

    @cached_property
    def clocks(self) -> Clocks:
        """By how much the processes' clocks may differ; without the resource's log nothing is known."""
        if self.history.log is None:
            return Clocks({})
        try:
            return compare_clocks(self.rows, self.decided)
        except Unsound:
            return Clocks({})

    @cached_property
    def granted(self) -> dict[str, list[Row]]:
        """The arrivals that got the lock, by key."""
        granted: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.granted is not None:
                granted[row.key].append(row)
        return granted

    @cached_property
    def grants(self) -> dict[str, list[Row]]:
        """The arrivals that got the lock and a fence, by key."""
        return {key: [row for row in rows if row.fence is not None] for key, rows in self.granted.items()}

    @cached_property
    def accepted(self) -> dict[str, list[Decision]]:
        """The writes that took effect, by key, in the resource's order."""
        accepted: dict[str, list[Decision]] = defaultdict(list)
        for decision in self.log:
            if decision.outcome == "accepted":
                accepted[decision.key].append(decision)
        return accepted

    @cached_property
    def _decisions(self) -> dict[str, dict[int, list[Decision] | Decision]]:
        """By key and token. Nearly every token has one decision: a list for each would double the memory."""
        decisions: dict[str, dict[int, list[Decision] | Decision]] = defaultdict(dict)
        for decision in self.log:
            tokens = decisions[decision.key]
            first = tokens.setdefault(decision.token, decision)
            if isinstance(first, list):
                first.append(decision)
            elif first is not decision:
                tokens[decision.token] = [first, decision]
        return decisions

    def decided(self, row: Row) -> list[Decision]:
        """The decisions on this arrival's write. Where the log names no owner, the fence must do."""
        found = self._decisions.get(row.key, {}).get(row.fence or 0, [])
        decisions = found if isinstance(found, list) else [found]
        if len(decisions) == 1 and decisions[0].owner == row.owner:  # nearly always
            return decisions
        return [
            decision
            for decision in decisions
            if decision.owner == row.owner or (row.fence and (decision.owner is None or row.owner is None))
        ]

    def spans(self, effect: str, key: str) -> list[tuple[int, int]]:
        """From when until when an accident had this effect on the key, in order."""
        return sorted(
            (fault.at, _NEVER if fault.until is None else fault.until)
            for fault in self.history.faults
            if fault.affects(effect, key)
        )

    def epochs(self, key: str, grants: Sequence[Row]) -> list[list[Row]]:
        """The grants whose fences can be compared: those between accidents that made a server forget.

        What was granted while an accident lasted is in none. Faults are on the run's clock, so this is for
        runs whose processes share one.
        """
        forgotten = self.spans("forgets", key)
        disturbed = [*forgotten, *self.spans("frees", key)]
        if not disturbed:
            return [list(grants)]
        groups: dict[int, list[Row]] = defaultdict(list)
        for row in grants:
            called, granted = row.called or 0, row.granted or 0
            if not any(called <= until and granted >= at for at, until in disturbed):
                groups[sum(until < called for _, until in forgotten)].append(row)
        return list(groups.values())

    @cached_property
    def from_the_start(self) -> bool:
        """Whether nothing is missing from the log: a resource in memory drops its oldest rows."""
        return self.history.complete and (not self.log or self.log[0].seq <= self.history.log_after + 1)


def _in_order(row: Row) -> bool:
    """Whether each time that was noted is no earlier than the one before it."""
    # `intended` and `dispatched` are left out: timers may fire early.
    last = row.called
    for time_ns in (row.granted, row.write_sent, row.write_done, row.releasing):
        if time_ns is not None:
            if last is not None and time_ns < last:
                return False
            last = time_ns
    since = row.granted if row.releasing is None else row.releasing
    return row.released is None or since is None or row.released >= since


def _repeated(items: Sequence[T], name: str) -> Iterator[T]:
    values = list(map(attrgetter(name), items))
    met = set(values)
    if len(met) < len(values):
        met.clear()
        for item, value in zip(items, values, strict=True):
            if value in met:
                yield item
            met.add(value)
