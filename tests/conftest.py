"""Fixtures for every test: real servers, two event loops, and no task left behind.

Event loops. Async tests under tests/{core,contract,cancellation,kinds,load,history,live,report} run twice: on
uvloop, and on plain asyncio in debug mode; behind PgBouncer, and all others, on uvloop alone. `--loop
uvloop|asyncio-debug|both` decides for all tests alike. With ASYNCDLOCK_TASKS=eager every task runs at once
until its first wait, as programs on Python 3.12 and later may have it (`asyncio.eager_task_factory`).

Servers. `redis_url` and its siblings are shared by the whole session: use keys of your own.
`redis_server` and its siblings are one test's own: kill, freeze and restart them. Whatever else a test
needs it starts itself, `async with servers.redis(...)`. A test whose server is not installed is
skipped, and the reason says how to get it; the end of the run sums that up (tests/untested.py). With
ASYNCDLOCK_REQUIRE_SERVERS=1 it fails instead.
"""

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
import uvloop
from hypothesis import settings

# As `python -m harness` does, and before anything imports gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Every server of a test is on this machine: a proxy that the user's environment names cannot reach it.
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost,::1"

from harness import servers
from harness.servers.catalogue import INSTALLATIONS, LockServer
from tests.untested import pytest_terminal_summary as pytest_terminal_summary

S = TypeVar("S")

# How long an example takes says something about the machine, not about the code.
settings.register_profile("asyncdlock", deadline=None)
settings.load_profile("asyncdlock")

_HERE = Path(__file__).parent


# Event loops

_ON_BOTH_LOOPS = {"core", "contract", "cancellation", "kinds", "load", "history", "live", "report"}


class DebugEventLoop(asyncio.SelectorEventLoop):
    """Plain asyncio whose debug mode stays on: pytest-asyncio's runner would switch it off again."""

    def set_debug(self, enabled: bool) -> None:
        super().set_debug(True)


EAGER_TASKS = sys.version_info >= (3, 12)


def eager_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    /,
    **options: Any,
) -> "asyncio.Task[Any]":
    """What `asyncio.eager_task_factory` does; uvloop calls that one in a way that Python 3.13.0 refuses."""
    make: Any = asyncio.Task
    task: asyncio.Task[Any] = make(coroutine, loop=loop, **{**options, "eager_start": True})
    return task


def _eager_if_asked(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> Callable[[], asyncio.AbstractEventLoop]:
    tasks = os.environ.get("ASYNCDLOCK_TASKS", "")
    if not tasks:
        return factory
    if tasks != "eager" or not EAGER_TASKS:
        raise pytest.UsageError(f"ASYNCDLOCK_TASKS={tasks}: only 'eager' is known, from Python 3.12 on")

    def eager() -> asyncio.AbstractEventLoop:
        loop = factory()
        loop.set_task_factory(eager_task)
        return loop

    return eager


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": _eager_if_asked(uvloop.new_event_loop),
    "asyncio-debug": _eager_if_asked(DebugEventLoop),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loop",
        choices=[*LOOPS, "both"],
        help="run all async tests on this event loop (default: both where it matters)",
    )


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    folder = item.path.relative_to(_HERE).parts[0]
    choice = config.getoption("--loop") or ("both" if folder in _ON_BOTH_LOOPS else "uvloop")
    return LOOPS if choice == "both" else {choice: LOOPS[choice]}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """PgBouncer is one more server for the client of `postgres`, which meets both event loops without it."""
    if config.getoption("--loop"):
        return
    kept: list[pytest.Item] = []
    spared: list[pytest.Item] = []
    for item in items:
        twice = "asyncio-debug" in item.name and "pgbouncer" in item.name
        (spared if twice else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=spared)


@pytest.fixture(autouse=True)
def _no_task_left_behind(request: pytest.FixtureRequest) -> None:
    if pytest_asyncio.is_async_test(request.node):
        request.getfixturevalue("no_task_left_behind")


@pytest.fixture
async def no_task_left_behind() -> AsyncIterator[None]:
    """Every task that an async test started has ended when the test and its fixtures have.

    Requested for each of them, before any other fixture, so that it looks last.
    """
    before = asyncio.all_tasks()
    yield

    def left() -> set[asyncio.Task[object]]:
        return asyncio.all_tasks() - before - {asyncio.current_task()}

    for _ in range(10):  # a task that is already ending may need a few more turns of the loop
        if not left():
            return
        await asyncio.sleep(0)
    assert not left(), "tasks were left behind"


# Servers


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    with _missing_server_skips():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    with _missing_server_skips():
        return (yield)


@contextmanager
def _missing_server_skips() -> Iterator[None]:
    try:
        yield
    except servers.ServerMissing as missing:
        if os.environ.get("ASYNCDLOCK_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(str(missing))


@contextmanager
def _started(server: AbstractAsyncContextManager[S]) -> Iterator[S]:
    """Run a server from a fixture that is not async, so that it may outlive any test's event loop."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        node = runner.run(server.__aenter__())
        try:
            yield node
        finally:
            runner.run(server.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def installed() -> Iterator[Callable[[str], LockServer]]:
    """Installations of the catalogue by name, each started once for the session: use keys of your own."""
    with ExitStack() as stack:

        @functools.cache
        def start(name: str) -> LockServer:
            return stack.enter_context(_started(INSTALLATIONS[name].start(tuned=True)))

        yield start


@pytest.fixture(scope="session")
def redis_url(installed: Callable[[str], LockServer]) -> str:
    """The URL of the session's Redis: use keys of your own."""
    return installed("redis").url


@pytest.fixture
def redis_server() -> Iterator[servers.RedisNode]:
    """A Redis of this test's own, to kill, freeze and restart."""
    with _started(servers.redis()) as node:
        yield node


@pytest.fixture(scope="session")
def redlock_url(installed: Callable[[str], LockServer]) -> str:
    """Five independent Redis nodes for the session: use keys of your own."""
    return installed("redlock").url


@pytest.fixture(scope="session")
def redis_cluster_url(installed: Callable[[str], LockServer]) -> str:
    """A Redis Cluster of three shards for the session: use keys of your own."""
    return installed("cluster").url


@pytest.fixture(scope="session")
def redis_sentinel_url(installed: Callable[[str], LockServer]) -> str:
    """A Redis primary behind three sentinels for the session: use keys of your own."""
    return installed("sentinel").url


@pytest.fixture(scope="session")
def shared_etcd() -> Iterator[servers.EtcdCluster]:
    """One etcd member for the session, tuned for leases of one second."""
    with _started(servers.etcd(heartbeat_ms=50, election_ms=500)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def etcd_url(shared_etcd: servers.EtcdCluster) -> str:
    """The URL of the session's etcd: use keys of your own."""
    return shared_etcd.url


@pytest.fixture
def etcd_server() -> Iterator[servers.EtcdCluster]:
    """A single etcd member of this test's own."""
    with _started(servers.etcd(heartbeat_ms=50, election_ms=500)) as cluster:
        yield cluster


@pytest.fixture
def etcd_cluster() -> Iterator[servers.EtcdCluster]:
    """Three members of this test's own, the system's: the wheel's must not be killed and trusted."""
    with _started(servers.etcd(3, flavour="system")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shared_zookeeper() -> Iterator[servers.ZooKeeperEnsemble]:
    """One ZooKeeper for the session."""
    with _started(servers.zookeeper()) as ensemble:
        yield ensemble


@pytest.fixture(scope="session")
def zookeeper_url(shared_zookeeper: servers.ZooKeeperEnsemble) -> str:
    """The URL of the session's ZooKeeper: use keys of your own."""
    return shared_zookeeper.url


@pytest.fixture
def zookeeper_server() -> Iterator[servers.ZooKeeperEnsemble]:
    """A single ZooKeeper of this test's own."""
    with _started(servers.zookeeper()) as ensemble:
        yield ensemble


@pytest.fixture
def zookeeper_ensemble() -> Iterator[servers.ZooKeeperEnsemble]:
    """Three ZooKeepers of this test's own."""
    with _started(servers.zookeeper(3)) as ensemble:
        yield ensemble
