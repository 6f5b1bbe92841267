"""A latency distribution in HdrHistogram's buckets, cheap to fill in bulk, small to send.

HdrHistogram_py needs 1 µs for each recorded value and tens of thousands of counters for each second of
a run. This keeps only the buckets that are in use, in a dict from the bucket's lowest value to its
count, and becomes a real `HdrHistogram` when a log is written.
"""

import zlib
from array import array
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable
from typing import Self

from hdrh.histogram import HdrHistogram

SIGNIFICANT_FIGURES = 3
HIGHEST_NS = 24 * 3600 * 1_000_000_000
"""A day: what is longer counts as a day."""

# Three significant figures need 2,000 distinct values per bucket, so 2,048: values below that are
# exact, of larger ones the leading 11 bits count.
_EXACT_BITS = 11
_EXACT = 1 << _EXACT_BITS


def highest_equivalent(value: int) -> int:
    """The largest value that shares its bucket with `value`."""
    return value if value < _EXACT else value | ((1 << (value.bit_length() - _EXACT_BITS)) - 1)


class Distribution:
    """Counts of nanosecond values, to three significant figures.

    Negative values (an arrival that was let go early) count as 0 in the buckets, as a histogram cannot
    hold them; `negative` and `min` keep them visible.
    """

    __slots__ = ("_counts", "count", "max", "min", "negative")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.negative = 0
        self.min = 0
        """The smallest value, exact; 0 when there is none."""
        self.max = 0
        """The largest value, exact; 0 when there is none."""
        self.add(values)

    def add(self, values: Iterable[int]) -> None:
        """Count each of `values`: about 0.2 µs each when there are many."""
        values = list(values)
        if not values:
            return
        low, high = min(values), max(values)
        if low < 0 or high > HIGHEST_NS:
            self.negative += sum(value < 0 for value in values)
            values = [min(max(value, 0), HIGHEST_NS) for value in values]
        self._widen(low, high)
        self.count += len(values)
        self._counts.update(
            [
                value if value < _EXACT else value >> (shift := value.bit_length() - _EXACT_BITS) << shift
                for value in values
            ]
        )

    def merge(self, other: "Distribution") -> None:
        """Add all that `other` counted."""
        if other.count:
            self._widen(other.min, other.max)
            self.count += other.count
            self.negative += other.negative
            self._counts.update(other._counts)

    def _widen(self, low: int, high: int) -> None:
        self.min = min(self.min, low) if self.count else low
        self.max = max(self.max, high) if self.count else high

    def percentiles(self, *percents: float) -> list[int]:
        """The value at each percentile, as HdrHistogram defines it (but never above `max`); 0 when empty."""
        if not self.count:
            return [0] * len(percents)
        found: dict[float, int] = {}
        buckets = iter(sorted(self._counts.items()))
        value, below = next(buckets)
        for percent in sorted(percents):
            wanted = max(int(percent * self.count / 100 + 0.5), 1)
            while below < wanted:
                value, count = next(buckets)
                below += count
            found[percent] = min(highest_equivalent(value), max(self.max, 0))
        return [found[percent] for percent in percents]

    def to_hdr(self) -> HdrHistogram:
        """The same counts as a HdrHistogram."""
        histogram = HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_FIGURES)
        for value, count in self._counts.items():
            histogram.record_value(value, count)
        return histogram

    def pack(self) -> bytes:
        """All of it in about two bytes for each bucket in use: what an interval costs to keep."""
        flat = [self.min, self.max, self.negative]
        for bucket in sorted(self._counts.items()):
            flat.extend(bucket)
        return zlib.compress(array("q", flat).tobytes(), 1)

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """The reverse of `pack`, on a machine of the same byte order."""
        flat = array("q", zlib.decompress(packed))
        whole = cls()
        whole.min, whole.max, whole.negative = flat[:3]
        whole._counts = Counter(dict(zip(flat[3::2], flat[4::2], strict=True)))
        whole.count = whole._counts.total()
        return whole

    def to_text(self) -> str:
        """`pack` as text, for JSON."""
        return b64encode(self.pack()).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The reverse of `to_text`."""
        return cls.unpack(b64decode(text))
