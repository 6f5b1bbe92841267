"""How fair a lock was: the order of arrival against the order of grants. It measures, it does not judge.

All orders are per key, over the arrivals that were granted:

    inversions        pairs in which the later arrival was granted first
    inversion_ratio   … of all pairs; 0 is first come first served, 0.5 is what chance gives
    kendall_tau       1 - 2 * inversion_ratio: 1 is first come first served, 0 chance, -1 last come first
    max_overtakes     how many later arrivals were granted before the unluckiest one; whoever gave up was
                      overtaken by those who were granted until then
    jain_index        Jain's fairness of the grants per contender, (Σx)² / (n Σx²): 1 is equal shares,
                      1/n is everything to one; over the contenders that tried at least once
    jain_wait         the same of the waits of all arrivals
    tail_ratio        p99 wait / p50 wait

Two arrivals or two grants at the same instant are in order either way.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.history import Row
from harness.history.distribution import Distribution

Arrival = Literal["intended", "called"]

# Arrivals per block of `overtakes`, and blocks per group: the counts above a rank are then one shift of
# a 2,048-bit integer and two short sums, and a million arrivals in random order take about two seconds.
_BLOCK_BITS = 11
_BLOCK = 1 << _BLOCK_BITS
_GROUP_BITS = 5


@dataclass(slots=True, frozen=True)
class Disorder:
    """How far a sequence of grants is from the order of arrival. Disorders of several keys add up."""

    pairs: int = 0
    inversions: int = 0
    max_overtakes: int = 0

    @property
    def inversion_ratio(self) -> float:
        return self.inversions / self.pairs if self.pairs else 0.0

    @property
    def kendall_tau(self) -> float:
        return 1 - 2 * self.inversion_ratio

    def __add__(self, other: "Disorder") -> "Disorder":
        return Disorder(
            self.pairs + other.pairs,
            self.inversions + other.inversions,
            max(self.max_overtakes, other.max_overtakes),
        )


@dataclass(slots=True, frozen=True, kw_only=True)
class Fairness:
    """The figures of one run, for one definition of arrival."""

    grants: int = 0
    inversions: int = 0
    inversion_ratio: float = 0.0
    max_overtakes: int = 0
    kendall_tau: float = 1.0
    jain_index: float = 1.0
    jain_wait: float = 1.0
    tail_ratio: float = 0.0
    wait_p50_ms: float = 0.0
    wait_p99_ms: float = 0.0
    wait_max_ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As in the `order` of `summary.json`, ratios to six digits."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


@dataclass(slots=True, frozen=True, kw_only=True)
class Order(Fairness):
    """By intended arrival, and the same by the call."""

    by_call: Fairness | None = None


def fairness(
    rows: Iterable[Row], arrival: Arrival = "intended", *, patience: float | None = None
) -> Fairness:
    """The figures of a run.

    `intended` asks what a user sees, the backlog included; `called` asks what the lock did with
    those that stood before it. `patience` is after how many seconds arrivals gave up.
    """
    by_key: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    shares: dict[tuple[int, int], int] = defaultdict(int)
    gave_up: dict[str, list[tuple[int, int]]] = defaultdict(list)
    waits: list[int] = []
    for row in rows:
        arrived = row.intended if arrival == "intended" else row.called
        if row.contender >= 0:
            shares[row.process, row.contender] += row.granted is not None
        if row.granted is not None and arrived is not None:
            arrivals, grants = by_key[row.key]
            arrivals.append(arrived)
            grants.append(row.granted)
            waits.append(row.granted - arrived)
        elif row.outcome == "timed_out" and patience is not None and arrived is not None:
            gave_up[row.key].append((arrived, row.intended + round(patience * 1e9)))
    whole = sum((disorder(*times) for times in by_key.values()), Disorder())
    unlucky = max((overtaken(given_up, *by_key[key]) for key, given_up in gave_up.items()), default=0)
    wait = Distribution(waits)
    p50, p99 = wait.percentiles(50, 99)
    return Fairness(
        grants=len(waits),
        inversions=whole.inversions,
        inversion_ratio=whole.inversion_ratio,
        max_overtakes=max(whole.max_overtakes, unlucky),
        kendall_tau=whole.kendall_tau,
        jain_index=jain(shares.values()),
        jain_wait=jain(waits),
        tail_ratio=p99 / p50 if p50 else 0.0,
        wait_p50_ms=p50 / 1e6,
        wait_p99_ms=p99 / 1e6,
        wait_max_ms=wait.max / 1e6,
    )


def disorder(arrivals: Sequence[int], grants: Sequence[int]) -> Disorder:
    """Of one key: `arrivals[i]` was granted at `grants[i]`. Any numbers will do: only their order counts."""
    # Arrivals at one instant are ranked in the order of their grants, and grants at one instant are
    # taken in the order of arrival (sorting is stable): so neither counts as overtaking.
    order = sorted(range(len(grants)), key=grants.__getitem__)
    order.sort(key=arrivals.__getitem__)
    rank = [0] * len(order)
    for position, index in enumerate(order):
        rank[index] = position
    order.sort(key=grants.__getitem__)
    inversions, unluckiest = overtakes([rank[index] for index in order])
    return Disorder(len(order) * (len(order) - 1) // 2, inversions, unluckiest)


def overtakes(ranks: Sequence[int]) -> tuple[int, int]:
    """The sum and the maximum over all elements of how many larger ones stand before it.

    `ranks` is a permutation of `range(n)`: the arrival's rank of each grant, in the order of grants.
    """
    blocks = (len(ranks) >> _BLOCK_BITS) + 1
    present = [0] * blocks
    in_block = [0] * blocks
    in_group = [0] * ((blocks >> _GROUP_BITS) + 1)
    total = most = 0
    highest = -1
    for rank in ranks:
        block = rank >> _BLOCK_BITS
        group = block >> _GROUP_BITS
        if rank > highest:
            highest = rank
        else:
            larger = (
                (present[block] >> (rank & (_BLOCK - 1))).bit_count()
                + sum(in_block[block + 1 : (group + 1) << _GROUP_BITS])
                + sum(in_group[group + 1 :])
            )
            total += larger
            if larger > most:
                most = larger
        present[block] |= 1 << (rank & (_BLOCK - 1))
        in_block[block] += 1
        in_group[group] += 1
    return total, most


def overtaken(gave_up: Sequence[tuple[int, int]], arrivals: Sequence[int], grants: Sequence[int]) -> int:
    """The most later arrivals that were granted before one of `gave_up` (arrival, end) had lost patience."""
    ranks = sorted(grants)
    counts = [0] * (len(ranks) + 1)  # a Fenwick tree over the ranks of the grants
    later = sorted(zip(arrivals, grants, strict=True))
    most = 0
    for arrived, end in sorted(gave_up, reverse=True):
        while later and later[-1][0] > arrived:
            place = bisect_left(ranks, later.pop()[1]) + 1
            while place < len(counts):
                counts[place] += 1
                place += place & -place
        place, before = bisect_left(ranks, end), 0
        while place:
            before += counts[place]
            place &= place - 1
        most = max(most, before)
    return most


def jain(values: Iterable[int]) -> float:
    """Jain's index; 1.0 when there is nothing to share."""
    shares = list(values)
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def order_of(rows: Sequence[Row], *, patience: float | None = None) -> Order:
    """The `order` of `summary.json`."""
    by_call = fairness(rows, "called", patience=patience)
    return Order(**fairness(rows, patience=patience).to_json(), by_call=Fairness(**by_call.to_json()))
