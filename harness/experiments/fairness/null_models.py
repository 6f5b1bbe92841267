"""Two imaginary locks, for comparison: the fairest one, and one that draws lots.

Both make their grants at the moments at which the real lock made its own, so that they differ from it in
nothing but whom they chose.
"""

import heapq
from dataclasses import replace
from random import Random

from harness.history import Row


def first_come(rows: list[Row]) -> list[Row]:
    """The same grants, each given to whoever had come first."""
    served = _served(rows)
    grants = sorted(row.granted for row in served if row.granted is not None)
    return [replace(row, granted=grant) for row, grant in zip(served, grants, strict=True)]


def by_lot(rows: list[Row], rng: Random) -> list[Row]:
    """The same grants, each given to one drawn from those that waited."""
    served = _served(rows)
    grants = sorted(row.granted for row in served if row.granted is not None)
    coming = [(row.intended, number) for number, row in enumerate(served)]
    heapq.heapify(coming)
    waiting: list[int] = []
    chosen: list[Row] = []
    for grant in grants:
        while coming and (coming[0][0] <= grant or not waiting):
            waiting.append(heapq.heappop(coming)[1])
        place = rng.randrange(len(waiting))
        waiting[place], waiting[-1] = waiting[-1], waiting[place]
        chosen.append(replace(served[waiting.pop()], granted=grant))
    return chosen


def _served(rows: list[Row]) -> list[Row]:
    return sorted((row for row in rows if row.granted is not None), key=lambda row: row.intended)
