"""Whole clients of redis-queue:// keep their promises whatever the network does, and a bug is found."""

import random
import re
from typing import Any
from unittest import mock

import hiredis
import pytest

from asyncdlock.backends.redis import requests
from asyncdlock.backends.redis.keys import companion, fence_key
from asyncdlock.backends.redis.wait_list import WaitList
from harness.servers.redis_node import redis
from tests.schedules.fake_redis import FakeRedis
from tests.schedules.loop import virtual_time
from tests.schedules.wire_programs import draw, run, shrunk
from tests.trace.planted import SCRIPTS, planted

SEEDS = range(150)


def test_random_programs_hold_whatever_the_network_does() -> None:
    steps = 0
    with virtual_time():
        for seed in SEEDS:
            took, broken = run(draw(seed))
            assert broken == "", f"seed {seed}"
            steps += took
    assert steps > 30_000


def test_a_wait_that_ended_in_a_bad_network_leaves_no_place_in_the_queue() -> None:
    """Its release is lost three times, for longer than its TTL."""
    with virtual_time():
        assert run(draw(10_031_187))[1] == ""


def first_that_fails(patch: Any) -> tuple[int, str]:
    with virtual_time(), patch:
        for seed in SEEDS:
            if broken := run(draw(seed))[1]:
                return seed, broken
    raise AssertionError("no seed finds it")


_TWO = "fences grow|one holder|overtook"


@pytest.mark.parametrize(
    ("patch", "broken"),
    [
        (planted("release", "local owned = holder == OWNER", "local owned = holder"), _TWO),
        (planted("release", "granted then\n  redis.call('DEL', LOCK)", "granted then"), "free at once"),
        (planted("acquire", "if not holder then", "if holder ~= OWNER then"), _TWO),
        (
            planted("acquire", "redis.call('INCRBY', KEYS[2], fences)", "redis.call('INCR', KEYS[2])"),
            _TWO,
        ),
        (mock.patch.object(WaitList, "look_after"), "every waiter is served"),
    ],
    ids=["released by anybody", "never freed", "granted to anybody", "no block reserved", "nobody looks"],
)
def test_a_bug_is_found_its_seed_replays_and_its_plan_is_shrunk(patch: Any, broken: str) -> None:
    seed, found = first_that_fails(patch)
    assert re.search(broken, found)
    with virtual_time(), patch:
        assert run(draw(seed))[1] == found
        plan = shrunk(draw(seed), lambda smaller: bool(re.search(broken, run(smaller)[1])))
        assert re.search(broken, run(plan)[1])
    assert len(plan.visits) <= 6


def calls(seed: int) -> list[list[str]]:
    """Random requests of three clients about one key, as they are on the wire but with the scripts' texts."""
    rng = random.Random(seed)
    names = ["4", "k", fence_key("k"), companion("queue", "k"), companion("sessions", "k")]
    owners = [f"{session:023x}-{number:012x}" for session in range(3) for number in range(2)]
    found = []
    for _ in range(150):
        owner, kind = rng.choice(owners), rng.randrange(6)
        common = [*names, owner, "60000", rng.choice(("1", "3")), "3000", "PUBLISH", "asyncdlock:"]
        beside = [*names, owner, "60000", "1 0", "3000", "PUBLISH", "asyncdlock:"]
        found.append(
            [
                ["EVAL", SCRIPTS.acquire.source, *common, rng.choice(("-1", "0"))],
                ["EVAL", SCRIPTS.acquire_shared.source, *beside, "-1"],
                ["EVAL", SCRIPTS.watch.source, *common, "NUMSUB"],
                ["EVAL", SCRIPTS.release.source, *common],
                ["EVAL", requests.RENEW.source, "1", "k", owner, "60000"],
                ["EVAL", SCRIPTS.force_release.source, *common, str(rng.randrange(20)), owner],
            ][kind]
        )
    return found


def alike(one: Any, other: Any) -> bool:
    """Equal, but for times: they were asked one after the other."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, int) and isinstance(other, int) and one > 50_000:
        return abs(one - other) < 30_000
    return bool(one == other)


async def test_the_server_in_memory_answers_as_a_real_one() -> None:
    fake, reader = FakeRedis(), hiredis.Reader()
    async with redis() as node:
        for number, words in enumerate(calls(1)):
            reader.feed(fake.execute([word.encode() for word in words]))
            answer = reader.gets()
            real = await node.command(*words)
            mine = answer if not isinstance(answer, bytes) else answer.decode()
            assert alike(_decoded(mine), real), (number, words[2:], mine, real)


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_decoded(one) for one in value] if isinstance(value, list) else value
