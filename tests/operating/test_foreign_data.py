"""A key that an application uses for its own data gets an error that says so, and names the way out."""

import base64
import uuid

import pytest
from redis.asyncio import Redis
from redis.asyncio.lock import Lock

import asyncdlock
from harness import servers

REFUSED = r"data of another program.*prefix="
QUEUED = pytest.mark.parametrize("scheme", ["redis", "redis-queue"])


@pytest.fixture
def key() -> str:
    return f"account:{uuid.uuid4().hex}"


@QUEUED
@pytest.mark.parametrize("kind", ["number", "text", "list", "hash"])
async def test_data_in_redis(redis_url: str, scheme: str, kind: str, key: str) -> None:
    """At once: whoever waited for it would wait for ever. With a prefix the same key can be locked."""
    url = redis_url.replace("redis", scheme, 1)
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        command = {
            "number": ("SET", key, 42),
            "text": ("SET", key, '{"owner": "al"}'),
            "list": ("RPUSH", key, "a"),
            "hash": ("HSET", key, "a", "b"),
        }
        await redis.execute_command(*command[kind])
        kept = await redis.type(key)
        async with asyncdlock.connect(url) as locks:
            for attempt in (locks.acquire(key, timeout=60.0), locks.try_acquire(key)):
                with pytest.raises(asyncdlock.BackendError, match=REFUSED) as refused:
                    await attempt
                assert "WRONGTYPE" not in str(refused.value)
                assert refused.value.key == key
        assert await redis.type(key) == kept
        async with asyncdlock.connect(url, prefix="locks:") as locks, locks.hold(key) as handle:
            assert await redis.get(f"locks:{key}") == handle.owner
        await redis.delete(key)


async def test_data_on_most_nodes_of_redlock(redlock_url: str, key: str) -> None:
    nodes = redlock_url.partition("://")[2].split(",")
    for node in nodes:
        async with Redis.from_url(f"redis://{node}") as redis:
            await redis.set(key, "a value")
    async with asyncdlock.connect(redlock_url) as locks:
        with pytest.raises(asyncdlock.BackendError, match=REFUSED):
            await locks.acquire(key, timeout=60.0)


@QUEUED
async def test_a_lock_of_redis_py_without_an_end_is_waited_for(redis_url: str, scheme: str, key: str) -> None:
    async with Redis.from_url(redis_url) as redis:
        theirs = Lock(redis, key, timeout=None)
        assert await theirs.acquire()
        async with asyncdlock.connect(redis_url.replace("redis", scheme, 1)) as locks:
            with pytest.raises(asyncdlock.AcquireTimeout):
                await locks.acquire(key, timeout=0.3)
        await theirs.release()


async def test_data_in_etcd(shared_etcd: servers.EtcdCluster, key: str) -> None:
    stored = {"key": f"/locks/{key}/balance", "value": "42"}
    packed = {name: base64.b64encode(text.encode()).decode() for name, text in stored.items()}
    await shared_etcd[0].call("kv/put", packed)
    async with asyncdlock.connect(shared_etcd.url, local_queue=False) as locks:
        for attempt in (locks.acquire(key, timeout=60.0), locks.try_acquire(key)):
            with pytest.raises(asyncdlock.BackendError, match=REFUSED):
                await attempt
    async with asyncdlock.connect(shared_etcd.url, prefix="apart/") as locks, locks.hold(key):
        pass
