"""Which key an arrival wants: a pure function of the seed and the arrival's number.

Independent of the process that serves the arrival, so that a run asks for the same keys in the
same order however many processes share it.
"""

import math
from collections.abc import Callable

_MASK = (1 << 64) - 1


def key_chooser(
    keys: int, *, distribution: str = "uniform", exponent: float = 1.1, seed: int = 0
) -> Callable[[int], str]:
    """A function from arrival number to key name, over `keys` names.

    :raises ValueError: no keys, unknown distribution, or a Zipf exponent that is not positive.
    """
    if keys < 1:
        raise ValueError(f"there must be at least one key, not {keys}")
    if distribution not in ("uniform", "zipf"):
        raise ValueError(f"unknown key distribution {distribution!r}: uniform or zipf")
    if keys == 1:
        return lambda number: "hot"
    if distribution == "uniform":
        return lambda number: f"key-{int(_uniform(seed, number, 0) * keys)}"
    zipf = Zipf(keys, exponent)
    return lambda number: f"key-{zipf.rank(seed, number) - 1}"


class Zipf:
    """Ranks 1..n with probability proportional to rank**-exponent, in constant memory.

    Rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from
    monotone discrete distributions", ACM TOMACS 6(3), 1996). A table of cumulative weights would
    need 80 MB for the ten million keys of a large run.
    """

    def __init__(self, n: int, exponent: float) -> None:
        if not exponent > 0:
            raise ValueError(f"the Zipf exponent must be positive, not {exponent}")
        self._n = n
        self._exponent = exponent
        self._low = self._integral(1.5) - 1.0
        self._high = self._integral(n + 0.5)
        self._shortcut = 2.0 - self._inverse(self._integral(2.5) - self._weight(2.0))

    def rank(self, seed: int, number: int) -> int:
        """The rank that arrival `number` of a run with this seed wants."""
        attempt = 0
        while True:
            u = self._high + _uniform(seed, number, attempt) * (self._low - self._high)
            x = self._inverse(u)
            rank = min(max(int(x + 0.5), 1), self._n)
            if rank - x <= self._shortcut or u >= self._integral(rank + 0.5) - self._weight(rank):
                return rank
            attempt += 1

    def _weight(self, x: float) -> float:
        return math.exp(-self._exponent * math.log(x))

    def _integral(self, x: float) -> float:
        # (x**(1-s) - 1) / (1-s), written so that s = 1 gives log(x) without a division by zero.
        log_x = math.log(x)
        return _expm1_over((1.0 - self._exponent) * log_x) * log_x

    def _inverse(self, y: float) -> float:
        t = max(y * (1.0 - self._exponent), -1.0)
        return math.exp(_log1p_over(t) * y)


def _uniform(seed: int, number: int, attempt: int) -> float:
    """A number in [0, 1) that depends on its arguments alone (the SplitMix64 finaliser)."""
    z = (seed * 0xD1342543DE82EF95 + number * 0x9E3779B97F4A7C15 + attempt * 0xBF58476D1CE4E5B9 + 1) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((z ^ (z >> 31)) >> 11) * 2.0**-53


def _expm1_over(x: float) -> float:
    return math.expm1(x) / x if abs(x) > 1e-8 else 1.0 + x / 2.0


def _log1p_over(x: float) -> float:
    return math.log1p(x) / x if abs(x) > 1e-8 else 1.0 - x / 2.0
