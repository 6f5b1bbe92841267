"""What one participant did: events in order, that can be waited for, and that become history rows."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, cast

from harness.faults import FaultJournal
from harness.history.rows import Outcome, Row, WriteOutcome
from harness.lab.event import Event, Heard, Say

PATIENCE = 60.0
"""Seconds until an event that does not come is a failure: far beyond any schedule."""

_WRITES = ("accepted", "stale", "unknown", "failed")


class NeverHappened(Exception):
    """A participant did not get as far as the schedule needs."""


class Track:
    """The events of one participant, oldest first."""

    def __init__(self, name: str, key: str) -> None:
        self.name = name
        self.key = key
        self.events: list[Event] = []
        self.paused = False
        """Was frozen past its TTL on purpose."""
        self.over = False
        """Nothing more will come."""
        self._complaint = ""
        self._news = asyncio.Event()

    def add(self, event: Event) -> None:
        self.events.append(event)
        self._wake()

    def listener(self, journal: FaultJournal) -> Heard:
        """Notes what a participant says, on the journal's clock."""
        return lambda event: self.add(event.since(journal.origin))

    def teller(self, journal: FaultJournal) -> Say:
        """Notes what happens in this process, on the journal's clock."""

        def say(event: str, /, **details: Any) -> None:
            self.add(Event.happened(event, **details).since(journal.origin))

        return say

    def end(self, complaint: str = "") -> None:
        """Whoever waits for an event now waits in vain; `complaint` is what may explain it."""
        self.over = True
        self._complaint = complaint
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def last(self, *names: str) -> Event | None:
        """The latest event of one of these names."""
        return next((event for event in reversed(self.events) if event.name in names), None)

    def expect(self, *names: str) -> Event:
        """The latest event of one of these names.

        :raises NeverHappened: there is none.
        """
        event = self.last(*names)
        if event is None:
            raise NeverHappened(f"{self.name} was never {' or '.join(names)}: {self}")
        return event

    def has(self, name: str) -> bool:
        return self.last(name) is not None

    async def until(self, *names: str, patience: float = PATIENCE) -> Event:
        """The latest event of one of these names, once there is one.

        :raises NeverHappened: the participant ended, or nothing came for `patience` seconds.
        """
        try:
            async with asyncio.timeout(patience):
                while (event := self.last(*names)) is None:
                    if self.over:
                        raise NeverHappened(f"{self.name} ended before it was {' or '.join(names)}: {self}")
                    await self._news.wait()
                return event
        except TimeoutError:
            raise NeverHappened(
                f"{self.name} was not {' or '.join(names)} within {patience:g} s: {self}"
            ) from None

    def __str__(self) -> str:
        if not self.events:
            return self._complaint or "it never said anything"
        last = self.events[-1]
        error = last.details.get("error") or self._complaint
        return f"its last event was {last.name}{f' ({error})' if error else ''}"


def rows_of(tracks: Iterable[Track]) -> list[Row]:
    """One row per attempt to acquire, numbered over all tracks; `process` is the track's number."""
    rows: list[Row] = []
    for process, track in enumerate(tracks):
        for attempt in _attempts(track):
            rows.append(_row(len(rows), process, track, attempt))
    return rows


def _attempts(track: Track) -> Iterator[list[Event]]:
    attempt: list[Event] = []
    for event in track.events:
        if event.name == "acquiring" and attempt:
            yield attempt
            attempt = []
        if attempt or event.name == "acquiring":
            attempt.append(event)
    if attempt:
        yield attempt


def _row(number: int, process: int, track: Track, events: list[Event]) -> Row:
    called = events[0].at
    row = Row(
        number, process, process, track.key, called, dispatched=called, called=called, paused=track.paused
    )
    owned = writing = False
    for event in events:
        details = event.details
        row.valid_until = details.get("valid_until", row.valid_until)
        if event.name == "granted":
            row.granted, row.fence, row.owner = event.at, details["fence"], details["owner"]
        elif event.name == "writing":
            row.write_sent, row.write, writing = event.at, "unknown", True
        elif event.name in _WRITES and writing and "fence" in details:
            # What fails without a fence is the release: of a write that was cancelled nobody knows.
            writing = False
            row.write = cast(WriteOutcome, event.name)
            row.seen = details.get("seen")
            row.error = details.get("error")
            if event.name in ("accepted", "stale"):
                row.write_done = event.at
        elif event.name == "released":
            row.released, owned = event.at, bool(details.get("owned"))
        elif event.name in ("timed_out", "failed", "lost"):
            row.outcome = cast(Outcome, event.name)
            row.error = details.get("error")
    if row.outcome == "abandoned" and row.released is not None:
        row.outcome = _outcome(row, owned)
    return row


def _outcome(row: Row, owned: bool) -> Outcome:
    if row.write == "stale":
        return "stale"
    if row.write in ("unknown", "failed"):
        return "failed"
    return "ok" if owned else "lost"
