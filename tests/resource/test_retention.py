"""The log is bounded by rows and by age, and says what it has dropped; marks are never dropped."""

from pathlib import Path

import pytest

from harness import resource
from harness.resource.client import LogIncomplete, ResourceClient
from harness.resource.decision import Fencing, Write
from harness.resource.store import Retention, Store, open_store
from tests.resource.conftest import STORES, store_url

ROWS = 300
SLACK = 1_100  # rows are dropped a thousand at a time


@pytest.fixture(params=STORES)
def store_under_test(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request.param, tmp_path, request)


async def seqs(store: Store, after: int = 0) -> list[int]:
    return [row.seq async for page in store.log(after) for row in page]


async def refuse(store: Store, key: str, times: int) -> None:
    for _ in range(times):
        await store.write(Write(key, 1, 0, b"", "", 0))


@pytest.mark.slow
async def test_refused_writes_do_not_grow_the_log_without_limit(store_under_test: str, key: str) -> None:
    store = await open_store(store_under_test, Fencing.ON, log=True, retention=Retention(rows=ROWS))
    try:
        await store.write(Write(key, 5, 0, b"v", "", 0))
        first = (await seqs(store))[-1]
        await refuse(store, key, 4 * SLACK)
        kept = await seqs(store)
        assert ROWS <= len(kept) <= ROWS + SLACK
        assert kept[-1] == first + 4 * SLACK, "the newest rows stay"
        assert first < await store.log_from() <= kept[0], "a reader sees that rows are missing"
        assert (await store.read(key, 0)).mark.token == 5, "a mark is never dropped"
    finally:
        await store.aclose()


@pytest.mark.slow
async def test_rows_that_are_too_old_are_dropped_all_but_the_newest(store_under_test: str, key: str) -> None:
    store = await open_store(store_under_test, Fencing.ON, log=True, retention=Retention(age=0.000_001))
    try:
        await store.write(Write(key, 5, 0, b"v", "", 0))
        first = (await seqs(store))[-1]
        await refuse(store, key, 3 * SLACK)
        kept = await seqs(store)
        assert len(kept) <= SLACK
        assert kept[-1] == first + 3 * SLACK, "numbers go on where they were"
    finally:
        await store.aclose()


async def test_a_fresh_log_has_dropped_nothing(tmp_path: Path) -> None:
    for url in ("memory", f"sqlite:{tmp_path / 'x.db'}"):
        store = await open_store(url, Fencing.ON, log=True)
        assert await store.log_from() == 1
        await store.write(Write("key", 1, 0, b"", "", 0))
        assert (await store.log_from(), await seqs(store)) == (1, [1])
        await store.aclose()


async def test_the_service_tells_where_its_log_begins() -> None:
    async with (
        resource.spawn(store="memory", options={"--log-rows": "10"}) as node,
        ResourceClient(node.url) as client,
    ):
        assert (await client.send("GET", "/log")).headers["X-Log-From"] == "1"
        for token in range(1, 31):
            await client.put("key", fence=token)
        answer = await client.send("GET", "/log?after=5")
        assert answer.headers["X-Log-From"] == "21"
        assert [row["seq"] for row in await client.log(after=20)] == list(range(21, 31))
        with pytest.raises(LogIncomplete, match="begins at 21"):
            await client.log(after=5)
