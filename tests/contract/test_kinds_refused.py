"""A backend without a kind refuses it in one sentence, before anything is sent."""

import pytest

import asyncdlock
from tests.contract.cases import backends


async def test_what_a_backend_cannot_do_is_refused(locks: asyncdlock.LockClient, key: str) -> None:
    can = locks.capabilities
    if not can.shared:
        before = locks._backend.commands
        for refused in (locks.acquire(key, shared=True), locks.try_acquire(key, shared=True)):
            with pytest.raises(asyncdlock.LockError, match=r"has no shared locks; \S+"):
                await refused
        with pytest.raises(asyncdlock.LockError, match="has no shared locks"):
            locks.hold(key, shared=True)
        assert locks._backend.commands == before
    if not can.semaphore:
        with pytest.raises(asyncdlock.LockError, match="has no semaphores"):
            locks.semaphore(key, permits=2)
    assert can.shared == can.semaphore == (locks._backend.name not in ("redis", "redlock"))


async def test_an_upgrade_is_refused_by_the_key_that_was_asked_for(key: str) -> None:
    async with asyncdlock.connect(f"memory://{key}", prefix="app:") as locks, locks.hold("k", shared=True):
        with pytest.raises(asyncdlock.LockError, match="this task holds 'k' beside others") as refused:
            await locks.acquire("k")
        assert refused.value.key == "k"


@backends(that=lambda can: can.semaphore)
async def test_bad_numbers_of_permits_are_refused(locks: asyncdlock.LockClient, key: str) -> None:
    for permits in (0, -1, True, 1.5, 10**9, "3"):
        with pytest.raises(ValueError, match="permits must be a whole number"):
            locks.semaphore(key, permits=permits)  # type: ignore[arg-type]
    with pytest.raises(asyncdlock.InvalidKey):
        locks.semaphore("", permits=1)
