"""No key touches another's state, whatever users choose; and all that belongs to a lock is in one slot."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.crc import key_slot

import asyncdlock
from asyncdlock import BackendError
from asyncdlock.backends.redis.keys import companion, fence_key, key_of, lock_name, slot_of
from harness.servers import RedisNode
from tests.redis_queue.support import (
    PATIENT,
    eventually,
    fifo,
    hold_in_turn,
    queue_url,
    until_waiting,
    waiters,
)

ROLES = ("fence", "queue", "sessions")
ODD = ["a", "{a}", "a}", "{a", "}a{", "{}", "{}a", "a{}b{c}", "{a}{b}", "{{a}}", "{a}b}"]
NAMES = [f"{role}:{key}" for role in (*ROLES, "tagged", "escaped") for key in ("x", "{x}", "{{x}}", "x}")]

keys = st.text(min_size=1, max_size=40) | st.builds(
    "".join,
    st.lists(
        st.sampled_from(["{", "}", "a", "é", "%7B", "%7D", "%25", "%", ":", *(f"{role}:" for role in ROLES)])
        | st.sampled_from(["tagged:", "escaped:"]),
        min_size=1,
        max_size=8,
    ),
)


def names(key: str) -> set[str]:
    return {lock_name(key), *(companion(role, key) for role in ROLES)}


def lookalikes(key: str) -> set[str]:
    """Keys that a hostile user would choose beside `key`."""
    braced = {f"{{{key}}}", key.strip("{}"), key.replace("{", "").replace("}", ""), f"{key}}}", f"{{{key}"}
    return {other for other in (*braced, *names(key), *map(key_of, names(key))) if other not in ("", key)}


@given(keys, keys)
def test_two_keys_share_no_name(one: str, two: str) -> None:
    assert len(names(one)) == 4
    for other in {two, *lookalikes(one), *(far for near in lookalikes(one) for far in lookalikes(near))} - {
        one
    }:
        assert not names(one) & names(other), other


def test_names_that_look_like_others_are_different() -> None:
    everything = [name for key in {*ODD, *NAMES} for name in names(key)]
    assert len(everything) == len(set(everything))


@given(keys)
def test_all_names_of_a_key_are_in_its_slot(key: str) -> None:
    """By the server's own rule: between the first `{` and the next `}`, unless there is nothing."""
    assert {key_slot(name.encode()) for name in names(key)} == {slot_of(key)}


@given(keys)
def test_a_key_is_found_again_by_the_name_of_its_lock(key: str) -> None:
    assert key_of(lock_name(key)) == key


@pytest.mark.parametrize("key", ["account:42", "a b", "ключ", "fence:x", "a{b"])
def test_ordinary_keys_have_the_names_that_other_programs_know(key: str) -> None:
    assert lock_name(key) == key
    assert fence_key(key) == f"fence:{{{key}}}"


def test_a_key_that_brings_its_own_hash_tag_keeps_it() -> None:
    assert lock_name("{tenant:7}:job") == "{tenant:7}:job"
    assert fence_key("{tenant:7}:job") == "fence:{tenant:7}:job"
    assert lock_name("{tenant:7}") == "{tenant:7}"


async def test_a_release_grants_no_lock_of_a_similar_name(node: RedisNode) -> None:
    async with fifo(node) as one, fifo(node) as two, fifo(node) as three:
        plain = await one.acquire("a", ttl=60.0)
        braced = await three.acquire("{a}", ttl=60.0)
        waiter = asyncio.create_task(two.acquire("{a}", ttl=60.0))
        other = asyncio.create_task(two.acquire("a", ttl=60.0))

        async def both_wait() -> bool:
            queues = [await node.command("ZCARD", companion("queue", key)) for key in ("a", "{a}")]
            return sum(queues) == 2 or queues == [2, 2]

        await eventually(both_wait, "two waiters")
        async with asyncio.timeout(PATIENT):
            await plain.release()
            handle = await other  # its turn, and nobody else's
            assert not waiter.done()
            assert await node.command("GET", "{a}") == braced.owner
            await handle.release()
            await braced.release()
            await (await waiter).release()


async def test_a_message_about_another_key_is_not_believed(node: RedisNode) -> None:
    async with fifo(node) as holding, fifo(node) as client:
        holder = await holding.acquire("k", ttl=60.0)
        async with waiters(client, "k", 1) as (waiter,):
            (owner,) = await until_waiting(node, "k", 1)
            seconds, _ = map(int, await node.command("TIME"))
            now = 1000 * seconds  # a grant of long ago would be asked about again in any case
            for message in (f"{owner} 7 {now} other", f"{owner} 7 {now}", "nonsense", f"{owner} x y k"):
                await node.command("PUBLISH", f"asyncdlock:{owner[:23]}", message)
            for _ in range(2):  # answered after all that the messages set off
                await client.try_acquire("other")
            assert not waiter.done()
            assert await node.command("GET", "k") == holder.owner
            await holder.release()
            await hold_in_turn([waiter])


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
@pytest.mark.parametrize("name", ["fence:{x}", "queue:{x}", "sessions:{x}"])
async def test_locks_named_like_companions_disturb_nobody(node: RedisNode, scheme: str, name: str) -> None:
    url = node.url.replace("redis://", f"{scheme}://", 1)
    async with asyncdlock.connect(url) as one, asyncdlock.connect(url) as two:
        named = await one.acquire(name, ttl=60.0)
        fences = []
        for _ in range(3):
            handle = await one.acquire("x", ttl=60.0, timeout=PATIENT)
            waiter = asyncio.create_task(two.acquire("x", ttl=60.0, timeout=PATIENT))
            await asyncio.sleep(0.02)
            assert await handle.release()
            other = await waiter
            assert await other.release()
            fences += [handle.fence, other.fence]
        assert fences == sorted(set(fences))
        await named.renew()
        assert await two.try_acquire(name) is None
        assert await named.release()


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
async def test_each_lock_is_listed_once_whatever_the_others_are_called(node: RedisNode, scheme: str) -> None:
    names = ["fence:x", "fence:{x}", "x", "{x}"]
    async with asyncdlock.connect(node.url.replace("redis://", f"{scheme}://", 1)) as locks:
        handles = [await locks.acquire(name, ttl=PATIENT) for name in names]
        assert sorted([key async for key in locks.keys() if key in names]) == names  # noqa: SIM118
        for handle in handles:
            assert await handle.release()


@pytest.mark.parametrize("scheme", ["redis", "redis-queue"])
@pytest.mark.parametrize("key", ["{tenant:7}", "{tenant:7}:job", "a{b"])
async def test_redis_py_is_excluded_from_keys_with_braces(node: RedisNode, scheme: str, key: str) -> None:
    client = Redis(host=node.host, port=node.port)
    async with asyncdlock.connect(node.url.replace("redis://", f"{scheme}://", 1)) as locks:
        theirs = Lock(client, key, timeout=60.0, blocking=False)
        async with locks.hold(key):
            assert not await theirs.acquire()
        assert await theirs.acquire()
        assert await locks.try_acquire(key) is None
        await theirs.release()
    await client.aclose()


async def test_a_key_that_holds_other_data_is_said_to_do_so(node: RedisNode) -> None:
    async with asyncdlock.connect(queue_url(node)) as locks:
        for taken in ("k", "queue:{k}", "fence:{k}"):
            await node.command("RPUSH", taken, "a list")
            with pytest.raises(BackendError, match=r"'k' cannot be locked: .* data of another program"):
                await locks.acquire("k", timeout=PATIENT)
            await node.command("DEL", taken)
        handle = await locks.acquire("k", timeout=PATIENT)
        await node.command("DEL", "k")
        await node.command("RPUSH", "k", "a list")
        assert await handle.release() is False
        await node.command("DEL", "k")
