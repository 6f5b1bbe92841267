"""pytest bench: what each backend does, on a real server of its own."""

import pytest

import asyncdlock
from bench.measure import Measure
from harness.servers.catalogue import BACKENDS

each_backend = pytest.mark.parametrize("locks", BACKENDS, indirect=True)


def _name(request: pytest.FixtureRequest, work: str) -> str:
    return f"{request.node.callspec.params['locks']}, {work}"


@each_backend
@pytest.mark.parametrize("tasks", [1, 50])
async def test_own_keys(
    request: pytest.FixtureRequest, measure: Measure, locks: asyncdlock.LockClient, tasks: int
) -> None:
    """Acquire and release without anybody else."""

    async def section(number: int) -> None:
        await (await locks.acquire(f"own:{number}")).release()

    measured = await measure(_name(request, f"own keys, {tasks} at a time"), section, tasks=tasks)
    assert measured.rate > 0


@each_backend
async def test_hot_key(
    request: pytest.FixtureRequest, measure: Measure, locks: asyncdlock.LockClient
) -> None:
    """Twenty tasks want one lock; one at a time has it, with a fence above the one before."""
    holders = 0
    last = 0

    async def section(_: int) -> None:
        nonlocal holders, last
        handle = await locks.acquire("hot")
        holders += 1
        assert holders == 1, "two holders at once"
        assert handle.fence > last, "a fence ran backwards"
        last = handle.fence
        holders -= 1
        await handle.release()

    measured = await measure(_name(request, "hot key, 20 contenders"), section, tasks=20)
    assert measured.rate > 0
