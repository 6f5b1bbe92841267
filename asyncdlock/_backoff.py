"""Delays between polls: exponential, jittered, pure."""

import random
from collections.abc import Iterator


def jittered(first: float, cap: float, *, rng: random.Random | None = None) -> Iterator[float]:
    """Endless delays in seconds, each uniform between half of and the whole of a doubling step.

    The lower half is kept free: a delay near zero would send a request that can hardly succeed.
    The jitter keeps contenders that failed together from coming back together.
    """
    uniform = (rng or random).uniform
    step = first
    while True:
        yield uniform(step / 2, step)
        step = min(step * 2, cap)
