"""Every store gives the answers of the reference, operation by operation."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.resource.decision import Fencing, Write
from harness.resource.store import LogRow, Store, open_store
from tests.resource.conftest import STORES, store_url

OPERATIONS = 400


@pytest.fixture(params=STORES[1:])
def store_under_test(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request.param, tmp_path, request)


@pytest.fixture(params=Fencing)
async def pair(request: pytest.FixtureRequest, store_under_test: str) -> AsyncIterator[tuple[Store, Store]]:
    reference = await open_store("memory", request.param, log=True)
    store = await open_store(store_under_test, request.param, log=True)
    yield reference, store
    await store.aclose()


async def rows_of(store: Store, *, prefix: str) -> list[LogRow]:
    """Without what may differ: the global order starts elsewhere, and time passes."""
    return [
        row._replace(seq=0, decided=0)
        async for page in store.log(0)
        for row in page
        if row.key.startswith(prefix)
    ]


async def test_random_operations_get_the_answers_of_the_reference(
    pair: tuple[Store, Store], key: str, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(request.node.name)
    reference, store = pair
    for _ in range(OPERATIONS):
        name = f"{key}-{chance.randrange(4)}"
        token = chance.randrange(1, 8)
        if chance.random() < 0.3:
            token = chance.choice([0, token])
            assert await store.read(name, token) == await reference.read(name, token)
        else:
            body = b"%d" % chance.randrange(2)
            expected = chance.choice([None, None, None, 0, 1, 2, 3])
            write = Write(name, token, chance.randrange(3), body, body.hex(), 7, expected, "owner")
            assert await store.write(write) == await reference.write(write)
    assert await rows_of(store, prefix=key) == await rows_of(reference, prefix=key)


async def test_the_memory_log_drops_its_oldest_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.resource.recent_log.LOG_ROWS", 1000)
    store = await open_store("memory", Fencing.ON, log=True)
    for token in range(1, 1501):
        await store.write(Write("key", token, 0, b"", "", 0))
    seqs = [row.seq async for page in store.log(0) for row in page]
    assert seqs == list(range(501, 1501))
    assert [row.seq async for page in store.log(1498) for row in page] == [1499, 1500]


async def test_no_log_is_kept_when_switched_off(store_under_test: str, key: str) -> None:
    store = await open_store(store_under_test, Fencing.ON, log=False)
    await store.write(Write(key, 1, 0, b"", "", 0))
    assert await rows_of(store, prefix=key) == []
    await store.aclose()
