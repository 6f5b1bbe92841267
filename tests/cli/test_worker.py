"""`python -m harness worker`: one process that says what it does before it goes on."""

import asyncio
import json
import signal
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from harness.resource.process import ResourceProcess, spawn
from tests.cli.program import Program, harness, started


def events(program: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in program.out]


def names(program: Program) -> list[str]:
    return [event["event"] for event in events(program)]


def worker(url: str, resource: ResourceProcess, key: str, *more: str) -> tuple[str, ...]:
    return ("worker", "--url", url, "--resource-url", resource.url, "--key", key, *more)


async def test_a_worker_acquires_writes_and_releases_as_often_as_it_is_told(redis_url: str) -> None:
    async with spawn() as resource, aiohttp.ClientSession() as session:
        key = uuid4().hex
        program = await harness(*worker(redis_url, resource, key, "--count", "2", "--body", "hello"))
        async with session.get(f"{resource.url}/r/{key}") as reply:
            assert await reply.text() == "hello"
    assert program.code == 0
    turn = ["acquiring", "granted", "writing", "accepted", "released"]
    assert names(program) == ["started", *turn, *turn]
    first, second = (event["fence"] for event in events(program) if event["event"] == "granted")
    assert second > first


async def test_a_worker_that_pauses_past_its_ttl_is_displaced_and_refused(redis_url: str) -> None:
    """The mandatory experiment with two real processes: the pause stops the whole worker."""
    async with spawn() as resource:
        key = uuid4().hex
        async with started(*worker(redis_url, resource, key, "--ttl", "500ms", "--pause", "8s")) as frozen:
            await frozen.line(lambda line: '"granted"' in line)
            other = await harness(*worker(redis_url, resource, key))
            assert "resumed" not in names(frozen), "said before it paused, and paused while the other worked"
            await frozen.ended()
    assert other.code == frozen.code == 0
    assert "accepted" in names(other)
    assert names(frozen)[-3:] == ["writing", "stale", "released"]
    refusal, release = events(frozen)[-2:]
    displaced_by = next(event["fence"] for event in events(other) if event["event"] == "granted")
    assert refusal["seen"] == displaced_by > refusal["fence"]
    assert release["owned"] is False


async def test_a_worker_frozen_from_outside_is_displaced_and_refused(redis_url: str) -> None:
    """SIGSTOP instead of a pause of its own choosing: the watchdog is frozen as well."""
    async with spawn() as resource:
        key = uuid4().hex
        words = worker(redis_url, resource, key, "--ttl", "500ms", "--work", "300ms")
        async with started(*words) as frozen:
            await frozen.line(lambda line: '"granted"' in line)
            frozen.child.send_signal(signal.SIGSTOP)
            other = await harness(*worker(redis_url, resource, key))
            frozen.child.send_signal(signal.SIGCONT)
            await frozen.ended()
    assert "accepted" in names(other)
    assert "stale" in names(frozen)


async def test_a_worker_gives_the_lock_back_when_it_is_told_to_stop(redis_url: str) -> None:
    async with spawn() as resource:
        key = uuid4().hex
        async with started(*worker(redis_url, resource, key, "--ttl", "60s", "--work", "60s")) as program:
            await program.line(lambda line: '"granted"' in line)
            program.child.send_signal(signal.SIGTERM)
            await program.ended()
        assert program.code == 130
        assert names(program)[-1] == "interrupted"
        after = await harness(*worker(redis_url, resource, key, "--timeout", "20s"))
    assert after.code == 0


async def test_failures_are_events_and_not_tracebacks(redis_url: str) -> None:
    async with spawn() as resource:
        key = uuid4().hex
        unreachable = await harness(*worker("redis://127.0.0.1:1/0", resource, key))
        unfenced = await harness(*worker(redis_url, resource, key, "--fence", "off"))
    for program in (unreachable, unfenced):
        assert program.code == 3
        assert program.stderr == ""
        assert "failed" in names(program)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--url", "mysql://h", "--key", "k"), "must start with one of"),
        (("--url", "memory://", "--key", ""), "a key"),
    ],
)
async def test_what_no_worker_can_do_is_bad_usage(words: tuple[str, ...], complaint: str) -> None:
    program = await harness("worker", *words)
    assert program.code == 2
    assert complaint in program.stderr
    assert names(program) == ["started", "failed"]


async def test_metrics_of_a_worker(redis_url: str) -> None:
    async with spawn() as resource, aiohttp.ClientSession() as session:
        words = worker(redis_url, resource, uuid4().hex, "--metrics-port", "0", "--work", "5s")
        async with started(*words) as program:
            await program.line(lambda line: '"granted"' in line)
            async with session.get(events(program)[0]["metrics"]) as reply:
                exposition = await reply.text()
            program.interrupt()
            await asyncio.wait_for(program.ended(), 60)
    assert 'asyncdlock_acquired_total{backend="redis"} 1.0' in exposition
