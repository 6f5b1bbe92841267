"""Where the counter can be lost with the server's data: it is noticed, repaired, and never runs back."""

import math
from typing import Any

import pytest

import asyncdlock
from tests.contract.cases import Case, backends
from tests.contract.fixtures import Connect

liftable = backends(that=lambda can: can.fence_floor)  # the fences of the others come from their own log


@liftable
async def test_raise_fence_lifts_every_later_fence(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    async with locks.hold(key) as before:
        pass
    await locks.raise_fence(key, above=1_000_000)
    async with connect().hold(key) as lifted:
        assert lifted.fence > 1_000_000 > before.fence
    await locks.raise_fence(key, above=10)
    async with locks.hold(key) as later:
        assert later.fence > lifted.fence, "a floor never lowers"


@liftable
async def test_a_key_never_locked_before_can_be_raised(
    case: Case, locks: asyncdlock.LockClient, key: str
) -> None:
    await locks.raise_fence(key, above=41)
    async with locks.hold(key) as handle:
        assert handle.fence == 42 or (handle.fence > 42 and not case.consecutive)
    await locks.raise_fence(f"{key}-0", above=0)
    async with locks.hold(f"{key}-0") as handle:
        assert handle.fence == 1 or (handle.fence > 1 and not case.consecutive)


@pytest.mark.parametrize("top", [2**53 - 3, 2**53, 2**60 + 1, 2**63 - 2000])
@liftable
async def test_fences_stay_exact_beyond_two_to_the_53(
    case: Case, locks: asyncdlock.LockClient, connect: Connect, key: str, top: int
) -> None:
    await locks.raise_fence(key, above=top)
    fences = []
    for client in (locks, connect(), locks, connect(), locks):
        async with client.hold(key) as handle:
            fences.append(handle.fence)
    assert fences[0] == top + 1 or (fences[0] > top and not case.consecutive)
    assert fences[-1] < 2**63
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("above", [-1, 2**63 - 1, 2**64, 1e6, 1.5, True, "100", None, math.nan])
@liftable
async def test_a_floor_that_is_no_whole_number_in_the_range_is_refused(
    locks: asyncdlock.LockClient, key: str, above: Any
) -> None:
    """A counter that was set to `1000000.0` can never be counted up again."""
    with pytest.raises(ValueError, match="fence"):
        await locks.raise_fence(key, above=above)
    assert locks._backend.commands == 0
    async with locks.hold(key):
        pass


@backends(that=lambda can: not can.fence_floor)
async def test_a_backend_whose_fences_cannot_be_raised_says_so(
    locks: asyncdlock.LockClient, key: str
) -> None:
    with pytest.raises(asyncdlock.LockError, match="cannot be raised"):
        await locks.raise_fence(key, above=1)
