"""Every verb, cancelled at every one of its suspensions in turn: nothing is left behind.

Each scenario is repeated, and its call cancelled at the 0th, 1st, 2nd, … suspension, until the call
ends before its turn comes. After each time the client is closed, and neither the server nor this
process keeps anything: no lock, no place in a queue, no task, no connection.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncdlock
from tests.cancellation.stepping import Moment, Step
from tests.contract.cases import CASES, Case
from tests.contract.fixtures import Connect, until

Scenario = Callable[[asyncdlock.LockClient, asyncdlock.LockClient, str, Step], Coroutine[Any, Any, None]]

_MOST_SUSPENSIONS = 60


async def _end(handle: asyncdlock.Handle | None) -> None:
    if handle is not None:
        assert await handle.release()


async def _pass_through(client: asyncdlock.LockClient, key: str) -> None:
    await _end(await client.acquire(key))


def _release_after(delay: float, handle: asyncdlock.Handle) -> "asyncio.Task[None]":
    async def release() -> None:
        await asyncio.sleep(delay)
        await _end(handle)

    return asyncio.create_task(release())


async def acquire_cold(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    """The first use of a client, which connects."""
    await _end(await step(client.acquire(key)))


async def acquire_warm(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    await _end(await client.acquire(f"{key}-warm"))
    await _end(await step(client.acquire(key)))


async def acquire_with_timeout(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    await _end(await client.acquire(f"{key}-warm"))
    await _end(await step(client.acquire(key, timeout=60.0)))


async def acquire_behind_another(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    ahead = _release_after(0.02, await other.acquire(key))
    await _end(await step(client.acquire(key, timeout=60.0)))
    await ahead


async def acquire_behind_its_own_client(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    first = _release_after(0.005, await client.acquire(key))
    second = asyncio.create_task(_pass_through(client, key))
    await asyncio.sleep(0)
    await _end(await step(client.acquire(key)))
    await asyncio.gather(first, second)


async def acquire_that_times_out(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    async with other.hold(key):
        with contextlib.suppress(asyncdlock.AcquireTimeout):
            await _end(await step(client.acquire(key, timeout=0.02)))


async def try_acquire_free(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    await _end(await step(client.try_acquire(key)))


async def try_acquire_held(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    async with other.hold(key):
        assert await step(client.try_acquire(key)) is None


async def hold(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    """Entering, the body, and leaving."""
    await _end(await client.acquire(f"{key}-warm"))

    async def body() -> None:
        async with client.hold(key) as handle:
            for _ in range(3):
                await asyncio.sleep(0)
                handle.check()

    await step(body())


async def hold_contended(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    """Waiting behind another process, and leaving while another waits behind."""
    ahead = _release_after(0.005, await other.acquire(key))
    behind: list[asyncio.Task[None]] = []

    async def body() -> None:
        async with client.hold(key) as handle:
            behind.append(asyncio.create_task(_pass_through(other, key)))
            await asyncio.sleep(0)
            handle.check()

    await step(body())
    await asyncio.gather(ahead, *behind)


async def hold_all(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    """Taking two locks, the body, and giving both back."""

    async def body() -> None:
        async with client.hold_all([second(key), key]) as handles:
            await asyncio.sleep(0)
            for handle in handles.values():
                handle.check()

    await step(body())


async def hold_all_contended(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    """Waiting for the second lock with the first one in hand, and leaving while another waits behind."""
    ahead = _release_after(0.005, await other.acquire(second(key)))
    behind: list[asyncio.Task[None]] = []

    async def body() -> None:
        async with client.hold_all([key, second(key)], timeout=60.0):
            behind.append(asyncio.create_task(_pass_through(other, key)))
            await asyncio.sleep(0)

    await step(body())
    await asyncio.gather(ahead, *behind)


async def lead(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    """Being elected, leading, and resigning."""
    ahead = _release_after(0.005, await other.acquire(key))

    async def body() -> None:
        async for term in client.lead(key):
            async with term as handle:
                await asyncio.sleep(0)
                handle.check()
                break

    await step(body())
    await ahead


async def once_per(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    """A tick that another has begun, and one that nobody has."""
    # Its lock is called after the job.
    job, ticks = key.removeprefix("once:"), (1_700_000_000.0, time.time())
    begun = await other.once_per(job, ticks[0])
    if begun is not None:
        async with begun:
            pass

    async def body() -> None:
        for tick in ticks:
            taken = await client.once_per(job, tick)
            assert taken is None or tick is not ticks[0]
            if taken is not None:
                async with taken:
                    await asyncio.sleep(0)

    await step(body())


async def renew(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    """A cancelled renewal neither loses the lock nor shortens its lease."""
    handle = await client.acquire(key, renew=False)
    left = handle.expires_at
    await step(handle.renew())
    assert handle.held
    assert handle.expires_at >= left
    await _end(handle)


async def release(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    handle = await client.acquire(key)
    await step(handle.release())
    assert not handle.held
    # Whether it was cancelled or not: released once, and not again.
    assert await handle.release() is False


async def release_with_another_behind(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    handle = await client.acquire(key)
    behind = [asyncio.create_task(_pass_through(who, key)) for who in (client, other)]
    await asyncio.sleep(0.005)
    await step(handle.release())
    await asyncio.gather(*behind)


async def raise_fence(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    await step(client.raise_fence(key, above=1000))
    await _end(await client.acquire(key))


async def aclose(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    """A cancelled close goes on in the background; the close that follows waits for it."""
    await client.acquire(key)
    await step(client.aclose())
    assert client._core.closed


async def shared_acquire_cold(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    await _end(await step(client.acquire(key, shared=True)))


async def shared_acquire_behind_a_writer(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    ahead = _release_after(0.02, await other.acquire(key))
    await _end(await step(client.acquire(key, shared=True, timeout=60.0)))
    await ahead


async def shared_acquire_behind_its_own_writers(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    """Readers and a writer of one process, who know the order in which they came."""
    first = _release_after(0.005, await client.acquire(key))
    writer = asyncio.create_task(_pass_through(client, key))
    await asyncio.sleep(0)
    reader = asyncio.create_task(_read(client, key))
    await asyncio.sleep(0)
    call = asyncio.create_task(step(client.acquire(key, shared=True)))
    await asyncio.sleep(0)
    last = asyncio.create_task(_pass_through(client, key))
    await _end(await call)
    await asyncio.gather(first, writer, reader, last)


async def acquire_behind_readers(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    """With a reader behind, whom nobody but the cancelled writer keeps out."""
    ahead = _release_after(0.02, await other.acquire(key, shared=True))
    behind = asyncio.create_task(_later(_read(other, key)))
    await _end(await step(client.acquire(key, timeout=60.0)))
    await asyncio.gather(ahead, behind)


async def shared_hold(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    beside = await other.acquire(key, shared=True)

    async def body() -> None:
        async with client.hold(key, shared=True) as handle:
            await asyncio.sleep(0)
            handle.check()
            await handle.renew()

    await step(body())
    await _end(beside)


async def shared_try_acquire(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    beside = await other.acquire(key, shared=True)
    await _end(await step(client.try_acquire(key, shared=True)))
    await _end(beside)
    async with other.hold(key):
        assert await client.try_acquire(key, shared=True) is None


async def shared_release_with_others_behind(
    client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step
) -> None:
    handle = await client.acquire(key, shared=True)
    behind = [asyncio.create_task(_pass_through(other, key)), asyncio.create_task(_read(other, key))]
    await asyncio.sleep(0.005)
    await step(handle.release())
    assert await handle.release() is False
    await asyncio.gather(*behind)


async def permit(client: asyncdlock.LockClient, other: asyncdlock.LockClient, key: str, step: Step) -> None:
    """Waiting for one of two permits, with another behind."""
    ours, theirs = client.semaphore(key, permits=2), other.semaphore(key, permits=2)
    ahead = [_release_after(0.01 * number, await theirs.acquire()) for number in (1, 2)]
    call = asyncio.create_task(step(ours.acquire(timeout=60.0)))
    await asyncio.sleep(0)
    behind = asyncio.create_task(_permitted(theirs))
    await _end(await call)
    await asyncio.gather(*ahead, behind)


async def _read(client: asyncdlock.LockClient, key: str) -> None:
    await _end(await client.acquire(key, shared=True))


async def _permitted(semaphore: asyncdlock.Semaphore) -> None:
    await _end(await semaphore.acquire())


async def _later(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.sleep(0.005)
    await work


OF_KINDS = [
    shared_acquire_cold,
    shared_acquire_behind_a_writer,
    shared_acquire_behind_its_own_writers,
    acquire_behind_readers,
    shared_hold,
    shared_try_acquire,
    shared_release_with_others_behind,
    permit,
]

OF_FENCES = [once_per, raise_fence]
SCENARIOS = [
    acquire_cold,
    acquire_warm,
    acquire_with_timeout,
    acquire_behind_another,
    acquire_behind_its_own_client,
    acquire_that_times_out,
    try_acquire_free,
    try_acquire_held,
    hold,
    hold_contended,
    hold_all,
    hold_all_contended,
    lead,
    renew,
    release,
    release_with_another_behind,
    aclose,
]


def _promised() -> Iterator[tuple[Scenario, Case]]:
    """Each scenario with the backends that promise what it does."""
    for case in CASES:
        can = case.can
        yield from ((scenario, case) for scenario in SCENARIOS)
        if can.fence_floor:
            yield from ((scenario, case) for scenario in OF_FENCES)
        if can.shared and can.semaphore:
            yield from ((scenario, case) for scenario in OF_KINDS)


def second(key: str) -> str:
    """The name of another lock of the same test."""
    return f"{key}-second"


def _sockets() -> int:
    """Open sockets of this process."""
    number = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            number += str(entry.readlink()).startswith("socket:")
    return number


@pytest.mark.parametrize("moment", Moment, ids=str)
@pytest.mark.parametrize(
    ("scenario", "case"),
    [pytest.param(scenario, case, id=f"{case}-{scenario.__name__}") for scenario, case in _promised()],
)
async def test_cancelled_at_every_suspension(
    scenario: Scenario, moment: Moment, case: Case, url: str, connect: Connect, key: str
) -> None:
    if scenario is once_per:
        key = f"once:{key}"
    other = connect()
    await _end(await other.acquire(f"{key}-other"))
    for suspension in range(_MOST_SUSPENSIONS):
        sockets, tasks = _sockets(), asyncio.all_tasks()
        client = connect()
        step = Step(suspension, moment)
        async with asyncio.timeout(30.0):
            await scenario(client, other, key, step)
            await client.aclose()
        for name in (key, second(key)):
            assert await case.claims(url, name) == [], f"left on the server by suspension {suspension}"
        await until(lambda: _sockets() <= sockets)  # noqa: B023 - awaited here
        await until(lambda: asyncio.all_tasks() <= tasks)  # noqa: B023
        if not step.reached:
            return
    pytest.fail(f"not done after {_MOST_SUSPENSIONS} suspensions")
