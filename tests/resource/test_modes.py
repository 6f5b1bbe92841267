"""What each `--fence` mode lets through, and check-and-set, the way to write without a lock."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from harness import resource
from harness.resource.client import ResourceClient


@pytest.fixture
async def writes_only() -> AsyncIterator[ResourceClient]:
    async with (
        resource.spawn(store="memory", fence="writes") as node,
        ResourceClient(node.url) as client,
    ):
        yield client


async def test_fence_off_lets_the_stale_writer_corrupt_the_value(unfenced: ResourceClient, key: str) -> None:
    """The unsafe baseline: two accepted writers, the older one last."""
    assert (await unfenced.put(key, b"new", fence=34)).status == 200
    assert (await unfenced.put(key, b"old", fence=33)).status == 200
    answer = await unfenced.get(key, accept="application/json")
    assert (answer.json["value"], answer.json["fence"], answer.json["max_fence"]) == ("old", 33, 34)
    assert [(row["token"], row["seen"], row["accepted"]) for row in await unfenced.log_of(key)] == [
        (34, 0, True),
        (33, 34, True),
    ]


async def test_fence_off_records_a_write_without_a_token_as_token_0(
    unfenced: ResourceClient, key: str
) -> None:
    assert (await unfenced.put(key, b"v")).status == 200
    assert "X-Fence-Token" not in (await unfenced.get(key)).headers
    assert [row["token"] for row in await unfenced.log_of(key)] == [0]


async def test_fence_off_still_refuses_a_malformed_token(unfenced: ResourceClient, key: str) -> None:
    assert (await unfenced.put(key, b"v", fence="x")).status == 400
    assert (await unfenced.get(key)).status == 404


async def test_fence_off_ignores_the_tokens_of_reads(unfenced: ResourceClient, key: str) -> None:
    await unfenced.put(key, b"v", fence=34)
    answer = await unfenced.get(key, fence=33)
    assert (answer.status, answer.headers["X-Max-Fence"]) == (200, "34")
    assert (await unfenced.get(key, fence=99)).headers["X-Max-Fence"] == "34"


async def test_fencing_writes_only_still_loses_an_update(writes_only: ResourceClient, key: str) -> None:
    """33 reads v0 and pauses, 34 reads v0, 33 writes (acknowledged), 34 overwrites it unseen."""
    await writes_only.put(key, b"v0", fence=32)
    assert (await writes_only.get(key, fence=33)).body == b"v0"
    assert (await writes_only.get(key, fence=34)).body == b"v0"
    assert (await writes_only.put(key, b"v0+33", fence=33)).status == 200
    assert (await writes_only.put(key, b"v0+34", fence=34)).status == 200
    assert (await writes_only.put(key, b"late", fence=33)).status == 409
    assert (await writes_only.get(key, fence=1)).body == b"v0+34"


async def test_check_and_set_needs_no_token_when_fencing_is_off(unfenced: ResourceClient, key: str) -> None:
    created = await unfenced.put(key, b"1", if_none_match="*")
    assert (created.status, created.headers["ETag"]) == (200, '"1"')
    updated = await unfenced.put(key, b"2", if_match=created.headers["ETag"])
    assert (updated.status, updated.json) == (200, {"version": 2})
    assert (await unfenced.get(key)).headers["ETag"] == '"2"'


async def test_check_and_set_lets_one_of_two_writers_of_a_version_win(
    unfenced: ResourceClient, key: str
) -> None:
    await unfenced.put(key, b"base")
    assert (await unfenced.put(key, b"first", if_match='"1"')).status == 200
    second = await unfenced.put(key, b"second", if_match='"1"')
    assert second.status == 412
    assert second.json == {"error": "version mismatch", "version": 2}
    assert second.headers["ETag"] == '"2"'
    assert (await unfenced.get(key)).body == b"first"
    assert [row["outcome"] for row in await unfenced.log_of(key)] == ["accepted", "accepted", "conflict"]


async def test_a_condition_on_a_key_never_written(unfenced: ResourceClient, key: str) -> None:
    refused = await unfenced.put(key, b"v", if_match='"1"')
    assert (refused.status, refused.json["version"]) == (412, 0)
    assert (await unfenced.get(key)).status == 404
    assert (await unfenced.put(key, b"v", if_none_match="*")).status == 200
    assert (await unfenced.put(key, b"w", if_none_match="*")).status == 412


async def test_with_fencing_a_condition_comes_on_top_of_the_token(http: ResourceClient, key: str) -> None:
    await http.get(key, fence=5)
    assert (await http.put(key, b"v", fence=5, if_none_match="*")).status == 200
    assert (await http.put(key, b"w", fence=4, if_match='"1"')).status == 409
    assert (await http.put(key, b"w", fence=6, if_match='"9"')).status == 412
    assert (await http.put(key, b"w", if_match='"1"')).status == 400
    assert (await http.put(key, b"w", fence=6, if_match='"1"')).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"if_match": "1"},
        {"if_match": "*"},
        {"if_match": '"0"'},
        {"if_match": 'W/"1"'},
        {"if_match": '"1", "2"'},
        {"if_match": f'"{2**63}"'},
        {"if_none_match": '"1"'},
        {"if_match": '"1"', "if_none_match": "*"},
    ],
)
async def test_a_malformed_condition_is_refused(
    http: ResourceClient, key: str, headers: dict[str, Any]
) -> None:
    assert (await http.put(key, b"v", fence=1, **headers)).status == 400
    assert (await http.get(key)).status == 404
