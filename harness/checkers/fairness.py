"""How fair a lock was: the order of arrival against the order of grants. It measures, it does not judge.

All orders are per key, over the arrivals that were granted:

    inversions        pairs in which the later arrival was granted first
    inversion_ratio   … of all pairs; 0 is first come first served, 0.5 is what chance gives
    kendall_tau       1 - 2 * inversion_ratio: 1 is first come first served, 0 chance, -1 last come first
    max_overtakes     how many later arrivals were granted before the unluckiest one
    jain_index        Jain's fairness of the grants per contender, (Σx)² / (n Σx²): 1 is equal shares,
                      1/n is everything to one; over the contenders that tried at least once
    jain_wait         the same of the waits of all arrivals
    tail_ratio        p99 wait / p50 wait

Two arrivals or two grants at the same instant are in order either way.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.distribution import Distribution
from harness.history import Row

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

    grants: int
    inversions: int
    inversion_ratio: float
    max_overtakes: int
    kendall_tau: float
    jain_index: float
    jain_wait: float
    tail_ratio: float
    wait_p50_ms: float
    wait_p99_ms: float
    wait_max_ms: float

    def to_json(self) -> dict[str, Any]:
        """As in the `order` of `summary.json`, ratios to six digits."""
        return {name: round(value, 6) for name, value in asdict(self).items()}


def fairness(rows: Iterable[Row], arrival: Arrival = "intended") -> Fairness:
    """The figures of a run.

    `intended` asks what a user sees, the backlog included; `called` asks what the lock did with
    those that stood before it.
    """
    by_key: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    shares: dict[tuple[int, int], int] = defaultdict(int)
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
    whole = sum((disorder(*times) for times in by_key.values()), Disorder())
    wait = Distribution(waits)
    p50, p99 = wait.percentiles(50, 99)
    return Fairness(
        grants=len(waits),
        inversions=whole.inversions,
        inversion_ratio=whole.inversion_ratio,
        max_overtakes=whole.max_overtakes,
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


def jain(values: Iterable[int]) -> float:
    """Jain's index; 1.0 when there is nothing to share."""
    shares = list(values)
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def order_summary(rows: Sequence[Row]) -> dict[str, Any]:
    """The `order` of `summary.json`: by intended arrival, and `by_call` the same by the call."""
    return fairness(rows).to_json() | {"by_call": fairness(rows, "called").to_json()}
