"""Who holds a lock, who waits for it, and taking it back: on every backend, as far as it can know."""

import asyncio
import os
import socket
from typing import cast

import pytest

import asyncdlock
from asyncdlock._inside import backend_of
from tests.contract.cases import Case, backends
from tests.contract.fixtures import Connect, until

KNOWS_LEASES = ("memory", "redis", "redis-queue", "redlock", "etcd", "postgres", "pgbouncer")
KNOWS_TIMES = ("memory", "redis", "redis-queue", "redlock", "postgres", "pgbouncer")
KNOWS_WAITERS = ("memory", "redis-queue", "etcd", "zookeeper", "postgres", "pgbouncer")


async def test_a_free_lock_has_no_holder(locks: asyncdlock.LockClient, key: str) -> None:
    assert locks.capabilities.inspection
    assert await locks.inspect(key) == asyncdlock.LockInfo(key=key, held=False)
    async with locks.hold(key):
        pass
    assert await locks.inspect(key) == asyncdlock.LockInfo(key=key, held=False)


async def test_a_stranger_sees_the_holder(
    case: Case, locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    """By the label of its host and process, since when, for how long, and with which fence."""
    stranger = connect()
    label = f"{socket.gethostname()}:{os.getpid()}"
    async with locks.hold(key, ttl=30.0) as handle:

        async def named() -> bool:
            # Where the label goes to another server than the lock, or by another request, it may come later.
            return (await stranger.inspect(key)).label == label

        await until(named)
        info = await stranger.inspect(key)
        assert (info.key, info.held, info.owner) == (key, True, handle.owner)
        assert handle.label == label
        assert info.waiters == ()
        if case.name == "redlock":
            assert info.fence is None, "known once it was renewed"
        else:
            assert info.fence == handle.fence
            assert info.last_fence is not None
            assert info.last_fence >= handle.fence
        if case.name in KNOWS_LEASES:
            assert info.lease_left is not None
            assert 0.0 < info.lease_left <= 30.0
        else:
            assert info.lease_left is None
        if case.name in KNOWS_TIMES:
            assert info.since == pytest.approx(handle.acquired_at, abs=5.0)
        else:
            assert info.since is None


@backends(only=lambda case: case.name in KNOWS_TIMES)
async def test_a_renewed_lease_does_not_look_younger(
    locks: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    stranger = connect()
    async with locks.hold(key, ttl=ttl) as handle:
        end = handle.expires_at
        await until(lambda: handle.expires_at > end + 2 * ttl)  # renewed several times
        info = await stranger.inspect(key)
        assert info.since == pytest.approx(handle.acquired_at, abs=ttl)
        assert info.fence == handle.fence


class _OwnFloat(float):
    """As numpy's `float64`, which says more of itself than its digits."""

    def __repr__(self) -> str:
        return f"_OwnFloat({float(self)!r})"

    __str__ = __repr__


async def test_a_ttl_of_any_class_of_number_can_be_inspected(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    """What a client tells of itself is read by others, whose calls must not fail by it."""
    stranger = connect()
    async with locks.hold(key, ttl=_OwnFloat(30.0)) as handle:
        await handle.renew()
        info = await stranger.inspect(key)
        assert (info.held, info.owner) == (True, handle.owner)


async def test_labels_are_chosen_by_client_and_by_call(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    client = connect(label="nightly job ✓")
    for label, wanted in ((None, "nightly job ✓"), ("step 7: über", "step 7: über"), (None, "nightly job ✓")):
        async with client.hold(key, label=label) as handle:
            assert handle.label == wanted

            async def named(wanted: str = wanted) -> bool:
                return (await locks.inspect(key)).label == wanted

            await until(named)
    tried = await client.try_acquire(key, label="tried")
    assert tried is not None
    assert (await locks.inspect(key)).label == tried.label == "tried"
    await tried.release()
    for bad in ("", "two\nlines", "x" * 201):
        with pytest.raises(ValueError, match="label"):
            await client.acquire(key, label=bad)
        with pytest.raises(ValueError, match="label"):
            connect(label=bad)


async def test_waiters_are_seen_in_order(
    case: Case, locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    holder = await locks.acquire(key, ttl=30.0)
    clients = [connect(label=f"client {number}") for number in range(3)]
    waiting: list[asyncio.Task[asyncdlock.Handle]] = []
    for number, client in enumerate(clients, start=1):
        waiting.append(asyncio.create_task(client.acquire(key, ttl=30.0)))
        if case.name in KNOWS_WAITERS:

            async def joined(wanted: int = number) -> bool:
                return len((await locks.inspect(key)).waiters) == wanted

            await until(joined)
    info = await locks.inspect(key)
    if case.name in KNOWS_WAITERS:

        async def named() -> bool:
            seen = [waiter.label for waiter in (await locks.inspect(key)).waiters]
            return seen == ["client 0", "client 1", "client 2"]

        await until(named)
    else:
        assert info.waiters == ()
    await holder.release()
    if case.name in KNOWS_WAITERS:
        owners = [waiter.owner for waiter in info.waiters]
        for task, owner in zip(waiting, owners, strict=True):
            granted = await task
            assert granted.owner == owner
            await granted.release()
    else:
        for granting in asyncio.as_completed(waiting):
            await (await granting).release()


@backends(only=lambda case: case.name in KNOWS_WAITERS)
async def test_tasks_of_one_client_are_seen_by_it(locks: asyncdlock.LockClient, key: str) -> None:
    """Also those who wait in the process, behind one place on the server, and whoever it was passed on to."""
    first = await locks.acquire(key, ttl=30.0, label="first")
    waiting = []
    for number in range(3):
        waiting.append(asyncio.create_task(locks.acquire(key, ttl=30.0, label=f"next {number}")))

        async def joined(wanted: int = number + 1) -> bool:
            return len((await locks.inspect(key)).waiters) == wanted

        await until(joined)
    held = first
    for number in range(4):
        info = await locks.inspect(key)
        assert (info.owner, info.fence, info.label) == (held.owner, held.fence, held.label)
        assert [waiter.label for waiter in info.waiters] == [f"next {left}" for left in range(number, 3)]
        await held.release()
        if number < 3:
            held = await waiting[number]


async def test_forcing_wakes_the_next_and_its_fence_is_above(
    locks: asyncdlock.LockClient, connect: Connect, key: str, ttl: float
) -> None:
    """The holder notices at its next renewal, and what it releases touches nobody."""
    lost: list[asyncdlock.LockLost] = []
    former = connect(on_lost=lost.append)
    operator, other = locks, connect()
    before = await former.acquire(key, ttl=max(ttl, 2.0))
    reserved = (await operator.inspect(key)).last_fence
    waiting = asyncio.create_task(other.acquire(key, ttl=30.0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert await operator.force_release(key) is True
    after = await asyncio.wait_for(waiting, 60.0)
    assert after.fence > max(before.fence, reserved or 0)
    assert await asyncio.wait_for(before.wait_lost(), 60.0)
    assert not before.held
    assert [(error.key, error.owner, error.fence) for error in lost] == [(key, before.owner, before.fence)]
    assert await before.release() is False
    assert after.held
    assert (await operator.inspect(key)).owner == after.owner
    await after.renew()
    assert await after.release() is True


@backends(that=lambda can: can.shared)
async def test_readers_are_seen_beside_each_other_and_forced_out_together(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    readers = [
        await connect().acquire(key, ttl=30.0, shared=True, label=f"reader {number}") for number in range(3)
    ]
    writer = asyncio.create_task(connect(label="writer").acquire(key, ttl=30.0))

    async def complete() -> bool:
        info = await locks.inspect(key)
        together = {info.label, *(one.label for one in info.beside)}
        return together == {"reader 0", "reader 1", "reader 2"} and len(info.waiters) == 1

    await until(complete)
    assert await locks.force_release(key) is True
    after = await asyncio.wait_for(writer, 60.0)
    assert all(after.fence > reader.fence for reader in readers)
    assert [await reader.release() for reader in readers] == [False, False, False]
    assert (await locks.inspect(key)).owner == after.owner
    assert await after.release() is True
    async with locks.hold(key, ttl=30.0, shared=True) as reader:
        info = await locks.inspect(key)
        assert (info.owner, info.beside) == (reader.owner, ()), "nobody who was forced out comes back with it"


async def test_forcing_a_free_lock_is_none_of_its_holders_business(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    async with locks.hold(key) as before:
        pass
    assert await locks.force_release(key) is False
    async with connect().hold(key) as after:
        assert after.fence > before.fence


@backends(that=lambda can: can.fence_floor)
async def test_forcing_keeps_what_the_client_remembers(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    """Fences that were raised before stay below, whatever the backend counts by itself."""
    before = await locks.acquire(key, ttl=30.0)
    backend = backend_of(locks)
    assert await cast(asyncdlock.Inspectable, backend).force_release(key, before.fence + 1_000_000)
    async with connect().hold(key) as after:
        assert after.fence > before.fence + 1_000_000


async def test_forcing_by_the_holders_own_client(locks: asyncdlock.LockClient, key: str) -> None:
    """Nothing that was reserved for the holder is handed on, also to tasks that wait in the same process."""
    before = await locks.acquire(key, ttl=60.0)
    reserved = (await locks.inspect(key)).last_fence or before.fence
    waiting = asyncio.create_task(locks.acquire(key, ttl=60.0))
    await asyncio.sleep(0.05)
    assert await locks.force_release(key) is True
    after = await asyncio.wait_for(waiting, 15.0)  # before the renewal that would tell, too
    assert after.fence > reserved
    assert await before.release() is False
    assert (await locks.inspect(key)).owner == after.owner
    assert await after.release() is True


async def test_keys_lists_what_is_held_and_nothing_else(
    locks: asyncdlock.LockClient, connect: Connect, key: str
) -> None:
    async with locks.hold(f"{key}/gone"):
        pass
    client = connect()
    names = [f"{key}", f"{key}/below", f"{key}:ü", f"{key}{{tag}}:x", f"{{{key}}}", f"{key}}}odd{{"]
    handles = [await client.acquire(name, ttl=30.0) for name in names]
    listed = {name async for name in locks.keys() if key in name}  # noqa: SIM118
    assert listed == set(names)
    for handle in handles:
        await handle.release()


async def test_a_prefix_sets_locks_apart(locks: asyncdlock.LockClient, connect: Connect, key: str) -> None:
    """The keys that a user sees are without it, the server's are with it."""
    apart = connect(prefix=f"{key}-app:")
    plain = await locks.acquire("account", ttl=30.0, timeout=60.0)
    handle = await apart.try_acquire("account", ttl=30.0)
    assert handle is not None
    assert handle.key == "account"
    assert await locks.try_acquire(f"{key}-app:account") is None, "this is its name on the server"
    with pytest.raises(asyncdlock.AcquireTimeout, match="'account'") as late:
        await apart.acquire("account", timeout=0.05)
    assert late.value.key == "account"
    assert (await apart.inspect("account")).owner == handle.owner
    assert (await apart.inspect("account")).key == "account"
    assert [name async for name in apart.keys()] == ["account"]  # noqa: SIM118
    assert await apart.force_release("account")
    with pytest.raises(asyncdlock.LockLost) as lost:
        await handle.renew()
    assert (lost.value.key, lost.value.fence, lost.value.owner) == ("account", handle.fence, handle.owner)
    await plain.release()
    for name in ("{tag}:job", "a}b", "{tag}", "k" * 900):
        async with apart.hold(name) as other:
            assert (await apart.inspect(name)).owner == other.owner
    for bad in ("", "a\0b", "k" * 1020, 7):
        with pytest.raises(asyncdlock.InvalidKey):
            await apart.acquire(bad)  # type: ignore[arg-type]


async def test_a_label_costs_no_round_trip(locks: asyncdlock.LockClient, key: str) -> None:
    """After the first acquire, a plain cycle sends as many requests as one without labels would."""
    async with locks.hold(key, ttl=30.0):
        pass
    backend = backend_of(locks)
    plain = []
    for _ in range(3):
        before = backend.commands
        async with locks.hold(key, ttl=30.0):
            pass
        plain.append(backend.commands - before)
    assert max(plain) <= {"redlock": 20, "etcd": 4, "zookeeper": 4}.get(backend.name, 2)


async def test_an_operators_verbs_are_refused_once_closed(connect: Connect, key: str) -> None:
    client = connect()
    await client.aclose()
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await client.inspect(key)
    with pytest.raises(asyncdlock.LockError, match="closed"):
        await client.force_release(key)
    with pytest.raises(asyncdlock.LockError, match="closed"):
        [name async for name in client.keys()]  # noqa: SIM118


def test_another_event_loop_is_refused(url: str, key: str) -> None:
    """In every verb, with a sentence; and the loop that the client belongs to is not disturbed."""
    with asyncio.Runner() as first, asyncio.Runner() as second:

        async def open_client() -> tuple[asyncdlock.LockClient, asyncdlock.Handle]:
            client = asyncdlock.connect(url)
            return client, await client.acquire(key, ttl=30.0)

        client, handle = first.run(open_client())

        async def misuse() -> None:
            for call in (
                lambda: client.acquire(key),
                lambda: client.try_acquire(key),
                lambda: client.inspect(key),
                lambda: client.force_release(key),
                lambda: client.raise_fence(key, above=1),
                handle.renew,
                handle.release,
                client.aclose,
            ):
                with pytest.raises(asyncdlock.LockError, match="another event loop"):
                    await call()

        second.run(misuse())

        async def go_on() -> bool:
            await handle.renew()
            released = await handle.release()
            await client.aclose()
            return released

        assert first.run(go_on()) is True
