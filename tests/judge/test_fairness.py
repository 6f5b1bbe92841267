"""The fairness figures equal their definitions, written out over all pairs."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.history import Row
from harness.judge.checkers.fairness import Disorder, disorder, fairness, jain, order_of, overtaken, overtakes

# Few distinct values, so that arrivals and grants at the same instant are common.
times = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40)
permutations = st.integers(0, 60).flatmap(lambda size: st.permutations(range(size)))


def by_definition(pairs: list[tuple[int, int]]) -> Disorder:
    """Arrival and grant of each: who was overtaken by whom, one by one."""
    overtaken = [
        sum(later > arrival and earlier < grant for later, earlier in pairs) for arrival, grant in pairs
    ]
    count = len(pairs)
    return Disorder(count * (count - 1) // 2, sum(overtaken), max(overtaken, default=0))


def kendall_tau(order: list[int]) -> float:
    """Concordant less discordant pairs, of all pairs."""
    signs = [
        1 if order[earlier] < order[later] else -1
        for earlier in range(len(order))
        for later in range(earlier + 1, len(order))
    ]
    return sum(signs) / len(signs) if signs else 1.0


@given(times)
def test_inversions_and_overtakes_are_what_counting_all_pairs_gives(pairs: list[tuple[int, int]]) -> None:
    assert disorder([pair[0] for pair in pairs], [pair[1] for pair in pairs]) == by_definition(pairs)


@given(permutations)
def test_kendall_tau_is_what_counting_all_pairs_gives(order: list[int]) -> None:
    measured = disorder(order, range(len(order)))
    assert measured.kendall_tau == pytest.approx(kendall_tau(order))
    assert -1 <= measured.kendall_tau <= 1


@pytest.mark.parametrize("count", [2047, 2048, 2049, 70_000])
def test_counts_are_right_across_blocks_and_groups(count: int) -> None:
    """Last come, first served: the first is overtaken by all the others; and a shuffled order in halves."""
    assert overtakes(range(count)) == (0, 0)
    assert overtakes(range(count - 1, -1, -1)) == (count * (count - 1) // 2, count - 1)
    halves = [*range(count // 2, count), *range(count // 2)]
    assert overtakes(halves) == ((count // 2) * (count - count // 2), count - count // 2)


def test_a_shuffled_order_of_many_blocks_equals_a_merge_sort() -> None:
    order = list(range(9_000))
    random.Random(3).shuffle(order)

    def inversions(part: list[int]) -> tuple[int, list[int]]:
        if len(part) < 2:
            return 0, part
        (left_count, left), (right_count, right) = (
            inversions(part[: len(part) // 2]),
            inversions(part[len(part) // 2 :]),
        )
        count, merged = left_count + right_count, []
        while left and right:
            if left[-1] > right[-1]:
                count += len(right)
                merged.append(left.pop())
            else:
                merged.append(right.pop())
        return count, [*left, *right, *reversed(merged)]

    assert overtakes(order)[0] == inversions(order)[0]


def test_chance_gives_half_of_the_pairs_and_a_tau_near_zero() -> None:
    grants = list(range(20_000))
    random.Random(8).shuffle(grants)
    measured = disorder(range(20_000), grants)
    assert measured.inversion_ratio == pytest.approx(0.5, abs=0.02)
    assert measured.kendall_tau == pytest.approx(0, abs=0.04)


def test_disorders_of_keys_add_up_and_an_arrival_overtakes_on_its_own_key_only() -> None:
    def row(number: int, key: str, arrived: int, granted: int) -> Row:
        return Row(number, 0, number, key, arrived, called=arrived, granted=granted, outcome="ok")

    rows = [row(1, "a", 0, 10), row(2, "a", 1, 5), row(3, "b", 2, 3), row(4, "b", 3, 4)]
    measured = fairness(rows)
    assert (measured.grants, measured.inversions, measured.max_overtakes) == (4, 1, 1)
    assert measured.inversion_ratio == 0.5


def test_arrival_can_mean_the_due_time_or_the_call() -> None:
    """Two arrivals that left the backlog in the wrong order, and were then served as they called."""
    rows = [
        Row(1, 0, 1, "a", 0, called=100, granted=120, outcome="ok"),
        Row(2, 0, 2, "a", 50, called=60, granted=70, outcome="ok"),
    ]
    order = order_of(rows)
    assert order.inversions == 1
    assert order.by_call is not None
    assert order.by_call.inversions == 0


def test_arrivals_that_got_nothing_count_for_the_shares_but_not_for_the_order() -> None:
    rows = [
        Row(1, 0, 1, "a", 0, called=0, granted=10, outcome="ok"),
        Row(2, 0, 1, "a", 1, called=11, granted=12, outcome="ok"),
        Row(3, 0, 2, "a", 2, called=2, outcome="timed_out"),
        Row(4, 0, -1, "a", 3),
    ]
    measured = fairness(rows)
    assert measured.grants == 2
    assert measured.jain_index == 0.5, "two contenders, one of whom got everything"


@given(times, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=10))
def test_those_who_gave_up_were_overtaken_by_whoever_came_later_and_was_granted_before(
    pairs: list[tuple[int, int]], gave_up: list[tuple[int, int]]
) -> None:
    found = overtaken(gave_up, [arrived for arrived, _ in pairs], [granted for _, granted in pairs])
    assert found == max(
        sum(later > arrived and granted < end for later, granted in pairs) for arrived, end in gave_up
    )


def test_an_arrival_that_gave_up_may_be_the_unluckiest() -> None:
    rows = [Row(0, 0, 0, "a", 0, called=0, outcome="timed_out")]
    rows += [Row(n, 0, n, "a", n, called=n, granted=n + 1, outcome="ok") for n in range(1, 6)]
    assert fairness(rows).max_overtakes == 0
    assert fairness(rows, patience=4e-9).max_overtakes == 2
    assert fairness(rows, patience=1.0).max_overtakes == 5


def test_jain_is_one_for_equal_shares_and_one_over_n_for_a_monopoly() -> None:
    assert jain([3, 3, 3, 3]) == 1
    assert jain([0, 0, 0, 12]) == 0.25
    assert jain([]) == jain([0, 0]) == 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_jain_lies_between_one_over_n_and_one(shares: list[int]) -> None:
    assert 1 / len(shares) - 1e-12 <= jain(shares) <= 1 + 1e-12


def test_the_tail_of_the_wait_is_told() -> None:
    rows = [Row(n, 0, n, "a", 0, called=0, granted=1_000_000 * (n + 1), outcome="ok") for n in range(1000)]
    measured = fairness(rows)
    assert measured.wait_p50_ms == pytest.approx(500, rel=0.01)
    assert measured.wait_p99_ms == pytest.approx(990, rel=0.01)
    assert measured.wait_max_ms == 1000
    assert measured.tail_ratio == pytest.approx(1.98, rel=0.01)


def test_an_empty_run_has_figures_too() -> None:
    measured = fairness([])
    assert (measured.inversions, measured.kendall_tau, measured.jain_index) == (0, 1.0, 1.0)
