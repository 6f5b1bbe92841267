"""redis:// on real servers: TLS, logins, sockets, databases, restarts, neighbours and lost data."""

import asyncio
import time

import pytest
import redis.asyncio as redis_py
from redis.asyncio.lock import Lock

import asyncdlock
from asyncdlock.backends.redis.keys import fence_key
from harness import servers
from tests.contract.fixtures import until

SCHEMES = ["redis", "redis-queue"]


def at(scheme: str, url: str) -> str:
    """`url` for the plain recipe or for the fair queue."""
    return url.replace("://", "-queue://", 1) if scheme == "redis-queue" else url


async def cycle(url: str, key: str = "key") -> None:
    """Everything that a lock does, once."""
    async with asyncdlock.connect(url) as locks:
        handle = await locks.acquire(key, timeout=30.0)
        await handle.renew()
        assert await locks.try_acquire(key) is None
        assert await handle.release() is True


# Ways in


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_unix_socket_and_database_number(redis_server: servers.RedisNode, scheme: str) -> None:
    await cycle(at(scheme, redis_server.unix_url))
    async with asyncdlock.connect(at(scheme, f"redis://{redis_server.address}/3")) as three:
        async with three.hold("key"):
            async with asyncdlock.connect(at(scheme, f"redis://{redis_server.address}/4")) as four:
                async with four.hold("key", timeout=10.0):
                    pass
        client = redis_py.Redis(port=redis_server.port, db=3)
        assert await client.exists("fence:{key}")
        await client.aclose()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_password_and_acl_users(scheme: str) -> None:
    async with servers.redis(password="pa/ss:w@rd", users={"locker": "l0ck?er"}) as node:
        await cycle(at(scheme, node.url))
        await cycle(at(scheme, node.url_for("locker")))
        await cycle(at(scheme, node.unix_url))


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_wrong_password_is_one_clear_error(scheme: str) -> None:
    async with servers.redis(password="right") as node:
        for credentials in (":s3cr3t@", "user:s3cr3t@", ""):
            url = at(scheme, f"redis://{credentials}{node.address}")
            async with asyncdlock.connect(url) as locks:
                with pytest.raises(asyncdlock.BackendError) as caught:
                    await locks.acquire("key", timeout=30.0)
                assert caught.value.definite
                assert "s3cr3t" not in str(caught.value)
                assert len(str(caught.value).splitlines()) == 1
                if credentials:
                    assert "refused the credentials" in str(caught.value)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_server_that_is_down_is_one_clear_error(redis_server: servers.RedisNode, scheme: str) -> None:
    redis_server.kill()
    async with asyncdlock.connect(at(scheme, redis_server.url)) as locks:
        with pytest.raises(asyncdlock.BackendUnavailable, match="cannot be reached") as caught:
            await locks.acquire("key")
        assert caught.value.definite


# Neighbours


async def test_redis_py_and_asyncdlock_exclude_each_other(redis_url: str, key: str) -> None:
    client = redis_py.Redis.from_url(redis_url)
    async with asyncdlock.connect(redis_url) as locks:
        theirs = Lock(client, key, timeout=30.0, blocking=False)
        async with locks.hold(key):
            assert not await theirs.acquire()
        assert await theirs.acquire()
        assert await locks.try_acquire(key) is None
        with pytest.raises(asyncdlock.AcquireTimeout):
            await locks.acquire(key, timeout=0.05)
        waiting = asyncio.create_task(locks.acquire(key, timeout=30.0))
        await asyncio.sleep(0.02)
        await theirs.release()
        assert await (await waiting).release()
    await client.aclose()


async def test_a_key_of_another_type_is_an_error_and_harms_no_other_lock(redis_url: str, key: str) -> None:
    client = redis_py.Redis.from_url(redis_url)
    await client.rpush(key, "a list")
    async with asyncdlock.connect(redis_url) as locks:
        with pytest.raises(asyncdlock.BackendError, match=r"data of another program .*prefix=") as refused:
            await locks.acquire(key, timeout=10.0)
        assert "WRONGTYPE" not in str(refused.value)
        other = await locks.acquire(f"{key}-other", ttl=0.6)
        spoilt = await locks.acquire(f"{key}-spoilt", ttl=0.6)
        await client.delete(f"{key}-spoilt")
        await client.rpush(f"{key}-spoilt", "a list")
        # Both are renewed by the same script.
        async with asyncio.timeout(30.0):
            await spoilt.wait_lost()
        await asyncio.sleep(0.8)
        assert other.held
        assert await spoilt.release() is False
        assert await other.release() is True
    await client.delete(key, f"{key}-spoilt")
    await client.aclose()


async def test_an_expired_holder_never_deletes_the_next_ones_key(redis_url: str, key: str) -> None:
    client = redis_py.Redis.from_url(redis_url, decode_responses=True)
    async with asyncdlock.connect(redis_url) as locks:
        stale = await locks.acquire(key, ttl=0.05, renew=False)
        current = await locks.acquire(key, ttl=60.0, timeout=30.0)
        assert await stale.release() is False
        assert await client.get(key) == current.owner
        # Nor does a renewal extend it, or bring an expired key back.
        assert (await locks._backend.renew([stale._holding.grant]))[0] is asyncdlock.LeaseState.LOST
        assert await client.pttl(key) > 10_000
        assert await current.release() is True
        assert (await locks._backend.renew([current._holding.grant]))[0] is asyncdlock.LeaseState.LOST
        assert await client.exists(key) == 0
    await client.aclose()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_body_that_outlasts_its_lease_without_an_await_gets_lock_lost(
    redis_url: str, key: str, scheme: str
) -> None:
    async with asyncdlock.connect(at(scheme, redis_url)) as locks:
        with pytest.raises(asyncdlock.LockLost):
            async with locks.hold(key, ttl=0.2):
                time.sleep(0.25)


# Faults


@pytest.mark.faults
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_renewal_without_an_answer_is_unknown(redis_server: servers.RedisNode, scheme: str) -> None:
    """Whatever the TTL: neither renewed nor lost."""
    async with asyncdlock.connect(at(scheme, redis_server.url), local_queue=False) as locks:
        handles = [await locks.acquire(f"key {n}", ttl=600.0) for n in range(3)]
        grants = [handle._holding.grant for handle in handles]
        redis_server.kill()
        assert list(await locks._backend.renew(grants)) == [asyncdlock.LeaseState.UNKNOWN] * 3
        with pytest.raises(asyncdlock.BackendError):
            await handles[0].renew()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_renewal_extends_no_lock_of_another(redis_server: servers.RedisNode, scheme: str) -> None:
    async with asyncdlock.connect(at(scheme, redis_server.url), local_queue=False) as locks:
        handle = await locks.acquire("key", ttl=600.0)
        await redis_server.command("SET", "key", "somebody else", "PX", 60_000)
        (state,) = await locks._backend.renew([handle._holding.grant])
        assert state is asyncdlock.LeaseState.LOST
        assert await redis_server.command("PTTL", "key") <= 60_000


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_grant_that_is_taken_again_lasts_its_whole_ttl(redis_url: str, key: str, scheme: str) -> None:
    """The reply to the first request was lost: the lease counts from the second."""
    async with (
        redis_py.Redis.from_url(redis_url) as client,
        asyncdlock.connect(at(scheme, redis_url), local_queue=False) as locks,
    ):
        handle = await locks.acquire(key, ttl=600.0)
        await client.pexpire(key, 60_000)
        for acquire in (locks._backend.acquire, locks._backend.try_acquire):
            again = await acquire(handle._holding.grant.claim)
            assert again is not None
            assert again.fence > handle.fence
            assert await client.pttl(key) > 500_000
            await client.pexpire(key, 60_000)
        assert await handle.release()


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_the_connection_to_a_server_that_became_a_replica_is_given_up(
    redis_server: servers.RedisNode, scheme: str
) -> None:
    """The next one may lead to the primary; to ask the old one again would never help."""

    async def connection() -> set[str]:
        listing: str = await redis_server.command("CLIENT", "LIST", "TYPE", "normal")
        return {line.split()[0] for line in listing.splitlines() if "cmd=client" not in line}

    async with asyncdlock.connect(at(scheme, redis_server.url)) as locks:
        assert await (await locks.acquire("key")).release()
        before = await connection()
        assert len(before) == 1
        await redis_server.command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(asyncdlock.BackendUnavailable, match="READONLY") as raised:
            await locks.acquire("key")
        assert raised.value.definite
        await redis_server.command("REPLICAOF", "NO", "ONE")
        assert await (await locks.acquire("key")).release()
        after = await connection()
        assert len(after) == 1
        assert not before & after


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_forgotten_scripts_are_sent_again(redis_server: servers.RedisNode, scheme: str) -> None:
    async with asyncdlock.connect(at(scheme, redis_server.url)) as locks:
        await redis_server.command("SCRIPT", "FLUSH")
        handle = await locks.acquire("key")
        await redis_server.command("SCRIPT", "FLUSH")
        await handle.renew()
        await redis_server.command("SCRIPT", "FLUSH")
        assert await handle.release() is True
        await redis_server.command("SCRIPT", "FLUSH")
        if scheme == "redis":
            await locks.raise_fence("key", above=100)
            assert (await locks.acquire("key")).fence == 101


@pytest.mark.faults
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_lock_survives_the_restart_of_a_server_that_keeps_its_data(scheme: str) -> None:
    async with servers.redis(persistent=True) as node:
        async with asyncdlock.connect(at(scheme, node.url)) as locks:
            handle = await locks.acquire("key", ttl=60.0)
            node.kill()
            await node.start()
            await handle.renew()
            assert await locks.try_acquire("key") is None
            assert await handle.release() is True
            async with locks.hold("key", timeout=30.0) as later:
                assert later.fence > handle.fence


@pytest.mark.faults
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_restart_without_data_loses_the_lock_and_is_noticed(
    redis_server: servers.RedisNode, scheme: str
) -> None:
    async with asyncdlock.connect(at(scheme, redis_server.url)) as locks:
        regressions = locks._metrics.fence_regressions
        for _ in range(5):
            await (await locks.acquire("key")).release()
        handle = await locks.acquire("key", ttl=60.0)
        await redis_server.restart(wipe=True)
        with pytest.raises(asyncdlock.LockLost):
            await handle.renew()
        assert not handle.held
        again = await locks.acquire("key", timeout=30.0)
        assert again.fence > handle.fence, "the client never hands out less than it has seen"
        assert locks._metrics.fence_regressions == regressions + 1
        assert await again.release()


@pytest.mark.faults
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_lost_counter_is_repaired_from_what_the_resource_has_seen(
    redis_server: servers.RedisNode, scheme: str
) -> None:
    """A new client cannot know that fences ran higher before: the resource does, and says so."""
    url = at(scheme, redis_server.url)
    async with asyncdlock.connect(url) as before:
        await before.raise_fence("key", above=2**60)
        async with before.hold("key") as handle:
            seen = handle.fence
    await redis_server.command("FLUSHALL")
    async with asyncdlock.connect(url) as after:
        async with after.hold("key") as stale:
            assert stale.fence < seen
        await after.raise_fence("key", above=seen)
        async with after.hold("key") as repaired:
            assert repaired.fence > seen


@pytest.mark.faults
@pytest.mark.parametrize(("counter", "above", "then"), [(9, 10, 10), (10, 9, 10), (100, 20, 100)])
async def test_a_counter_is_raised_as_a_number_and_never_lowered(
    redis_server: servers.RedisNode, counter: int, above: int, then: int
) -> None:
    async with asyncdlock.connect(redis_server.url) as locks:
        await redis_server.command("SET", fence_key("key"), counter)
        await locks.raise_fence("key", above=above)
        assert int(await redis_server.command("GET", fence_key("key"))) == then


async def test_a_deleted_counter_is_noticed_by_a_client_that_knew_it(redis_server: servers.RedisNode) -> None:
    async with asyncdlock.connect(redis_server.url) as locks:
        seen = 0
        for _ in range(3):
            for _ in range(4):
                async with locks.hold("key") as handle:
                    assert handle.fence > seen
                    seen = handle.fence
            await redis_server.command("DEL", fence_key("key"))


async def test_a_counter_that_is_none_leaves_no_lock_behind(redis_url: str, key: str) -> None:
    client = redis_py.Redis.from_url(redis_url)
    for spoilt in ("not a number", str(2**63 - 1)):
        await client.set(fence_key(key), spoilt)
        async with asyncdlock.connect(redis_url) as locks:
            with pytest.raises(asyncdlock.BackendError):
                await locks.acquire(key, timeout=10.0)
        assert not await client.exists(key)
    await client.aclose()


@pytest.mark.faults
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_frozen_server_ends_the_body_in_time(redis_server: servers.RedisNode, scheme: str) -> None:
    async with asyncdlock.connect(at(scheme, redis_server.url), call_timeout=0.5) as locks:
        await (await locks.acquire("warm")).release()
        try:
            with pytest.raises(asyncdlock.LockLost):
                async with locks.hold("key", ttl=1.0) as handle:
                    redis_server.pause()
                    await asyncio.sleep(60.0)
            assert time.monotonic() < handle.expires_at + 5.0
        finally:
            redis_server.resume()


@pytest.mark.faults
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_a_killed_server_fails_an_acquire_and_the_next_one_works(
    redis_server: servers.RedisNode, scheme: str
) -> None:
    async with asyncdlock.connect(at(scheme, redis_server.url), local_queue=True) as locks:
        await (await locks.acquire("key", ttl=0.5)).release()
        redis_server.pause()
        waiting = asyncio.create_task(locks.acquire("key", ttl=0.5))
        await asyncio.sleep(0.05)
        redis_server.kill()
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), asyncdlock.BackendUnavailable)
        await until(lambda: not [t for t in asyncio.all_tasks() if "give back" in t.get_name()])
        await redis_server.start()
        async with locks.hold("key", timeout=30.0):
            pass


# TLS


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_tls_with_certificates_of_both_sides(scheme: str) -> None:
    async with servers.redis(flavour="redis", tls="mutual", password="secret") as node:
        assert node.url.startswith("rediss://")
        await cycle(at(scheme, node.url))
        # Nobody gets in without the authority that signed the server's certificate.
        stranger = f"rediss://:secret@{node.address}/0"
        async with asyncdlock.connect(at(scheme, stranger)) as locks:
            with pytest.raises(asyncdlock.BackendUnavailable, match=r"(?i)certificate") as caught:
                await locks.acquire("key")
            assert "secret" not in str(caught.value)
        async with asyncdlock.connect(at(scheme, f"redis://:secret@{node.address}/0")) as locks:
            with pytest.raises(asyncdlock.BackendUnavailable):
                await locks.acquire("key")
