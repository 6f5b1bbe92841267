"""Order that is certain: one interval ended before the other began."""

from collections.abc import Iterator, Sequence


def regressions(
    starts: Sequence[int], ends: Sequence[int], fences: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Every interval whose fence is not above that of one that certainly came before, with that one.

    Somewhere between `starts[i]` and `ends[i]` fence `fences[i]` took its place in the order. Yields
    indexes `(earlier, later)`; of all that came before, the one with the highest fence is named.
    Overlapping intervals have no order, so nothing is said about them. O(n log n).
    """
    by_end = sorted(range(len(ends)), key=ends.__getitem__)
    position = 0
    highest = -1
    for later in sorted(range(len(starts)), key=starts.__getitem__):
        start = starts[later]
        while ends[by_end[position]] < start:
            earlier = by_end[position]
            if highest < 0 or fences[earlier] > fences[highest]:
                highest = earlier
            position += 1
        if highest >= 0 and fences[highest] >= fences[later]:
            yield highest, later
