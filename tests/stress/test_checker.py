"""The stress's checker finds what it is there to find, and nothing else."""

import pytest

from tests.stress.checker import check
from tests.stress.events import Event


def hold(
    name: str, start: float, end: float, fence: int, *, waited: float = 0.0, held: bool = True
) -> list[Event]:
    return [
        Event(start - waited, "wait", name, "k"),
        Event(start, "got", name, "k", fence, True, start + 1),
        Event(end, "left", name, "k", fence, held, end + 1),
        Event(end, "over", name, "k"),
    ]


def broken(*lives: list[Event], bound: float = 1.0) -> list[str]:
    return check([event for life in lives for event in life], gap_bound=bound).broken


def test_holders_in_turn_are_fine() -> None:
    assert broken(hold("a", 1, 2, 1), hold("b", 2.1, 3, 2, waited=1.0)) == []


def test_two_holders_at_once() -> None:
    (sentence,) = broken(hold("a", 1, 2, 1), hold("b", 1.5, 3, 2))
    assert "fence 2 was held from 1.5" in sentence


def test_a_short_holder_inside_a_long_one_hides_no_later_overlap() -> None:
    assert len(broken(hold("a", 1, 5, 1), hold("b", 2, 2.5, 2), hold("c", 3, 3.5, 3))) == 2


def test_whoever_found_its_lease_over_was_no_second_holder() -> None:
    assert broken(hold("a", 1, 2, 1, held=False), hold("b", 1.5, 3, 2)) == []


def test_a_fence_that_runs_backwards_and_one_that_comes_twice() -> None:
    assert any("after fence 7" in one for one in broken(hold("a", 1, 2, 7), hold("b", 3, 4, 6)))
    assert any("twice" in one for one in broken(hold("a", 1, 2, 7), hold("b", 3, 4, 7)))


@pytest.mark.parametrize(("waited", "expected"), [(8.0, 1), (0.5, 0)])
def test_a_free_lock_that_somebody_waits_for(waited: float, expected: int) -> None:
    assert len(broken(hold("a", 1, 2, 1), hold("b", 9, 10, 2, waited=waited))) == expected


def test_a_free_lock_that_nobody_gets_before_its_waiter_gives_up() -> None:
    waiting = [Event(3, "wait", "b", "k"), Event(8, "over", "b", "k")]
    assert len(broken(hold("a", 1, 2, 1), waiting, hold("c", 9, 10, 2))) == 1


def test_a_machine_that_stood_still_is_no_gap() -> None:
    lives = [*hold("a", 1, 2, 1), *hold("b", 9, 10, 2, waited=8.0)]
    assert check(lives, gap_bound=1.0, standstills=[(2.5, 8.5)]).broken == []
    assert len(check(lives, gap_bound=1.0, standstills=[(2.5, 5.0)]).broken) == 1


def test_a_free_lock_that_nobody_gets_until_the_end() -> None:
    waiting = [Event(3, "wait", "b", "k"), Event(8, "over", "b", "k")]
    assert len(broken(hold("a", 1, 2, 1), waiting)) == 1


def test_a_lock_that_nobody_ever_gets() -> None:
    assert len(broken([Event(3, "wait", "b", "k"), Event(8, "over", "b", "k")])) == 1


def test_a_lock_that_takes_long_to_be_had_at_first() -> None:
    assert len(broken(hold("a", 9, 10, 1, waited=8.0))) == 1


def test_a_stuck_wait() -> None:
    assert broken([Event(1, "wait", "a", "k"), Event(99, "stuck", "a", "k", why="<Task>")])
