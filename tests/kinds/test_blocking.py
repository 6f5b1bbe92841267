"""asyncdlock.blocking: the same promises for plain threads."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import asyncdlock
from asyncdlock import blocking
from tests.contract.cases import Case, backends
from tests.contract.fixtures import PATIENCE

Open = Callable[..., blocking.BlockingClient]


@pytest.fixture
def open_client(case: Case, url: str) -> Iterator[Open]:
    clients: list[blocking.BlockingClient] = []

    def opened(**options: Any) -> blocking.BlockingClient:
        clients.append(blocking.connect(url, **{**case.options, **options}))
        return clients[-1]

    yield opened
    for client in clients:
        client.close()


@pytest.fixture
def client(open_client: Open) -> blocking.BlockingClient:
    return open_client()


@pytest.fixture
def other(case: Case, open_client: Open, client: blocking.BlockingClient) -> blocking.BlockingClient:
    """Another process, as the server sees it."""
    return client if case.name == "memory" else open_client()


@pytest.fixture
def lease(case: Case, client: blocking.BlockingClient) -> float:
    can = client.capabilities
    shortest = max(can.min_ttl, case.ttl)
    return max(shortest, can.ttl_step)


def take_away(client: blocking.BlockingClient, handle: blocking.BlockingHandle) -> None:
    """The server forgets the lock while the handle believes to hold it."""
    inside = client._inside
    assert inside.call(inside.client._backend.release(handle._handle._holding.grant.claim))


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)


def test_a_callback_in_the_clients_own_thread_cannot_wait_for_itself(
    open_client: Open, key: str, lease: float
) -> None:
    """It would hang, and with it every renewal of the client and all of its callers."""
    told: list[BaseException] = []
    done = threading.Event()

    def lost(error: asyncdlock.LockLost) -> None:
        for call in (
            lambda: client.inspect(key),
            lambda: client.try_acquire(key),
            kept.release,
            client.close,
        ):
            try:
                call()
            except asyncdlock.LockError as refused:
                told.append(refused)
        done.set()

    client = open_client(on_lost=lost)
    kept = client.acquire(f"{key}-0", ttl=lease)
    take_away(client, client.acquire(key, ttl=lease))
    assert done.wait(PATIENCE)
    assert len(told) == 3
    assert all("would wait for itself" in str(error) for error in told)
    eventually(lambda: not kept.held)  # it was closed


def test_a_lock_is_held_renewed_and_given_back(
    client: blocking.BlockingClient, other: blocking.BlockingClient, key: str, lease: float
) -> None:
    with client.hold(key, ttl=lease, timeout=30.0) as handle:
        assert (handle.key, handle.ttl) == (key, lease)
        assert handle.held
        time.sleep(2.5 * lease)
        handle.check()
        assert 0.0 < handle.remaining() <= lease
        assert time.monotonic() < handle.expires_at
        assert abs(time.time() - handle.acquired_at) < PATIENCE
        assert key in repr(handle)
        handle.renew()
        assert other.try_acquire(key) is None
        with pytest.raises(asyncdlock.AcquireTimeout):
            other.acquire(key, timeout=0.05)
    with pytest.raises(asyncdlock.LockLost, match="was released"):
        handle.check()
    taken = other.try_acquire(key)
    assert taken is not None
    assert taken.fence > handle.fence
    assert taken.owner != handle.owner
    assert taken.release() is True
    assert taken.release() is False


def test_many_threads_exclude_each_other(
    client: blocking.BlockingClient, other: blocking.BlockingClient, key: str
) -> None:
    counter = [0]
    fences: list[int] = []

    def count(which: blocking.BlockingClient) -> None:
        for _ in range(5):
            with which.hold(key, timeout=120.0) as handle:
                seen = counter[0]
                time.sleep(0.0005)
                counter[0] = seen + 1
                fences.append(handle.fence)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(count, client if number % 2 else other) for number in range(8)]:
            done.result(timeout=120.0)
    assert counter == [40]
    assert fences == sorted(set(fences))


def test_a_loss_is_told_by_check_by_wait_lost_and_at_the_exit(
    client: blocking.BlockingClient, key: str, lease: float
) -> None:
    with pytest.raises(asyncdlock.LockLost) as caught:
        with client.hold(key, ttl=lease) as handle:
            with ThreadPoolExecutor(1) as pool:
                told = pool.submit(handle.wait_lost)
                take_away(client, handle)
                assert told.result(timeout=PATIENCE) is True
            with pytest.raises(asyncdlock.LockLost, match="owned by another or expired"):
                handle.check()
            assert handle.remaining() == 0.0
    assert (caught.value.key, caught.value.fence, caught.value.owner) == (key, handle.fence, handle.owner)


def test_a_lease_that_nobody_renews_ends(client: blocking.BlockingClient, key: str, lease: float) -> None:
    handle = client.acquire(key, ttl=lease, renew=False)
    with pytest.raises(TimeoutError):
        handle.wait_lost(timeout=0.01)
    time.sleep(lease)
    with pytest.raises(asyncdlock.LockLost, match="ran out"):
        handle.check()
    with pytest.raises(asyncdlock.LockLost):
        handle.renew()
    with pytest.raises(ValueError, match="mine"):
        with client.hold(key, ttl=lease, timeout=30.0) as again:
            take_away(client, again)
            raise ValueError("mine")


def test_the_same_errors(client: blocking.BlockingClient, key: str) -> None:
    with pytest.raises(asyncdlock.InvalidKey):
        client.acquire("")
    with pytest.raises(ValueError, match="ttl"):
        client.try_acquire(key, ttl=-1.0)
    with pytest.raises(ValueError, match="unknown lock URL"):
        blocking.connect("nowhere://")
    if client.capabilities.fence_floor:
        client.raise_fence(key, above=10_000)
        with client.hold(key) as handle:
            assert handle.fence > 10_000
    else:
        with pytest.raises(asyncdlock.LockError, match="cannot be raised"):
            client.raise_fence(key, above=10_000)


def test_closing_gives_back_and_ends_every_wait(
    case: Case, open_client: Open, client: blocking.BlockingClient, key: str
) -> None:
    closing = open_client()
    held = closing.acquire(key)
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(closing.acquire, key) for _ in range(2)]
        eventually(lambda: len(closing._inside.client._callers.inside) == 2)
        closing.close()
        for wait in waits:
            with pytest.raises(asyncdlock.LockError, match="closed"):
                wait.result(timeout=PATIENCE)
    assert not held.held
    with pytest.raises(asyncdlock.LockLost, match="its client was closed"):
        held.check()
    with pytest.raises(asyncdlock.LockError, match="closed"):
        closing.acquire(key)
    closing.close()
    if case.name != "memory":  # its locks belong to one event loop
        with client.hold(key, timeout=30.0) as handle:
            assert handle.fence > held.fence
    never_used = open_client()
    never_used.close()
    with pytest.raises(asyncdlock.LockError, match="closed"):
        never_used.acquire(key)


# An interruption may come between the making of a coroutine and its sending: Python says so.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning"
)
def test_an_interrupted_wait_leaves_nothing(
    client: blocking.BlockingClient, other: blocking.BlockingClient, key: str
) -> None:
    """As Ctrl-C does, at many moments of an acquire: also when the lock has just been granted."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with other.hold(key):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                client.acquire(key)
        for moment in range(1, 40):
            handle = None
            try:
                signal.setitimer(signal.ITIMER_REAL, moment * 0.0001)
                handle = client.acquire(key, timeout=60.0)
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except KeyboardInterrupt:
                pass
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            if handle is not None:
                handle.release()
            with other.hold(key, ttl=60.0, timeout=8.0):  # less than the 10 s of a lease that was left behind
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_locked_runs_plain_functions_under_the_lock(client: blocking.BlockingClient, key: str) -> None:
    @client.locked(f"{key}:{{account_id}}", timeout=30.0)
    def pay(account_id: int, *, handle: blocking.BlockingHandle | None = None) -> str:
        assert handle is not None
        handle.check()
        return handle.key

    assert pay(7) == f"{key}:7"
    with pytest.raises(ValueError, match="is no parameter"):
        client.locked("{nobody}")(pay)

    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="asyncio client"):
        client.locked(key)(coroutine)


def test_readers_share_a_lock_and_exclude_a_writer(
    client: blocking.BlockingClient, other: blocking.BlockingClient, key: str
) -> None:
    if not client.capabilities.shared:
        with pytest.raises(asyncdlock.LockError, match="has no shared locks"):
            client.acquire(key, shared=True)
        return
    with client.hold(key, shared=True, label="first", timeout=30.0) as first:
        assert (first.shared, first.label) == (True, "first")
        second = other.try_acquire(key, shared=True)
        assert second is not None
        with ThreadPoolExecutor(1) as elsewhere:
            assert elsewhere.submit(other.try_acquire, key).result() is None
        for wanted in (client.acquire, client.try_acquire, lambda key: client.hold_all([key]).__enter__()):
            with pytest.raises(asyncdlock.LockError, match="cannot be upgraded"):
                wanted(key)
        assert second.release()
    with other.hold(key, timeout=30.0) as writer:
        assert not writer.shared
        assert writer.fence > first.fence


def test_a_semaphore_admits_as_many_threads_as_it_has_permits(
    client: blocking.BlockingClient, other: blocking.BlockingClient, key: str
) -> None:
    if not client.capabilities.semaphore:
        with pytest.raises(asyncdlock.LockError, match="has no semaphores"):
            client.semaphore(key, permits=2)
        return
    here, there = client.semaphore(key, permits=2), other.semaphore(key, permits=2)
    with here.hold(timeout=30.0) as first, there.hold(timeout=30.0) as second:
        assert first.fence != second.fence
        assert here.try_acquire() is None
        with pytest.raises(asyncdlock.AcquireTimeout):
            there.acquire(timeout=0.05)
    again = here.try_acquire()
    assert again is not None
    assert again.release()
    with pytest.raises(ValueError, match="permits"):
        client.semaphore(key, permits=0)


def test_hold_all_takes_all_or_none(
    client: blocking.BlockingClient, other: blocking.BlockingClient, key: str, lease: float
) -> None:
    first, second = f"{key}-a", f"{key}-b"
    with other.hold(second, timeout=30.0):
        with pytest.raises(asyncdlock.AcquireTimeout, match="one of 2") as late:
            with client.hold_all([second, first], timeout=0.1):
                raise AssertionError("the body must not run")
        assert late.value.key == second
    with client.hold_all([second, first], timeout=30.0) as handles:
        assert list(handles) == [first, second]
        assert other.try_acquire(first) is None
        assert other.try_acquire(second) is None
    with other.hold(first, timeout=30.0), other.hold(second, timeout=30.0):
        pass
    with pytest.raises(asyncdlock.LockLost) as lost:
        with client.hold_all([first, second], ttl=lease, timeout=30.0) as handles:
            take_away(client, handles[first])
            assert handles[first].wait_lost(PATIENCE) is True
    assert lost.value.key == first
    with other.hold(second, timeout=30.0):  # given back all the same
        pass
    with pytest.raises(ValueError, match="at least one key"):
        client.hold_all([]).__enter__()


def test_a_lock_is_inspected_and_taken_back(
    client: blocking.BlockingClient, other: blocking.BlockingClient, key: str
) -> None:
    if not client.capabilities.inspection:
        with pytest.raises(asyncdlock.LockError, match="cannot tell"):
            client.inspect(key)
        return
    handle = client.acquire(key, label="importer")
    found = other.inspect(key)
    assert (found.key, found.held, found.label) == (key, True, "importer")
    assert other.keys().count(key) == 1
    assert other.force_release(key) is True
    with other.hold(key, timeout=30.0) as next_one:
        assert next_one.fence > handle.fence
    with pytest.raises(asyncdlock.LockLost):
        handle.renew()


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


_EXITING = """
import asyncdlock, contextlib, sys, threading, time
url, key, way = sys.argv[1:]
locks = asyncdlock.blocking.connect(url)
handle = locks.acquire(key, ttl=60.0)

def wait():
    with contextlib.suppress(asyncdlock.LockError):
        locks.acquire(key)

if way == "waiting":
    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.2)
elif way == "error":
    raise SystemExit("on purpose")
elif way == "dropped":
    del locks, handle
"""


@pytest.mark.parametrize("way", ["held", "waiting", "error", "dropped"])
def test_the_interpreter_exits_at_once_and_gives_back_what_is_held(
    url: str, client: blocking.BlockingClient, key: str, way: str
) -> None:
    done = run(_EXITING, url, key, way)
    assert done.returncode == (1 if way == "error" else 0), done.stderr
    assert "Traceback" not in done.stderr
    if not url.startswith("memory"):
        with client.hold(key, timeout=30.0):  # long before its TTL of 60 s
            pass


_FORKING = """
import asyncdlock, os, sys, time
url, key = sys.argv[1:]
locks = asyncdlock.blocking.connect(url)
handle = locks.acquire(key, ttl=2.0)

def outcome(call, *args):
    try:
        return call(*args)
    except asyncdlock.LockError as error:
        return error

child = os.fork()
if child == 0:
    print(outcome(handle.check), outcome(handle.release), outcome(locks.try_acquire, key), sep="\\n")
    own = outcome(locks.acquire, key + "-own")
    print(own if isinstance(own, Exception) else own.key)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
time.sleep(4.0)
handle.check()
assert handle.release()
"""


@backends(that=lambda can: can.interprocess)
def test_a_forked_child_starts_anew_and_its_parent_is_not_disturbed(url: str, key: str) -> None:
    done = run(_FORKING, url, key)
    assert done.returncode == 0, done.stderr
    checked, released, tried, acquired = done.stdout.splitlines()
    assert checked.endswith("it is held by the process that this one was forked from")
    assert released == "this client belongs to another process; connect() after fork"
    assert (tried, acquired) == ("None", f"{key}-own")


def test_a_client_that_is_dropped_ends_its_thread(redis_url: str, key: str) -> None:
    before = set(threading.enumerate())
    locks = blocking.connect(redis_url)
    assert set(threading.enumerate()) == before, "nothing starts before the first use"
    with locks, locks.hold(key):
        assert set(threading.enumerate()) - before
    assert set(threading.enumerate()) == before
    again = blocking.connect(redis_url)
    again.acquire(key).release()
    del again
    eventually(lambda: set(threading.enumerate()) == before)
