"""`fence_counter=`: however a Redis counts, the fences of a key rise over all who ever take it."""

import asyncio
from typing import Any

import pytest
from redis.crc import key_slot

import asyncdlock
from asyncdlock import BackendError, LockClient, LockError
from asyncdlock.backends.redis.keys import fence_key, key_of, lock_name, shard_key, slot_of
from harness.servers import RedisNode
from tests.contract.fixtures import until

KINDS = ["per-key", "per-shard", "expiring"]
NOT_FOR_EVER = pytest.mark.parametrize("kind", KINDS[1:])
ALL = pytest.mark.parametrize("kind", KINDS)
SCHEMES = pytest.mark.parametrize("scheme", ["redis", "redis-queue"])


def client(node: RedisNode, scheme: str, kind: str, **options: Any) -> LockClient:
    return asyncdlock.connect(node.url.replace("redis", scheme, 1), fence_counter=kind, **options)


async def fence_of(locks: LockClient, key: str, *, ttl: float = 10.0) -> int:
    async with locks.hold(key, ttl=ttl, timeout=60.0) as handle:
        return handle.fence


async def names(locks: LockClient) -> list[str]:
    return [name async for name in locks.keys()]  # noqa: SIM118 - not a mapping


@ALL
@SCHEMES
@pytest.mark.parametrize("handoffs", [0, 16])
async def test_fences_rise_over_all_who_take_a_key(
    redis_server: RedisNode, scheme: str, kind: str, handoffs: int
) -> None:
    """Contended, by tasks that pass it on and by other clients; two keys of one slot, and a prefix."""
    granted: dict[str, list[int]] = {"{t}:one": [], "{t}:two": []}
    local: dict[str, Any] = {"local_handoffs": handoffs, "local_queue": handoffs > 0, "prefix": "job:"}
    async with (
        client(redis_server, scheme, kind, **local) as one,
        client(redis_server, scheme, kind, **local) as two,
    ):

        async def take(locks: LockClient, key: str) -> None:
            for _ in range(5):
                async with locks.hold(key, timeout=60.0) as handle:
                    granted[key].append(handle.fence)

        await asyncio.gather(*(take(locks, key) for key in granted for locks in (one, two) for _ in range(4)))
        for fences in granted.values():
            assert len(fences) == 40
            assert fences == sorted(set(fences))
    names = await redis_server.command("KEYS", "fence*")
    shard = [shard_key("job:{t}:one")] if kind == "per-shard" else []
    assert sorted(names) == sorted(["fence:job:{t}:one", "fence:job:{t}:two", *shard])


@ALL
async def test_fences_of_shared_holders_rise_too(redis_server: RedisNode, kind: str) -> None:
    async with (
        client(redis_server, "redis-queue", kind) as one,
        client(redis_server, "redis-queue", kind) as two,
    ):
        fences = [await fence_of(one, "k")]
        async with one.hold("k", shared=True) as reader, two.hold("k", shared=True) as beside:
            fences += [reader.fence, beside.fence]
            writer = asyncio.create_task(fence_of(two, "k"))
            await until(lambda: _waits(redis_server, "k"))
            await beside.renew()
        fences.append(await writer)
        async with one.semaphore("k", permits=2).hold() as permit:
            fences.append(permit.fence)
        assert fences == sorted(set(fences))


async def _waits(node: RedisNode, key: str) -> bool:
    return bool(await node.command("EXISTS", f"queue:{{{key}}}"))


@ALL
@SCHEMES
async def test_taken_back_and_lifted(redis_server: RedisNode, scheme: str, kind: str) -> None:
    """force_release and raise_fence, also where Lua's numbers are no longer exact."""
    async with client(redis_server, scheme, kind) as one, client(redis_server, scheme, kind) as two:
        holder = await one.acquire("k", ttl=60.0, renew=False)
        seen = await two.inspect("k")
        assert seen.fence == holder.fence
        assert await names(two) == ["k"]
        assert await two.force_release("k")
        assert await holder.release() is False
        assert await fence_of(two, "k") > (seen.last_fence or 0)
        for floor in (2**53 - 2, 2**60 + 1, 2**63 - 5000):
            await two.raise_fence("k", above=floor)
            fences = [floor, await fence_of(one, "k"), await fence_of(two, "k")]
            assert fences == sorted(set(fences))
            await two.raise_fence("k", above=7)
        assert await fence_of(one, "k") > fences[-1], "a floor never lowers"
        holder = await one.acquire("k", ttl=60.0, renew=False)
        assert await two.force_release("k")
        assert await holder.release() is False
        assert holder.fence < await fence_of(two, "k") < 2**63


@ALL
@SCHEMES
async def test_a_counter_that_is_none_takes_no_lock(redis_server: RedisNode, scheme: str, kind: str) -> None:
    await redis_server.command("SET", "fence:{k}", "twelve")
    async with client(redis_server, scheme, kind) as locks:
        with pytest.raises(BackendError, match="not an integer"):
            await locks.try_acquire("k")
        assert await redis_server.command("EXISTS", "k") == 0
        assert await redis_server.command("GET", "fence:{k}") == "twelve"


@NOT_FOR_EVER
@SCHEMES
async def test_a_lost_counter_begins_above_all_that_it_gave(
    redis_server: RedisNode, scheme: str, kind: str
) -> None:
    """So that nobody need repair it, not even for clients that do not know the fences of before."""
    async with client(redis_server, scheme, kind) as locks:
        before = await fence_of(locks, "k")
    await redis_server.restart(wipe=True)
    async with client(redis_server, scheme, kind) as locks:
        assert await fence_of(locks, "k") > before


@ALL
@SCHEMES
async def test_a_lost_counter_that_was_lifted_is_repaired_by_who_knows(
    redis_server: RedisNode, scheme: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Lifted above the clock, even a counter that begins there begins too low."""
    async with client(redis_server, scheme, kind) as locks:
        await locks.raise_fence("k", above=2**55)
        before = await fence_of(locks, "k")
        await redis_server.command("FLUSHALL")
        assert await fence_of(locks, "k") > before
        assert "its server lost data" in caplog.text


@NOT_FOR_EVER
@SCHEMES
async def test_nothing_of_a_key_stays(redis_server: RedisNode, scheme: str, kind: str) -> None:
    async with client(redis_server, scheme, kind, fence_life=1.0) as locks:
        before = await fence_of(locks, "k", ttl=0.1)

        async def gone() -> bool:
            return bool(await redis_server.command("EXISTS", "fence:{k}") == 0)

        await until(gone)
        left = await redis_server.command("KEYS", "fence*")
        assert left == ([shard_key("k")] if kind == "per-shard" else [])
        assert await fence_of(locks, "k") > before


@NOT_FOR_EVER
@pytest.mark.parametrize(
    ("scheme", "shared"), [("redis", False), ("redis-queue", False), ("redis-queue", True)]
)
async def test_a_counter_outlasts_every_renewal(
    redis_server: RedisNode, scheme: str, kind: str, shared: bool
) -> None:
    """So that a lock that is held for long is still listed, with its fence."""
    async with client(redis_server, scheme, kind, fence_life=100.0) as locks:
        async with locks.hold("k", ttl=30.0, shared=shared) as handle:
            await redis_server.command("PEXPIRE", "fence:{k}", 60_000)
            await handle.renew()
            assert int(await redis_server.command("PTTL", "fence:{k}")) > 100_000
            assert await names(locks) == ["k"]


@SCHEMES
async def test_a_counter_expires_only_when_the_clock_is_above_it(
    redis_server: RedisNode, scheme: str
) -> None:
    async with client(redis_server, scheme, "expiring", fence_life=100.0) as locks:
        for above in (0, 2**50 + 2**49, 2**62):
            await locks.raise_fence("k", above=above)
            handle = await locks.acquire("k", ttl=5.0)
            counter = int(await redis_server.command("GET", "fence:{k}"))
            assert counter >= handle.fence
            ends = int(await redis_server.command("PEXPIRETIME", "fence:{k}"))
            assert ends >= counter // 1000 + 100_000
            await handle.renew()
            assert int(await redis_server.command("PEXPIRETIME", "fence:{k}")) >= ends
            await handle.release()


@NOT_FOR_EVER
@SCHEMES
async def test_from_a_counter_for_each_key_fences_go_on_upwards(
    redis_server: RedisNode, scheme: str, kind: str
) -> None:
    async with client(redis_server, scheme, "per-key") as before, client(redis_server, scheme, kind) as after:
        low = await fence_of(before, "low")
        await before.raise_fence("high", above=2**56)
        high = await fence_of(before, "high")
        assert await fence_of(after, "low") > low
        assert await fence_of(after, "high") > high
        assert await redis_server.command("TTL", "fence:{low}") > 0, "it need not stay any longer"


@NOT_FOR_EVER
async def test_once_needs_a_counter_of_the_jobs_own(redis_url: str, kind: str) -> None:
    async with asyncdlock.connect(redis_url, fence_counter=kind) as locks:
        assert not locks.capabilities.once
        with pytest.raises(LockError, match="fence_counter"):
            locks.once("report", every="1h")


@pytest.mark.parametrize(
    "url",
    ["redlock://h1,h2,h3", "etcd://h", "zookeeper://h", "postgres://u@h/d", "memory://x"],
)
def test_backends_that_count_in_one_way_refuse_the_option(url: str) -> None:
    with pytest.raises(ValueError, match="option"):
        asyncdlock.connect(url, fence_counter="expiring")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fence_counter": "global"}, "per-key, per-shard, expiring"),
        ({"fence_life": 60}, "counters that do not stay"),
        ({"fence_counter": "expiring", "fence_life": 0.5}, "1 s to a year"),
    ],
)
@SCHEMES
def test_what_cannot_be_meant_is_refused(scheme: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        asyncdlock.connect(f"{scheme}://127.0.0.1:1", **options)


def test_a_shards_counter_lies_in_its_slot_and_is_no_lock() -> None:
    shards: dict[str, int] = {}
    for number in range(2000):
        for key in (f"k{number}", f"{{tag{number}}}:k", f"{{t{number}}}", f"a}}{number}"):
            name = shard_key(key)
            assert key_slot(name.encode()) == slot_of(key)
            assert shards.setdefault(name, slot_of(key)) == slot_of(key)
    assert len(set(shards.values())) == len(shards)
    for name in shards:
        assert lock_name(name) != name, "a lock of that name is stored elsewhere"
        assert key_of(lock_name(name)) == name
        assert fence_key(name) not in shards
