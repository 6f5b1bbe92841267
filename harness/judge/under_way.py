"""How many contenders were busy on average, and what a section of theirs took."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.history import Row

_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Means over the sections that were served, in seconds."""

    contenders: float = 0.0
    """Contenders that were busy at once."""
    acquire: float = 0.0
    write: float = 0.0
    release: float = 0.0


def measure_under_way(rows: Sequence[Row], seconds: float) -> UnderWay:
    """Of a run of that length. Whoever gave up waiting was not served, and does not count."""
    busy = acquire = write = release = count = 0
    for row in rows:
        if row.called is None:
            continue
        ended = row.released or row.write_done or row.granted
        busy += 0 if ended is None else ended - row.called
        if row.granted is None or row.write_sent is None or row.write_done is None or row.released is None:
            continue
        count += 1
        acquire += row.granted - row.called
        write += row.write_done - row.write_sent
        release += row.released - row.write_done
    whole, each = max(seconds, 1e-9) * _SECOND, max(count, 1) * _SECOND
    return UnderWay(busy / whole, acquire / each, write / each, release / each)
