"""pytest bench: one benchmark at a time; `--bench-json` keeps the table, `--bench-compare` reads it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import asyncdlock
from bench.measure import Measure, Measured, from_json, table, to_json
from bench.surroundings import describe, in_words
from harness import servers
from harness.servers.catalogue import INSTALLATIONS
from harness.servers.errors import ServerMissing

_MEASURE = pytest.StashKey[Measure]()
_BEFORE = pytest.StashKey[Mapping[str, Measured]]()
_WHERE = pytest.StashKey[Mapping[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("bench")
    group.addoption("--bench-rounds", type=int, default=5, help="rounds of a measurement (default 5)")
    group.addoption("--bench-seconds", type=float, default=0.3, help="seconds of a round (default 0.3)")
    group.addoption("--bench-json", type=Path, metavar="FILE", help="write every figure into this file")
    group.addoption(
        "--bench-compare", type=Path, metavar="FILE", help="show each result beside the one in this file"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Before xdist looks: two benchmarks at a time would measure each other."""
    config.option.numprocesses = 0


def pytest_configure(config: pytest.Config) -> None:
    options = config.option
    if options.bench_rounds < 1 or options.bench_seconds <= 0:
        raise pytest.UsageError("--bench-rounds and --bench-seconds must be positive")
    config.stash[_WHERE] = describe()
    config.stash[_MEASURE] = Measure(rounds=options.bench_rounds, seconds=options.bench_seconds)
    if options.bench_compare is not None:
        try:
            config.stash[_BEFORE] = from_json(json.loads(options.bench_compare.read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise pytest.UsageError(
                f"--bench-compare {options.bench_compare} holds no figures of --bench-json: {error}"
            ) from None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    results = config.stash[_MEASURE].results
    if not results:
        return
    terminalreporter.section("measured")
    terminalreporter.write_line(in_words(config.stash[_WHERE]).replace("**", ""))
    for line in table(results, config.stash.get(_BEFORE, {})):
        terminalreporter.write_line(line)
    if config.option.bench_json is not None:
        document = to_json(results, config.stash[_WHERE])
        config.option.bench_json.write_text(json.dumps(document, indent=1) + "\n")
        terminalreporter.write_line(f"written to {config.option.bench_json}")


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    return request.config.stash[_MEASURE]


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
async def locks(request: pytest.FixtureRequest) -> AsyncIterator[asyncdlock.LockClient]:
    """A client of the backend that the test names, on a real server of its own, which is missing or not."""
    backend: str = request.param
    if INSTALLATIONS[backend].build is None:
        async with asyncdlock.connect(f"{backend}://") as client:
            yield client
        return
    try:
        async with INSTALLATIONS[backend].start() as server, asyncdlock.connect(server.url) as client:
            yield client
    except ServerMissing as missing:
        pytest.skip(str(missing))
