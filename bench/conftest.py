"""The `measure` fixture: how many operations per second, and how ours compares."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

import asyncdlock
from harness import servers

Operation = Callable[[int], Awaitable[object]]


class Measure:
    """Runs an operation by many tasks for a while; keeps what it measured for the summary."""

    lines: list[str]

    def __init__(self) -> None:
        self.lines = []

    async def rate(self, name: str, operation: Operation, *, tasks: int, seconds: float = 1.0) -> float:
        """Operations per second of `operation(task number)`, repeated by `tasks` tasks."""
        await operation(0)  # opens connections, loads scripts
        done = 0
        began = time.perf_counter()
        end = began + seconds

        async def repeat(number: int) -> None:
            nonlocal done
            while time.perf_counter() < end:
                await operation(number)
                done += 1

        cpu = time.process_time()
        await asyncio.gather(*(repeat(number) for number in range(tasks)))
        took = time.perf_counter() - began
        per_operation = 1e6 * (time.process_time() - cpu) / done
        self.lines.append(f"{name}: {done / took:,.0f}/s, {per_operation:.1f} µs of CPU each")
        return done / took


_measure = Measure()


@pytest.fixture
def measure() -> Measure:
    return _measure


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Redis for the whole session."""
    loop = asyncio.new_event_loop()
    running = servers.redis()
    node = loop.run_until_complete(running.__aenter__())
    try:
        yield node.url
    finally:
        loop.run_until_complete(running.__aexit__(None, None, None))
        loop.close()


@pytest.fixture
def connect(redis_url: str) -> Callable[[str], asyncdlock.LockClient]:
    """A client by scheme and query, such as `redis-queue://?local_handoffs=0`."""

    def open_client(what: str) -> asyncdlock.LockClient:
        scheme, _, query = what.partition("://")
        return asyncdlock.connect(redis_url.replace("redis", scheme, 1) + query)

    return open_client


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _measure.lines:
        terminalreporter.section("measured")
        for line in _measure.lines:
            terminalreporter.write_line(line)
