"""connect(redis=client): address, credentials, TLS and options from a client that the application has."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.asyncio import ConnectionPool as AsyncPool
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import Sentinel as AsyncSentinel
from redis.asyncio.cluster import RedisCluster as AsyncCluster
from redis.sentinel import Sentinel

import asyncdlock
from harness import servers

PASSWORD = "s@cret/?"


async def lock_like(client: Any, url: str = "") -> str:
    """Take a lock where `client` connects to; its owner."""
    locks = asyncdlock.connect(url, redis=client) if url else asyncdlock.connect(redis=client)
    async with locks, locks.hold(f"k-{uuid.uuid4().hex}", timeout=60.0) as handle:
        assert await locks.try_acquire(handle.key) is None
        return handle.key


@pytest.mark.parametrize("url", ["", "redis://", "redis-queue://"])
@pytest.mark.parametrize("make", [AsyncRedis, redis.Redis])
async def test_a_client_with_a_password_and_a_database(make: Callable[..., Any], url: str) -> None:
    """Also one that decodes, retries and has its own idea of the protocol: none of that is taken over."""
    async with servers.redis(password=PASSWORD) as node:
        client = make(
            host=node.host, port=node.port, password=PASSWORD, db=3, decode_responses=True, protocol=2
        )
        key = await lock_like(client, url)
        async with AsyncRedis(host=node.host, port=node.port, password=PASSWORD, db=3) as probe:
            assert await probe.exists(f"fence:{{{key}}}")


def test_a_client_for_plain_threads_takes_it_alone_as_well(redis_url: str) -> None:
    with asyncdlock.blocking.connect(redis=redis.Redis.from_url(redis_url)) as locks:
        with locks.hold(f"k-{uuid.uuid4().hex}", timeout=60.0) as handle:
            assert locks.try_acquire(handle.key) is None


async def test_a_pool_and_an_option_of_ours(redis_url: str) -> None:
    pool = AsyncPool.from_url(redis_url)
    await lock_like(pool)
    async with asyncdlock.connect(
        "redis-queue://?local_handoffs=0&label=me", redis=pool, patience=1.0
    ) as locks:
        async with locks.hold(f"k-{uuid.uuid4().hex}") as handle:
            assert handle.label == "me"


@pytest.mark.parametrize("make", [AsyncRedis, redis.Redis])
async def test_a_client_with_tls(make: Callable[..., Any]) -> None:
    async with servers.redis(tls="server") as node:
        assert node.certificates is not None
        trusted = str(node.certificates.ca)
        options = {"host": node.host, "port": node.port, "ssl": True, "ssl_ca_certs": trusted}
        await lock_like(make(**options))
        with pytest.raises(asyncdlock.BackendUnavailable):
            await lock_like(make(host=node.host, port=node.port, ssl=True))  # does not trust it


@pytest.mark.parametrize("make", [AsyncSentinel, Sentinel])
async def test_a_client_found_by_sentinel(redis_sentinel_url: str, make: Callable[..., Any]) -> None:
    hosts = redis_sentinel_url.partition("://")[2].partition("/")[0].split(",")
    addresses = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in hosts)]
    service = redis_sentinel_url.partition("service=")[2].partition("&")[0] or "mymaster"
    await lock_like(make(addresses).master_for(service))


async def test_a_client_of_a_cluster(redis_cluster_url: str) -> None:
    host, _, port = redis_cluster_url.partition("://")[2].partition(",")[0].rpartition(":")
    theirs = AsyncCluster(host=host, port=int(port))
    await lock_like(theirs, "redis-queue://")
    await theirs.aclose()
    blocking = redis.RedisCluster(host=host, port=int(port))
    await lock_like(blocking)
    blocking.close()


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("redis://elsewhere", {}, "brings the address along"),
        ("redis:///1", {}, "brings the address along"),
        ("rediss://", {}, "brings the address along"),
        ("redlock://", {}, "brings the address along"),
        ("redis://?topology=cluster", {}, "brings topology along"),
        ("redis://", {"ca_file": "/x"}, "brings ca_file along"),
        ("etcd://h", {}, "unknown option 'redis'"),
        ("memory://", {}, "takes no options"),
    ],
)
def test_what_contradicts_is_refused(url: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        asyncdlock.connect(url, redis=AsyncRedis(), **options)


@pytest.mark.parametrize("wrong", ["redis://h", 7, object()])
def test_what_is_no_client_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="client or a pool of redis-py"):
        asyncdlock.connect(redis=wrong)
