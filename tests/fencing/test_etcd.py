"""FencedEtcd: the comparison of fences is part of the caller's own transaction."""

import asyncio
import contextlib
import enum
import random
from collections.abc import AsyncIterator
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

import aetcd
import pytest

from asyncdlock.errors import StaleFence
from asyncdlock.fencing.etcd import FencedEtcd


@pytest.fixture
async def etcd(etcd_url: str) -> AsyncIterator[Any]:
    where = urlsplit(etcd_url)
    client = aetcd.Client(host=where.hostname, port=where.port, timeout=30)
    await client.connect()
    yield client
    await client.close()


@pytest.fixture
def key() -> str:
    return f"account:{uuid4()}"


def put(client: Any, key: str, value: bytes) -> list[Any]:
    return [client.transactions.put(key.encode(), value)]


async def value(client: Any, key: str) -> bytes | None:
    found = await client.get(key.encode())
    return None if found is None else bytes(found.value)


async def test_a_fresh_writer_wins_and_a_stale_one_loses(etcd: Any, key: str) -> None:
    store = FencedEtcd(etcd)
    assert (await store.commit(key, put(etcd, key, b"33"), fence=33))[0]
    assert (await store.commit(key, put(etcd, key, b"33 again"), fence=33))[0]
    assert (await store.commit(key, put(etcd, key, b"1000"), fence=1000))[0]
    with pytest.raises(StaleFence) as refused:
        await store.commit(key, put(etcd, key, b"999"), fence=999)
    assert (refused.value.seen, refused.value.got) == (1000, 999)
    assert await value(etcd, key) == b"1000"


async def test_a_member_of_an_enumeration_has_the_mark_of_its_text(etcd: Any, key: str) -> None:
    store = FencedEtcd(etcd)
    named = cast(Any, enum.Enum)("Named", {"KEY": key}, type=str)
    by_name = named.KEY
    assert f"{by_name}" != key
    assert (await store.commit(key, put(etcd, key, b"34"), fence=34))[0]
    with pytest.raises(StaleFence):
        await store.commit(by_name, put(etcd, key, b"33"), fence=33)
    assert await value(etcd, key) == b"34"


async def test_the_callers_own_comparison_decides_too(etcd: Any, key: str) -> None:
    store = FencedEtcd(etcd)
    exists = etcd.transactions.version(key.encode()) > 0
    assert await store.commit(key, put(etcd, key, b"x"), fence=5, compare=[exists]) == (False, [])
    assert await value(etcd, key) is None
    # What was not carried out has raised no mark.
    assert (await store.commit(key, put(etcd, key, b"y"), fence=4))[0]


async def test_a_fence_of_zero_digits_is_not_sent(etcd: Any, key: str) -> None:
    with pytest.raises(ValueError, match="fence must be"):
        await FencedEtcd(etcd).commit(key, put(etcd, key, b""), fence=0)
    assert await value(etcd, key) is None


async def test_sixty_four_writers_never_let_the_value_run_backwards(etcd: Any, key: str) -> None:
    """Read from the store's own history: every revision of the key."""
    store = FencedEtcd(etcd)
    fences = list(range(1, 65))
    random.Random(7).shuffle(fences)

    async def write(fence: int) -> None:
        with contextlib.suppress(StaleFence):
            await store.commit(key, put(etcd, key, b"%d" % fence), fence=fence)

    await asyncio.gather(*map(write, fences))
    history = []
    found = await etcd.get(key.encode())
    while found is not None and found.mod_revision:
        history.append(int(found.value))
        if found.version == 1:
            break
        reply = await etcd.kvstub.Range(
            aetcd.rpc.RangeRequest(key=key.encode(), revision=found.mod_revision - 1), timeout=30
        )
        found = reply.kvs[0] if reply.kvs else None
    assert history[0] == 64
    assert history == sorted(history, reverse=True)
    assert len(set(history)) == len(history)
