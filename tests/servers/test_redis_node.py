"""One Redis server: starts, answers, survives its faults, and leaves nothing behind."""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from harness import servers
from harness.servers import binaries, redis_node
from harness.servers.ports import free_port
from harness.servers.server import Server
from harness.servers.tls import Tls


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("flavour", ["redis", "valkey"])
async def test_answers_once_started_and_is_gone_afterwards(flavour: redis_node.Flavour) -> None:
    async with servers.redis(flavour=flavour) as node:
        assert await node.command("SET", "a", "1")
        pid, folder = node.pid, node.folder
    assert not is_alive(pid)
    assert not folder.exists()


async def test_kill_loses_what_is_only_in_memory_and_start_brings_the_same_port_back(
    redis_server: servers.RedisNode,
) -> None:
    url, pid = redis_server.url, redis_server.pid
    await redis_server.command("SET", "a", "1")
    redis_server.kill()
    assert not redis_server.running
    await redis_server.start()
    assert redis_server.url == url
    assert redis_server.pid != pid
    assert await redis_server.command("GET", "a") is None


async def test_persistent_data_survive_kill_but_not_a_wipe() -> None:
    async with servers.redis(persistent=True) as node:
        await node.command("SET", "a", "1")
        node.kill()
        await node.start()
        assert await node.command("GET", "a") == "1"
        await node.restart(wipe=True)
        assert await node.command("GET", "a") is None


async def test_a_paused_server_is_silent_until_resumed(redis_server: servers.RedisNode) -> None:
    redis_server.pause()
    question = asyncio.create_task(redis_server.command("PING"))
    _, silent = await asyncio.wait([question], timeout=0.2)
    assert silent
    redis_server.resume()
    assert await question


async def test_a_paused_server_can_be_stopped(redis_server: servers.RedisNode) -> None:
    redis_server.pause()
    await redis_server.stop()
    assert not redis_server.running


async def test_a_bad_setting_fails_with_the_end_of_the_log() -> None:
    with pytest.raises(servers.ServerFailed, match="nonsense"):
        async with servers.redis(config={"nonsense": "1"}):
            pass


async def test_a_taken_port_is_answered_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers.redis() as first:
        ports = iter([first.port])
        monkeypatch.setattr(redis_node, "free_port", lambda: next(ports, None) or free_port())
        async with servers.redis() as second:
            assert second.port != first.port
            assert await second.command("PING")


async def test_a_cancelled_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[servers.RedisNode] = []

    async def never(self: servers.RedisNode) -> bool:
        started.append(self)
        return False

    monkeypatch.setattr(servers.RedisNode, "_answers", never)
    manager = servers.redis()
    start = asyncio.create_task(manager.__aenter__())
    while not started:
        await asyncio.sleep(0.01)
    pid = started[0].pid
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not is_alive(pid)
    assert not started[0].folder.exists()


def test_the_environment_variable_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "my-redis"
    program.touch(mode=0o755)
    monkeypatch.setenv("ASYNCDLOCK_REDIS_SERVER", str(program))
    assert redis_node.find_binary() == program
    program.unlink()
    with pytest.raises(servers.ServerMissing, match="ASYNCDLOCK_REDIS_SERVER"):
        redis_node.find_binary()


def test_without_a_redis_on_path_the_wheels_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASYNCDLOCK_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    assert redis_node.find_binary().name == "valkey-server"


def test_a_missing_server_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(servers.ServerMissing, match="apt-get install redis-server"):
        redis_node.find_binary("redis")


def test_a_server_belongs_to_no_event_loop() -> None:
    async def begin() -> Server:
        node = servers.RedisNode()
        await node.start()
        return node

    node = asyncio.run(begin())
    try:
        asyncio.run(node.restart())
    finally:
        node.close()


@pytest.mark.parametrize("tls", ["server", "mutual"])
async def test_tls_is_asked_for(tls: Tls) -> None:
    async with servers.redis(tls=tls, password="p") as node:
        assert node.url.startswith("rediss://")
        assert await node.command("PING")
        plain = Redis.from_url(f"redis://:p@{node.address}/0", retry=Retry(NoBackoff(), 0))
        without_certificate = Redis.from_url(node.url.partition("&")[0], retry=Retry(NoBackoff(), 0))
        async with plain, without_certificate:
            with pytest.raises(RedisConnectionError):
                await plain.get("a")
            if tls == "mutual":
                with pytest.raises(RedisConnectionError):
                    await without_certificate.get("a")
            else:
                await without_certificate.get("a")


async def test_the_unix_socket_and_acl_users_work() -> None:
    async with servers.redis(password='p"w @/\\', users={"worker": "p:w"}) as node:
        socket = Redis.from_url(node.unix_url, decode_responses=True)
        worker = Redis.from_url(node.url_for("worker"), decode_responses=True)
        async with socket, worker:
            assert await socket.acl_whoami() == "default"
            assert await worker.acl_whoami() == "worker"


async def test_it_starts_in_a_folder_whose_path_is_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (far := tmp_path / ("far" * 40)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    async with servers.redis() as node:
        assert node.folder.is_relative_to(far)
        assert await node.command("PING")


async def test_valkey_lives_by_the_clock_that_libfaketime_gives_it() -> None:
    """A server whose clock runs ten times too fast expires its keys ten times too early."""
    library = binaries.in_wheel("libfaketime", "**/libfaketime.so*")
    if library is None:
        raise servers.ServerMissing("No libfaketime found: pip install 'asyncdlock[clock]' brings it.")
    clock = {"LD_PRELOAD": str(library), "FAKETIME": "+0 x10"}
    async with servers.redis(flavour="valkey", environment=clock) as node:
        before, started = await node.command("TIME"), time.monotonic()
        await asyncio.sleep(0.3)
        after, elapsed = await node.command("TIME"), time.monotonic() - started
        assert float(after[0]) - float(before[0]) > 2 * elapsed
