"""`gen` fills a server with the locks of a seed, and says in one sentence when it cannot."""

import argparse
import json

import pytest

import asyncdlock
from harness import servers
from harness.cli.gen import add_arguments, run
from harness.config import UsageError
from harness.lab.scale.fill import Keys, fill
from harness.lab.scale.pipe import open_pipe


def test_a_seed_names_its_keys_once_and_always_the_same() -> None:
    numbers = Keys(7).numbers(0, 50_000)
    assert len(set(numbers)) == 50_000
    assert Keys(7).numbers(100, 110) == numbers[100:110]
    assert Keys(8).numbers(0, 10) != numbers[:10]


async def test_a_filled_server_looks_as_if_the_locks_had_been_acquired(
    redis_server: servers.RedisNode,
) -> None:
    seen: list[int] = []
    filled = await fill(redis_server.url, 2345, seed=3, ttl=60.0, progress=seen.append)
    assert (filled.keys, filled.new, sum(seen)) == (2345, 2345, 2345)
    assert await redis_server.command("DBSIZE") == 2 * 2345, "a lock and a fence each, and nothing else"
    key = Keys(3).key(2344)
    assert 0 < await redis_server.command("PTTL", key) <= 60_000
    assert await redis_server.command("GET", f"fence:{{{key}}}") == "1"
    assert await redis_server.command("TTL", f"fence:{{{key}}}") == -1
    async with asyncdlock.connect(redis_server.url) as locks:
        assert await locks.try_acquire(key) is None, "the library sees it held"
        await redis_server.command("DEL", key)
        handle = await locks.try_acquire(key)
        assert handle is not None
        assert handle.fence == 2, "and goes on counting where it left off"
        await handle.release()


async def test_what_is_locked_already_stays_as_it_is(redis_server: servers.RedisNode) -> None:
    await redis_server.command("SET", Keys(1).key(5), "somebody")
    filled = await fill(redis_server.url, 1000, seed=1, fences=False)
    assert filled.new == 999
    assert await redis_server.command("GET", Keys(1).key(5)) == "somebody"
    assert (await fill(redis_server.url, 1000, seed=1, fences=False)).new == 0


async def test_it_keeps_up_with_ready_made_commands(redis_server: servers.RedisNode) -> None:
    """A share, not a rate. A quarter: the machine may be busy with something else meanwhile."""
    assert (await fill(redis_server.url, 50_000)).share_of_limit > 0.25


async def test_a_server_that_refuses_is_told_in_a_sentence_and_does_not_hang() -> None:
    async with servers.redis(config={"maxmemory": "3mb", "maxmemory-policy": "noeviction"}) as node:
        with pytest.raises(UsageError, match="OOM"):
            await fill(node.url, 500_000)


async def test_passwords_are_used_and_their_absence_is_told() -> None:
    async with servers.redis(password="secret") as node:
        assert (await fill(node.url, 10)).new == 10
        with pytest.raises(UsageError, match="refused"):
            await fill(f"redis://{node.address}/0", 10)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://127.0.0.1:1/0", "cannot reach"),
        ("etcd://127.0.0.1", "gen fills"),
        ("redis://[::1", "bad host or port"),
        ("redis://127.0.0.1:99999", "bad host or port"),
    ],
)
async def test_no_such_server_is_told_in_a_sentence(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        async with open_pipe(url):
            pass


async def test_the_command_starts_a_server_if_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert await run(parser.parse_args(["--keys", "1500", "--ttl", "1m", "--json"])) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["new"] == 1500
