"""acquire(shared=True): many readers or one writer, in the order of arrival, each with a fence."""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest

import asyncdlock
from tests.contract.cases import Case, backends
from tests.contract.fixtures import Claims, Connect, until

pytestmark = backends(that=lambda can: can.shared)


@pytest.fixture(params=[{}, {"local_queue": False}], ids=["as connected", "own places"])
def clients(request: pytest.FixtureRequest, case: Case, connect: Connect) -> Iterator[asyncdlock.LockClient]:
    """Clients that compete like processes."""
    options = request.param if case.own_place else {}

    def new() -> Iterator[asyncdlock.LockClient]:
        while True:
            yield connect(**options)

    return new()


async def _queued(claims: Claims, number: int) -> None:
    async def there() -> bool:
        return len(await claims()) >= number

    await until(there)


async def test_readers_hold_together_and_a_writer_alone(
    clients: Iterator[asyncdlock.LockClient], key: str, claims: Claims
) -> None:
    a, b = next(clients), next(clients)
    readers = [await client.acquire(key, shared=True, timeout=30.0) for client in (a, a, b, b)]
    assert all(reader.shared and reader.held for reader in readers)
    assert await asyncio.create_task(b.try_acquire(key)) is None
    for reader in readers:
        assert await reader.release() is True
    writer = await b.acquire(key, timeout=30.0)
    assert not writer.shared
    for client in (a, b):
        assert await client.try_acquire(key, shared=True) is None
    assert await writer.release()
    again = await a.try_acquire(key, shared=True)
    assert again is not None
    assert await again.release()
    assert await again.release() is False
    assert await claims() == []


async def test_arrival_order_is_kept_and_neighbouring_readers_go_in_together(
    clients: Iterator[asyncdlock.LockClient], key: str, claims: Claims
) -> None:
    """R1 holds; W2, R3, R4, W5, R6 arrive in this order: nobody passes a writer that waits."""
    one, two = next(clients), next(clients)
    first = await one.acquire(key, shared=True)
    inside: list[str] = []
    served: list[str] = []
    together: dict[str, list[str]] = {}
    leave = asyncio.Event()

    async def come(name: str, client: asyncdlock.LockClient) -> None:
        async with client.hold(key, shared=name.startswith("R"), timeout=60.0):
            served.append(name)
            inside.append(name)
            if name in ("R3", "R4"):
                await until(lambda: {"R3", "R4"} <= set(served))
            await leave.wait()
            together[name] = list(inside)
            await asyncio.sleep(0.01)
            inside.remove(name)

    tasks = []
    for number, name in enumerate(["W2", "R3", "R4", "W5", "R6"], start=2):
        tasks.append(asyncio.create_task(come(name, (one, two)[number % 2])))
        await _queued(claims, number)
    assert await two.try_acquire(key, shared=True) is None, "a reader passed the writer that waits"
    assert served == []
    leave.set()
    assert await first.release()
    await asyncio.gather(*tasks)
    assert served[0] == "W2"
    assert set(served[1:3]) == {"R3", "R4"}
    assert served[3:] == ["W5", "R6"]
    assert together["W2"] == ["W2"]
    assert together["W5"] == ["W5"]
    assert await claims() == []


async def test_order_within_one_client_is_that_of_arrival(
    clients: Iterator[asyncdlock.LockClient], key: str
) -> None:
    """Also where waiters of one process share a place on the server and pass the lock on among themselves."""
    client = next(clients)
    holder = await client.acquire(key)
    served: list[str] = []

    async def come(name: str) -> None:
        async with client.hold(key, shared=name.startswith("R"), timeout=60.0):
            served.append(name)
            await asyncio.sleep(0.005)

    tasks: list[asyncio.Task[None]] = []

    async def waits() -> bool:
        return len((await client.inspect(key)).waiters or ()) == len(tasks)

    for name in ("W1", "W2", "R3", "R4", "W5", "W6", "R7", "W8"):
        tasks.append(asyncio.create_task(come(name)))
        await until(waits)
    assert await holder.release()
    await asyncio.gather(*tasks)
    assert served[:2] == ["W1", "W2"]
    assert set(served[2:4]) == {"R3", "R4"}
    assert served[4:] == ["W5", "W6", "R7", "W8"]


async def test_nothing_is_handed_on_past_a_reader_that_waits_on_the_server(
    clients: Iterator[asyncdlock.LockClient], key: str, claims: Claims
) -> None:
    client = next(clients)
    holder = await client.acquire(key)
    reader = asyncio.create_task(client.acquire(key, shared=True, timeout=60.0))
    await _queued(claims, 2)
    writer = asyncio.create_task(client.acquire(key, timeout=60.0))
    await asyncio.sleep(0.05)
    assert await holder.release()
    first = await reader
    assert not writer.done()
    assert holder.fence < first.fence
    assert await first.release()
    second = await writer
    assert first.fence < second.fence
    assert await second.release()


async def test_a_writer_does_not_starve(clients: Iterator[asyncdlock.LockClient], key: str) -> None:
    """Readers who come and overlap without a gap do not keep a writer out."""
    busy, other = next(clients), next(clients)
    stop = asyncio.Event()
    came = 0

    def followed(reader: int) -> bool:
        return came > reader

    async def read() -> None:
        nonlocal came
        while not stop.is_set():
            async with busy.hold(key, shared=True, timeout=60.0):
                came += 1
                # Only a queue that lets nobody in any more makes a gap between them.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.4):
                        await until(partial(followed, came))

    readers = [asyncio.create_task(read()) for _ in range(2)]
    try:
        await until(lambda: came > 2)
        async with other.hold(key, timeout=30.0):
            pass
    finally:
        stop.set()
        await asyncio.gather(*readers)


async def test_fences_tell_a_stale_reader(clients: Iterator[asyncdlock.LockClient], key: str) -> None:
    """A reader's fence is above every earlier writer's and below every later one's; no two are equal."""
    a, b = next(clients), next(clients)
    rounds: list[tuple[str, list[int]]] = []
    for _ in range(3):
        for client in (a, b):
            async with client.hold(key) as writer:
                rounds.append(("writer", [writer.fence]))
        readers = await asyncio.gather(*(who.acquire(key, shared=True) for who in (a, b, a, b)))
        rounds.append(("readers", [reader.fence for reader in readers]))
        assert len({reader.fence for reader in readers}) == 4
        for reader in readers:
            assert await reader.release()
    for (_, before), (_, after) in pairwise(rounds):
        assert max(before) < min(after), rounds


async def test_exclusion_among_many(
    clients: Iterator[asyncdlock.LockClient], key: str, claims: Claims
) -> None:
    crowd = [next(clients) for _ in range(3)]
    dice = random.Random(7)
    reading = writing = overlaps = most = 0

    async def work(client: asyncdlock.LockClient, turns: int) -> None:
        nonlocal reading, writing, overlaps, most
        for _ in range(turns):
            shared = dice.random() < 0.7
            async with client.hold(key, shared=shared, timeout=60.0) as handle:
                assert handle.shared is shared
                if shared:
                    reading += 1
                else:
                    writing += 1
                overlaps += writing > 1 or (writing > 0 and reading > 0)
                most = max(most, reading)
                await asyncio.sleep(dice.random() * 0.004)
                if shared:
                    reading -= 1
                else:
                    writing -= 1

    await asyncio.gather(*(work(client, 10) for client in crowd for _ in range(5)))
    assert overlaps == 0
    assert most > 1, "no two readers were ever inside together"
    assert await claims() == []


async def test_a_writer_that_gives_up_lets_in_the_readers_behind_it(
    clients: Iterator[asyncdlock.LockClient], key: str, claims: Claims
) -> None:
    a, b = next(clients), next(clients)
    reader = await a.acquire(key, shared=True, ttl=60.0)
    writer = asyncio.create_task(b.acquire(key))
    await _queued(claims, 2)
    behind = asyncio.create_task(a.acquire(key, shared=True))
    await _queued(claims, 3)
    writer.cancel()
    async with asyncio.timeout(30.0):
        late = await behind
    assert reader.held
    assert await late.release()
    assert await reader.release()
    await until(lambda: _nothing(claims))


async def _nothing(claims: Claims) -> bool:
    return await claims() == []


async def test_timeouts_leave_nothing_behind(
    clients: Iterator[asyncdlock.LockClient], key: str, claims: Claims
) -> None:
    a, b = next(clients), next(clients)
    writer = await a.acquire(key)
    for timeout in (0.0, 0.05):
        with pytest.raises(asyncdlock.AcquireTimeout) as raised:
            await b.acquire(key, shared=True, timeout=timeout)
        assert raised.value.key == key
    assert await writer.release()
    reader = await a.acquire(key, shared=True)
    with pytest.raises(asyncdlock.AcquireTimeout):
        await b.acquire(key, timeout=0.05)
    late = await b.acquire(key, shared=True, timeout=30.0)
    assert await late.release()
    assert await reader.release()
    await until(lambda: _nothing(claims))


async def test_upgrading_is_refused(locks: asyncdlock.LockClient, key: str) -> None:
    reader = await locks.acquire(key, shared=True)
    for ask in (locks.acquire(key), locks.acquire(key, timeout=1.0), locks.try_acquire(key)):
        with pytest.raises(asyncdlock.LockError, match="cannot be upgraded") as raised:
            await ask
        assert raised.value.key == key
    twice = await locks.acquire(key, shared=True)
    assert await twice.release()
    with pytest.raises(asyncdlock.LockError, match="cannot be upgraded"):
        async with locks.hold(key):
            pytest.fail("it waits for itself")
    other = await locks.acquire(f"{key}-other")
    assert await other.release()
    assert await reader.release()
    writer = await locks.acquire(key, timeout=30.0)
    assert await writer.release()


async def test_shared_leases_are_renewed_beside_exclusive_ones(
    locks: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    other = connect()
    readers = [await client.acquire(key, shared=True, ttl=ttl) for client in (locks, locks, other)]
    writer = await locks.acquire(f"{key}-alone", ttl=ttl)
    ends = [handle.expires_at for handle in (*readers, writer)]
    await until(
        lambda: all(
            handle.expires_at > end + ttl for handle, end in zip((*readers, writer), ends, strict=True)
        )
    )
    assert all(handle.held for handle in (*readers, writer))
    assert await other.try_acquire(f"{key}-alone") is None
    for reader in readers:
        await reader.renew()
        assert await reader.release()
    with pytest.raises(asyncdlock.LockLost):
        await readers[0].renew()
    assert await writer.release()


async def test_a_reader_that_is_not_renewed_is_lost_and_the_writer_goes_on(
    locks: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    kept = await locks.acquire(key, shared=True)
    lapsed = await locks.acquire(key, shared=True, ttl=ttl, renew=False)
    assert await lapsed.wait_lost() is True
    with pytest.raises(asyncdlock.LockLost):
        lapsed.check()
    assert kept.held
    writer = asyncio.create_task(connect().acquire(key, timeout=60.0))
    await asyncio.sleep(ttl)
    assert not writer.done(), "a reader holds it still"
    assert await lapsed.release() is False
    assert await kept.release()
    granted = await writer
    assert granted.fence > kept.fence
    assert await granted.release()


async def test_closing_gives_back_shared_locks_and_tells_those_who_wait(
    connect: Connect, key: str, claims: Claims
) -> None:
    client, other = connect(), connect()
    readers = [await client.acquire(key, shared=True, ttl=60.0) for _ in range(3)]
    writer = asyncio.create_task(client.acquire(f"{key}-2"))
    held = await writer
    waiting = asyncio.create_task(client.acquire(f"{key}-2", shared=True))
    await asyncio.sleep(0.05)
    await client.aclose()
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await waiting
    assert not any(handle.held for handle in (*readers, held))
    assert await claims() == []
    assert await (await other.acquire(key, timeout=30.0)).release()
