"""Keys and times: what is taken, and what is refused before anything is sent."""

import asyncio
import enum
import math
from typing import Any, cast

import pytest

import asyncdlock
from tests.contract.fixtures import Connect


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("x" * 1025, "1024"),
        ("é" * 513, "1024"),
        ("\ud800", "Unicode"),
        (b"bytes", "str"),
        (None, "str"),
        (7, "str"),
    ],
    ids=["empty", "nul", "long", "long-utf8", "surrogate", "bytes", "none", "int"],
)
async def test_a_bad_key_is_refused_and_nothing_is_sent(
    locks: asyncdlock.LockClient, bad: Any, why: str
) -> None:
    for call in (locks.acquire, locks.try_acquire):
        with pytest.raises(asyncdlock.InvalidKey, match=why) as caught:
            await call(bad)
        assert isinstance(caught.value, ValueError)
    with pytest.raises(asyncdlock.InvalidKey, match=why):
        async with locks.hold(bad):
            pass
    with pytest.raises(asyncdlock.InvalidKey, match=why):
        await locks.raise_fence(bad, above=1)
    assert locks._backend.commands == 0


@pytest.mark.parametrize("bad", [0, 0.0, -1, math.nan, math.inf, -math.inf, 2.0**31, "10", None, 1j, True])
async def test_a_bad_ttl_is_refused_and_nothing_is_sent(
    locks: asyncdlock.LockClient, key: str, bad: Any
) -> None:
    for call in (locks.acquire, locks.try_acquire):
        with pytest.raises(ValueError, match="ttl must be a positive number of seconds"):
            await call(key, ttl=bad)
    assert locks._backend.commands == 0


async def test_true_is_not_a_ttl_of_one_second(locks: asyncdlock.LockClient, key: str) -> None:
    """Python holds the two equal, so the check must not be skipped after a ttl of 1."""
    ttl = max(1.0, locks.capabilities.min_ttl)
    await (await locks.acquire(key, ttl=ttl)).release()
    with pytest.raises(ValueError, match="ttl must be"):
        await locks.acquire(key, ttl=True)


async def test_a_ttl_that_the_server_cannot_do_is_refused(locks: asyncdlock.LockClient, key: str) -> None:
    can = locks.capabilities
    with pytest.raises(ValueError, match="shortest"):
        await locks.acquire(key, ttl=can.min_ttl * 0.9)
    if can.ttl_step:
        with pytest.raises(ValueError, match="multiples"):
            await locks.acquire(key, ttl=can.min_ttl + can.ttl_step / 2)
    assert locks._backend.commands == 0
    async with asyncio.timeout(60.0):
        while not await _granted_for(locks, key, can.min_ttl):
            pass  # the machine stood still for longer than that


async def _granted_for(locks: asyncdlock.LockClient, key: str, ttl: float) -> bool:
    try:
        await (await locks.acquire(key, ttl=ttl)).release()
    except asyncdlock.BackendUnavailable as error:
        if "too short for this server" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("name", ["timeout", "max_hold"])
@pytest.mark.parametrize("bad", [math.nan, "10", 1j, True, False, -2, -0.001, -math.inf])
async def test_other_times_must_be_numbers_and_not_negative(
    locks: asyncdlock.LockClient, key: str, name: str, bad: Any
) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        await locks.acquire(key, **{name: bad})
    with pytest.raises(ValueError, match=f"{name} must be"):
        async with locks.hold(key, **{name: bad}):
            pytest.fail("the body ran")
    assert locks._backend.commands == 0


@pytest.mark.parametrize("bad", [0, -1.0])
async def test_max_hold_must_be_positive(
    locks: asyncdlock.LockClient, connect: Connect, key: str, bad: float
) -> None:
    with pytest.raises(ValueError, match="max_hold must be a positive number"):
        await locks.try_acquire(key, max_hold=bad)
    with pytest.raises(ValueError, match="max_hold must be a positive number"):
        connect(max_hold=bad)


@pytest.mark.parametrize("endless", [math.inf, 1e18, 1e307])
async def test_an_endless_timeout_waits(locks: asyncdlock.LockClient, key: str, endless: float) -> None:
    handle = await locks.acquire(key, timeout=endless)
    assert await handle.release()


ODD_KEYS = [
    "ключ-鍵-🔑",
    "with space",
    " ",
    "a/b//c/",
    "/",
    ".",
    "..",
    "a/../b",
    "{tag}:x",
    "x{tag}",
    "a{b",
    "a}b",
    "{}",
    "{}{a}",
    "{",
    "line\nbreak\r\n",
    "tab\t%00%2F",
    "x" * 1024,
    "é" * 512,
    "*?[x]",
    "\x01\x7f\x80\u2028",
]


async def test_any_text_is_a_key(connect: Connect) -> None:
    one, two = connect(), connect()
    for odd in ODD_KEYS:
        handle = await one.acquire(odd, timeout=30.0)
        assert handle.key == odd
        assert await two.try_acquire(odd) is None
        await handle.renew()
        assert await handle.release() is True
        again = await two.acquire(odd, timeout=30.0)
        assert again.fence > handle.fence
        assert await again.release() is True


async def test_a_member_of_an_enumeration_is_the_text_that_it_stands_for(connect: Connect, key: str) -> None:
    """It is a `str`, but is formatted by its name: half of a request would say the one, half the other."""
    named = cast(Any, enum.Enum)("Named", {"LOCK": key}, type=str)
    by_name = named.LOCK
    one, two = connect(), connect()
    assert f"{by_name}" != key
    async with one.hold(by_name, timeout=30.0) as handle:
        assert handle.key == key
        assert type(handle.key) is str
        assert await one.try_acquire(key) is None
        assert await two.try_acquire(key) is None
        await handle.renew()
    async with one.hold_all([by_name, f"{key}-0"]) as handles:
        assert set(map(type, handles)) == {str}
        assert await two.try_acquire(key) is None
    if two.capabilities.semaphore:
        async with two.semaphore(by_name, permits=1).hold(timeout=30.0):
            assert await one.try_acquire(key) is None


async def test_keys_that_look_alike_are_different_locks(locks: asyncdlock.LockClient, key: str) -> None:
    names = [
        key,
        f"{{{key}}}",
        f"{key}/",
        f"/{key}",
        f"{key} ",
        f"{key}%2F",
        key.upper(),
        f"é{key}",
        f"e\u0301{key}",
    ]
    handles = [await locks.acquire(name, timeout=10.0) for name in names]
    assert all([await handle.release() for handle in handles])
