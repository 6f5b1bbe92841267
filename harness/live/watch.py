"""What a generator tells the live page about the lock: a sample of a few keys, and how long arrivals waited.

Sampled, not streamed: a section costs the generator two look-ups, everything else happens when finished rows
are folded or a report is due.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from harness.history.rows import Row

SHOWN_KEYS = 4
SAMPLE = 20
"""Holders of a key that a report names at most: the last ones, so that hand-offs between them can be seen."""
_WAITERS = 8
_REFUSED = 20
_NANOSECONDS_A_MS = 1e6

Holder = list[Any]
"""`[called, granted, released, fence, write, frozen, arrival]` as in the report's timeline, times in ms;
`released` is `None` while it holds."""
_WRITES = {"accepted": 0, "stale": 1}


def shown_keys(keys: int) -> list[str]:
    """The keys that are shown, of a run with this many; of a Zipf distribution the most wanted ones."""
    return ["hot"] if keys == 1 else [f"key-{number}" for number in range(min(keys, SHOWN_KEYS))]


class LockWatch:
    """Looks at the arrivals of one process."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._present: dict[str, dict[int, Row]] = {key: {} for key in keys}
        """Those who wait for a key, or hold it, in the order in which they asked."""
        self._past: dict[str, deque[Row]] = {key: deque(maxlen=SAMPLE) for key in keys}
        self._refused: deque[Row] = deque(maxlen=_REFUSED)
        self._waits: Counter[int] = Counter()

    def begin(self, row: Row) -> None:
        """An arrival was taken by a contender."""
        present = self._present.get(row.key)
        if present is not None:
            present[row.id] = row

    def end(self, row: Row) -> None:
        """It is over."""
        present = self._present.get(row.key)
        if present is not None:
            present.pop(row.id, None)

    def see(self, batch: Sequence[Row]) -> None:
        """Rows that are over, off the hot path."""
        for row in batch:
            if row.granted is None:
                continue
            self._waits[half_octave(row.granted - row.intended)] += 1
            if row.key in self._past:
                self._past[row.key].append(row)
            if row.write == "stale":
                self._refused.append(row)

    def report(self) -> dict[str, Any]:
        """What has happened since the report before, JSON-safe."""
        told = {
            "waits": {str(bucket): count for bucket, count in self._waits.items()},
            "refused": [[row.key, *_holder(row)] for row in self._refused],
            "keys": {key: self._key(key) for key in self._present},
        }
        self._waits.clear()
        self._refused.clear()
        return told

    def _key(self, key: str) -> dict[str, Any]:
        present = self._present[key].values()
        waiting = [row for row in present if row.granted is None]
        past = self._past[key]
        told = {
            "holds": [_holder(row) for row in present if row.granted is not None],
            "waiting": len(waiting),
            "waiters": [_waiter(row) for row in islice(waiting, _WAITERS)],
            "past": [_holder(row) for row in past],
        }
        past.clear()
        return told


def half_octave(nanoseconds: int) -> int:
    """The bucket of a heat map: two for every doubling of the wait."""
    value = max(nanoseconds, 2)
    bits = value.bit_length()
    return 2 * bits + (value >> (bits - 2) & 1)


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What several processes told, as one; of holders the last ones of which all processes have told."""
    waits: Counter[str] = Counter()
    for report in reports:
        waits.update(report["waits"])
    return {
        "waits": dict(waits),
        "refused": sorted((row for report in reports for row in report["refused"]), key=lambda row: row[2]),
        "keys": {key: _merged_key([report["keys"][key] for report in reports]) for key in _keys(reports)},
    }


def _keys(reports: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from reports[0]["keys"] if reports else ()


def _merged_key(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    since = max((part["past"][0][1] for part in parts if len(part["past"]) == SAMPLE), default=0.0)
    past = sorted((row for part in parts for row in part["past"] if row[1] >= since), key=lambda row: row[1])
    waiters = sorted((waiter for part in parts for waiter in part["waiters"]), key=lambda waiter: waiter[1])
    return {
        "holds": [row for part in parts for row in part["holds"]],
        "waiting": sum(part["waiting"] for part in parts),
        "waiters": waiters[:_WAITERS],
        "past": past[-SAMPLE:],
    }


def _holder(row: Row) -> Holder:
    # While it is under way the fence may be there already, and the reply of the resource not yet.
    return [
        _ms(row.called or row.intended),
        _ms(row.granted or 0),
        None if row.released is None else _ms(row.released),
        row.fence,
        _WRITES.get(row.write, 2),
        int(row.paused),
        row.id,
    ]


def _waiter(row: Row) -> list[Any]:
    return [row.id, _ms(row.called or row.intended)]


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / _NANOSECONDS_A_MS, 3)
