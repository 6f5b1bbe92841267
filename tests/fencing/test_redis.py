"""FencedRedis: the server itself refuses a holder that was displaced."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from asyncdlock.errors import LockError, StaleFence
from asyncdlock.fencing.redis import FUNCTIONS, FencedRedis, UnknownOutcome
from harness.faults.tcp_link import Link, Way, open_link

LARGE = 2**63 - 10


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def key() -> str:
    return f"value:{uuid4()}"


async def test_a_fresh_writer_wins_and_a_stale_one_loses(redis: Redis, key: str) -> None:
    store = FencedRedis(redis)
    await store.put(key, b"thirty-three", fence=33)
    await store.put(key, b"thirty-four", fence=34)
    with pytest.raises(StaleFence) as refused:
        await store.put(key, b"too late", fence=33)
    assert (refused.value.seen, refused.value.got) == (34, 33)
    assert await store.get(key) == (b"thirty-four", 34, 34)


async def test_fences_compare_as_numbers_beyond_two_to_the_53(redis: Redis, key: str) -> None:
    store = FencedRedis(redis)
    await store.put(key, b"small", fence=9)
    await store.put(key, b"more digits", fence=10)
    await store.put(key, b"large", fence=LARGE + 1)
    with pytest.raises(StaleFence):
        await store.put(key, b"one less", fence=LARGE)


async def test_a_fenced_read_shuts_older_writers_out(redis: Redis, key: str) -> None:
    store = FencedRedis(redis)
    assert await store.get(key, fence=34) == (None, 0, 34)
    with pytest.raises(StaleFence):
        await store.put(key, b"read before 34 did", fence=33)
    with pytest.raises(StaleFence):
        await store.get(key, fence=33)
    await store.put(key, b"the reader itself", fence=34)


async def test_a_holder_numbers_its_writes(redis: Redis, key: str) -> None:
    store = FencedRedis(redis)
    await store.put(key, b"first", fence=5)
    await store.put(key, b"first", fence=5)  # a repetition after a lost reply
    with pytest.raises(LockError, match="seq"):
        await store.put(key, b"second", fence=5)
    await store.put(key, b"second", fence=5, seq=10)
    with pytest.raises(LockError, match="seq"):
        await store.put(key, b"first", fence=5, seq=9)
    assert (await store.get(key)).body == b"second"


@pytest.mark.parametrize("fence", [0, -1, 2**63, True, 1.0, "7"])
async def test_what_is_no_fence_is_not_sent(redis: Redis, key: str, fence: int) -> None:
    with pytest.raises(ValueError, match="fence must be"):
        await FencedRedis(redis).put(key, b"", fence=fence)
    assert not await redis.exists(key)


async def test_a_client_that_decodes_replies_reads_the_same(redis_url: str, key: str) -> None:
    client = Redis.from_url(redis_url, decode_responses=True)
    try:
        store = FencedRedis(client)
        await store.put(key, "text", fence=3)
        assert await store.get(key, fence=3) == (b"text", 3, 3)
        with pytest.raises(StaleFence):
            await store.put(key, "older", fence=2)
    finally:
        await client.aclose()


async def test_a_key_with_other_data_is_left_alone(redis: Redis, key: str) -> None:
    await redis.set(key, "the application's own")
    with pytest.raises(ResponseError):
        await FencedRedis(redis).put(key, b"", fence=1)
    assert await redis.get(key) == b"the application's own"


async def test_sixty_four_writers_never_let_the_value_run_backwards(redis: Redis, key: str) -> None:
    store = FencedRedis(redis)
    fences = list(range(1, 65))
    random.Random(7).shuffle(fences)
    seen: list[int] = []
    accepted: set[int] = set()

    async def write(fence: int) -> None:
        try:
            await store.put(key, str(fence).encode(), fence=fence)
            accepted.add(fence)
        except StaleFence:
            pass

    async def watch() -> None:
        while not seen or seen[-1] < 64:
            value = await store.get(key)
            assert value.body is None or int(value.body) == value.fence
            seen.append(value.fence)

    await asyncio.gather(watch(), *map(write, fences))
    assert all(later >= earlier for earlier, later in pairwise(seen))
    assert 64 in accepted
    assert set(seen) - {0} <= accepted


async def test_other_programs_write_by_the_same_rule(redis: Redis, key: str) -> None:
    await redis.function_load(FUNCTIONS, replace=True)
    assert await redis.fcall("fenced_put", 1, key, "34", "0", "by a function") == [b"ok"]
    assert await redis.fcall("fenced_put", 1, key, "33", "0", "late") == [b"stale", b"34", -1]
    with pytest.raises(StaleFence):
        await FencedRedis(redis).put(key, b"late as well", fence=33)
    assert await redis.fcall("fenced_get", 1, key, "35") == [b"ok", b"by a function", b"34", b"35"]
    assert await redis.hget(key, "value") == b"by a function"


@pytest.mark.parametrize("fence", ["034", "34.0", "+34", "34 ", "3e1", "abc", "", "-1", "0", str(2**63)])
async def test_other_programs_cannot_pass_what_is_no_fence(redis: Redis, key: str, fence: str) -> None:
    """Compared as digits, `034` would be above 35: a stale write would go through, and all others no more."""
    await redis.function_load(FUNCTIONS, replace=True)
    await FencedRedis(redis).put(key, b"thirty-five", fence=35)
    for call in (("fenced_put", 1, key, fence, "0", "stale"), ("fenced_get", 1, key, fence)):
        with pytest.raises(ResponseError, match="fence must be a whole number from 1 to"):
            await redis.fcall(*call)
    assert await FencedRedis(redis).get(key, fence=35) == (b"thirty-five", 35, 35)


@pytest.mark.parametrize("seq", ["01", "1.0", "-1", "x", "", str(2**63)])
async def test_other_programs_number_their_writes_properly(redis: Redis, key: str, seq: str) -> None:
    await redis.function_load(FUNCTIONS, replace=True)
    with pytest.raises(ResponseError, match="seq must be a whole number from 0 to"):
        await redis.fcall("fenced_put", 1, key, "34", seq, "one")
    assert await redis.exists(key) == 0


async def _lose_the_next_reply(link: Link, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """The next reply is lost with its connection, after `meanwhile`."""
    loop = asyncio.get_running_loop()
    lost = loop.create_future()

    def watch(way: Way, data: bytes) -> None:
        if way is Way.TO_CLIENT and not lost.done():
            link.hold(Way.TO_CLIENT)
            lost.set_result(None)

    link.watch = watch

    async def lose() -> None:
        await lost
        await meanwhile()
        link.break_off()
        link.mend()

    loop.create_task(lose()).add_done_callback(lambda task: task.result())


async def test_a_write_that_the_client_repeats_is_not_called_stale(
    redis: Redis, redis_url: str, key: str
) -> None:
    address = urlsplit(redis_url)
    async with open_link(f"{address.hostname}:{address.port}") as link:
        through = Redis(host="127.0.0.1", port=link.port)  # which sends again by itself
        try:
            slow, others = FencedRedis(through), FencedRedis(redis)
            await slow.put(key, b"warm", fence=1)
            await _lose_the_next_reply(link, lambda: others.put(key, b"of six", fence=6))
            await slow.put(key, b"of five", fence=5)
            assert await others.get(key) == (b"of six", 6, 6)
        finally:
            await through.aclose()


async def test_what_cannot_be_known_of_a_repeated_write_is_said_to_be_unknown(
    redis: Redis, redis_url: str, key: str
) -> None:
    address = urlsplit(redis_url)
    async with open_link(f"{address.hostname}:{address.port}") as link:
        through = Redis(host="127.0.0.1", port=link.port)
        try:
            slow, others = FencedRedis(through), FencedRedis(redis)
            await slow.put(key, b"warm", fence=1)

            async def write_much() -> None:
                for fence in range(6, 40):
                    await others.put(key, b"later", fence=fence)

            await _lose_the_next_reply(link, write_much)
            with pytest.raises(UnknownOutcome):
                await slow.put(key, b"of five", fence=5)
            await redis.hset(key, "forgot", 0)  # as if that had been long before the next call
            with pytest.raises(StaleFence):
                await others.put(key, b"never stored", fence=4)
        finally:
            await through.aclose()


async def test_an_earlier_write_of_a_holder_is_recognised(redis: Redis, key: str) -> None:
    store = FencedRedis(redis)
    await store.put(key, b"first", fence=5, seq=1)
    await store.put(key, b"second", fence=5, seq=2)
    await store.put(key, b"first", fence=5, seq=1)
    assert (await store.get(key)).body == b"second"
    with pytest.raises(LockError, match="seq"):
        await store.put(key, b"another", fence=5, seq=1)
