"""The key space: which key an arrival wants is a pure function of seed and number."""

from collections import Counter

import pytest

from harness.load.keyspace import Zipf, key_chooser


def test_one_key_is_the_hot_key() -> None:
    choose = key_chooser(1)
    assert {choose(number) for number in range(10)} == {"hot"}


def test_uniform_keys_are_all_wanted_about_equally() -> None:
    choose = key_chooser(10, seed=3)
    counts = Counter(choose(number) for number in range(20_000))
    assert len(counts) == 10
    assert max(counts.values()) < 1.15 * min(counts.values())


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.1, 2.0])
def test_zipf_ranks_follow_their_weights(exponent: float) -> None:
    zipf = Zipf(100, exponent)
    draws = 50_000
    counts = Counter(zipf.rank(11, number) for number in range(draws))
    total = sum(rank**-exponent for rank in range(1, 101))
    assert set(counts) <= set(range(1, 101))
    for rank in (1, 2, 10):
        assert counts[rank] / draws == pytest.approx(rank**-exponent / total, rel=0.12)


@pytest.mark.parametrize("distribution", ["uniform", "zipf"])
def test_the_choice_repeats_with_the_seed_and_differs_without(distribution: str) -> None:
    def draw(seed: int) -> list[str]:
        choose = key_chooser(1000, distribution=distribution, seed=seed)
        return [choose(number) for number in range(100)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_ten_million_keys_need_no_table() -> None:
    choose = key_chooser(10_000_000, distribution="zipf")
    assert len({choose(number) for number in range(1000)}) > 200


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        key_chooser(0)
    with pytest.raises(ValueError, match="uniform or zipf"):
        key_chooser(5, distribution="normal")
    with pytest.raises(ValueError, match="exponent must be positive"):
        key_chooser(5, distribution="zipf", exponent=0)
