"""observe(): who leads, told to those who do not stand for election."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

import asyncdlock
from asyncdlock._inside import backend_of
from harness import servers
from tests.contract.cases import Case
from tests.contract.fixtures import PATIENCE, Claims, Connect, until

EVERY = 0.02


class Observer:
    """A task that writes down what it is told."""

    def __init__(self, client: asyncdlock.LockClient, key: str) -> None:
        self.told: list[asyncdlock.Leader | None] = []
        self.task = asyncio.create_task(self._observe(client, key))

    async def _observe(self, client: asyncdlock.LockClient, key: str) -> None:
        async for leader in client.observe(key, every=EVERY):
            self.told.append(leader)

    @property
    def labels(self) -> Iterator[str | None]:
        """Of each leader once; a leader is told again when more is known of it."""
        last: str | None = "nobody was told of yet"
        for leader in self.told:
            label = None if leader is None else leader.label
            if label != last and not (leader is not None and label is None):
                yield label
            last = label

    async def until(self, *labels: str | None) -> None:
        """Wait for the last of `labels`, and see that nothing else was told."""
        await until(lambda: list(self.labels)[-1:] == [labels[-1]] and len(list(self.labels)) >= len(labels))
        assert list(self.labels) == list(labels)


async def test_an_observer_is_told_of_every_leader_and_of_none(
    case: Case, connect: Connect, key: str, claims: Claims
) -> None:
    one, two, stranger = connect(label="one"), connect(label="two"), connect()
    observer = Observer(stranger, key)
    await observer.until(None)
    async with await anext(one.lead(key, ttl=30.0)) as first:
        await observer.until(None, "one")
    await observer.until(None, "one", None)
    async with await anext(two.lead(key, ttl=30.0)) as second:
        await observer.until(None, "one", None, "two")
        assert len(await claims()) == 1, "the observer does not stand for election"
    await observer.until(None, "one", None, "two", None)
    leaders = {leader.owner: leader for leader in observer.told if leader is not None}
    assert list(leaders) == [first.owner, second.owner]
    if case.name != "redlock":  # knows a term once it was renewed
        assert [leader.term for leader in leaders.values()] == [first.fence, second.fence]
    await stranger.aclose()
    await asyncio.wait_for(observer.task, PATIENCE)
    assert await claims() == []


async def test_what_becomes_known_of_a_leader_later_is_told(
    connect: Connect, key: str, ttl: float, case: Case
) -> None:
    """In the end the observer knows the term on every backend: Redlock's once it was renewed."""
    async with connect(label="one").hold(key, ttl=ttl if case.name == "redlock" else 30.0) as handle:
        complete = asyncdlock.Leader(owner=handle.owner, label="one", term=handle.fence)
        async with asyncio.timeout(PATIENCE):
            async for leader in connect().observe(key, every=EVERY):
                assert leader is not None
                if leader == complete:
                    break


async def test_a_leader_that_stays_is_told_once(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    """However often the server is asked."""
    stranger = connect()
    async with locks.hold(key, ttl=30.0):
        await until(lambda: _complete(stranger, key))
        observer = Observer(stranger, key)
        await until(lambda: observer.told != [])
        asked = backend_of(stranger).commands
        await asyncio.sleep(10 * EVERY)
        if backend_of(stranger).name != "memory":
            await until(lambda: backend_of(stranger).commands >= asked + 3)
        assert len({leader and leader.owner for leader in observer.told}) == 1
        known = [leader for leader in observer.told if leader is not None]
        assert len(known) == len(set(known)), "each time more is known, or another leads"
        observer.task.cancel()
        await asyncio.wait((observer.task,))


async def _complete(client: asyncdlock.LockClient, key: str) -> bool:
    return (await client.inspect(key)).label is not None


async def test_the_callers_cancellation_ends_an_observer_and_nothing_else(
    locks: asyncdlock.LockClient, key: str
) -> None:
    observer = Observer(locks, key)
    await until(lambda: observer.told == [None])
    observer.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await observer.task
    async with locks.hold(key):
        again = await anext(locks.observe(key))
        assert again is not None


async def test_closing_ends_an_observer_between_two_looks(connect: Connect, key: str) -> None:
    """One that sleeps at that moment, too, and without an error; its task is not left cancelled."""
    client = connect()
    told: list[asyncdlock.Leader | None] = []

    async def observe() -> int:
        async for leader in client.observe(key, every=3600.0):
            told.append(leader)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(observe())
    await until(lambda: told == [None])
    await client.aclose()
    assert await asyncio.wait_for(task, PATIENCE) == 0
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await anext(client.observe(key))


async def test_closing_ends_an_observer_that_is_about_to_look(connect: Connect, key: str) -> None:
    """It wakes when the client refuses all calls already and has not yet interrupted those inside."""
    client = connect()
    leaders = client.observe(key, every=1e-9)
    assert await anext(leaders) is None
    looks = asyncio.create_task(_next(leaders))
    closes = asyncio.create_task(client.aclose())
    assert await asyncio.wait_for(looks, PATIENCE) == "ended"
    await closes


async def _next(leaders: AsyncIterator[asyncdlock.Leader | None]) -> asyncdlock.Leader | str | None:
    return await anext(leaders, "ended")


async def test_closing_ends_an_observer_whose_body_runs(connect: Connect, key: str) -> None:
    client = connect()
    async with asyncio.timeout(PATIENCE):
        async for _ in client.observe(key):
            await client.aclose()


async def test_what_cannot_be_observed_is_refused(locks: asyncdlock.LockClient, key: str) -> None:
    with pytest.raises(asyncdlock.InvalidKey):
        await anext(locks.observe(""))
    for bad in (0.0, -1.0, float("nan"), float("inf"), True, "1s"):
        with pytest.raises(ValueError, match="every"):
            locks.observe(key, every=bad)  # type: ignore[arg-type]


async def test_an_observer_outlasts_a_server_that_is_away(
    redis_server: servers.RedisNode, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"redis://{redis_server.address}?request_timeout=0.5"
    async with asyncdlock.connect(url) as locks, asyncdlock.connect(url, label="other") as other:
        observer = Observer(locks, "k")
        await observer.until(None)
        redis_server.pause()
        await until(lambda: "observing 'k' goes on" in caplog.text)
        redis_server.resume()
        async with other.hold("k", ttl=30.0, timeout=PATIENCE):
            await observer.until(None, "other")
    await asyncio.wait_for(observer.task, PATIENCE)
