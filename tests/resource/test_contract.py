"""The HTTP contract, to the letter, on every kind of store."""

import asyncio

import pytest

from harness.resource import ResourceProcess, client
from harness.resource.client import ResourceClient
from harness.resource.decision import REMEMBERED
from tests.resource.client import exchange


async def test_a_write_is_applied_and_read_back_with_its_token(http: ResourceClient, key: str) -> None:
    assert (await http.put(key, b"hello", fence=33)).status == 200
    answer = await http.get(key)
    assert (answer.status, answer.body) == (200, b"hello")
    assert answer.headers["X-Fence-Token"] == "33"


async def test_a_stale_write_gets_exactly_the_409_of_the_contract(http: ResourceClient, key: str) -> None:
    await http.put(key, b"new", fence=34)
    for token in (33, 34):
        answer = await http.put(key, b"old", fence=token)
        assert answer.status == 409
        assert answer.json == {"error": "stale fencing token", "seen": 34, "got": token}
    assert (await http.get(key)).body == b"new"


async def test_json_shows_the_value_and_the_highest_token_seen(http: ResourceClient, key: str) -> None:
    await http.put(key, "grüße".encode(), fence=33)
    await http.get(key, fence=40)
    answer = await http.get(key, accept="application/json")
    assert answer.json == {
        "key": key,
        "value": "grüße",
        "encoding": "utf-8",
        "fence": 33,
        "seq": 0,
        "max_fence": 40,
        "version": 1,
    }


async def test_json_shows_a_value_that_is_not_text_in_base64(http: ResourceClient, key: str) -> None:
    await http.put(key, b"\xff\x00", fence=1)
    answer = await http.get(key, accept="application/json")
    assert (answer.json["value"], answer.json["encoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize("body", [b"", b"\x00\xff", b"x" * (1 << 20)], ids=["empty", "binary", "1 MiB"])
async def test_any_body_up_to_the_limit_comes_back_as_it_was(
    http: ResourceClient, key: str, body: bytes
) -> None:
    assert (await http.put(key, body, fence=1)).status == 200
    assert (await http.get(key)).body == body


async def test_a_compressed_body_is_kept_as_it_was_sent(http: ResourceClient, key: str) -> None:
    assert (await http.put(key, b"not really gzip", fence=1, content_encoding="gzip")).status == 200
    assert (await http.get(key)).body == b"not really gzip"


async def test_one_holder_may_write_again_with_a_larger_sequence_number(
    http: ResourceClient, key: str
) -> None:
    assert (await http.put(key, b"a", fence=33, x_fence_seq=0)).status == 200
    assert (await http.put(key, b"b", fence=33, x_fence_seq=1)).status == 200
    answer = await http.put(key, b"c", fence=33, x_fence_seq=1)
    assert answer.status == 409
    assert answer.json == {
        "error": "stale fencing token",
        "seen": 33,
        "got": 33,
        "seen_seq": 1,
        "got_seq": 1,
    }
    assert (await http.put(key, b"d", fence=34)).status == 200
    assert (await http.put(key, b"e", fence=33, x_fence_seq=2)).status == 409
    assert (await http.get(key)).body == b"d"


async def test_the_repetition_of_a_write_whose_reply_was_lost_is_told_so(
    http: ResourceClient, key: str
) -> None:
    """Refused as the contract demands, but with `yours`, though others have read and written since."""
    await http.put(key, b"mine", fence=33)
    again = await http.put(key, b"mine", fence=33)
    assert again.status == 409
    assert again.json == {"error": "stale fencing token", "seen": 33, "got": 33, "yours": True}
    assert "yours" not in (await http.put(key, b"other", fence=33)).json
    await http.get(key, fence=34)
    assert (await http.put(key, b"mine", fence=33)).json["yours"] is True
    await http.put(key, b"theirs", fence=34)
    assert (await http.put(key, b"mine", fence=33)).json == again.json | {"seen": 34}
    assert "yours" not in (await http.put(key, b"other", fence=33)).json
    assert "yours" not in (await http.put(key, b"mine", fence=32)).json


async def test_a_write_of_long_ago_gets_no_answer_that_may_be_wrong(http: ResourceClient, key: str) -> None:
    """`yours` is null where the resource can no longer tell whether it accepted that write."""
    tokens = range(1, REMEMBERED + 3)
    for token in tokens:
        assert (await http.put(key, b"%d" % token, fence=token)).status == 200
    for token in tokens:
        answer = (await http.put(key, b"%d" % token, fence=token)).json
        assert answer["yours"] is (None if token <= 2 else True), token
    assert "yours" not in (await http.put(key, b"other", fence=REMEMBERED)).json


async def test_a_fenced_read_is_refused_below_the_highest_token_seen(http: ResourceClient, key: str) -> None:
    await http.put(key, b"v", fence=34)
    answer = await http.get(key, fence=33)
    assert answer.status == 409
    assert answer.json == {"error": "stale fencing token", "seen": 34, "got": 33}
    assert (await http.get(key, fence=34)).body == b"v"


async def test_a_fenced_read_prevents_the_lost_update(http: ResourceClient, key: str) -> None:
    """33 reads v0 and pauses, 34 reads v0, 33 writes: were that accepted, 34 would overwrite it unseen."""
    await http.put(key, b"v0", fence=32)
    assert (await http.get(key, fence=33)).body == b"v0"
    assert (await http.get(key, fence=34)).body == b"v0"
    assert (await http.put(key, b"v0+33", fence=33)).status == 409
    assert (await http.put(key, b"v0+34", fence=34)).status == 200
    assert (await http.get(key)).body == b"v0+34"


async def test_a_fenced_read_of_a_key_never_written_raises_its_mark_as_well(
    http: ResourceClient, key: str
) -> None:
    answer = await http.get(key, fence=34)
    assert answer.status == 404
    assert answer.json == {"error": "no such key", "key": key, "max_fence": 34}
    assert (await http.put(key, b"v", fence=33)).json["seen"] == 34
    assert (await http.put(key, b"v", fence=34)).status == 200


async def test_a_plain_read_raises_nothing(http: ResourceClient, key: str) -> None:
    await http.put(key, b"v", fence=33)
    await http.get(key)
    assert (await http.put(key, b"w", fence=34)).status == 200


async def test_a_read_between_two_writes_of_one_holder_changes_nothing(
    http: ResourceClient, key: str
) -> None:
    await http.put(key, b"a", fence=33, x_fence_seq=0)
    await http.get(key, fence=33)
    assert (await http.put(key, b"again", fence=33, x_fence_seq=0)).status == 409
    assert (await http.put(key, b"b", fence=33, x_fence_seq=1)).status == 200


@pytest.mark.parametrize("token", [1, 2**63 - 1])
async def test_the_smallest_and_the_largest_token_are_accepted(
    http: ResourceClient, key: str, token: int
) -> None:
    assert (await http.put(key, fence=token)).status == 200
    assert (await http.get(key)).headers["X-Fence-Token"] == str(token)


@pytest.mark.parametrize(
    "token", ["", "0", "-1", "+1", "1.0", "1e3", "0x10", "01", "one", "٣", str(2**63), "9" * 40, "1,2", "1 2"]
)
async def test_a_malformed_token_is_refused_and_nothing_stored(
    http: ResourceClient, key: str, token: str
) -> None:
    for answer in (await http.put(key, fence=token), await http.get(key, fence=token)):
        assert answer.status == 400
        assert "X-Fence-Token" in answer.json["error"]
    assert (await http.get(key)).status == 404


async def test_a_missing_token_is_refused_and_nothing_stored(http: ResourceClient, key: str) -> None:
    answer = await http.put(key)
    assert answer.status == 400
    assert answer.json == {"error": "X-Fence-Token is missing"}
    assert (await http.get(key)).status == 404


async def test_two_tokens_in_one_request_are_refused(any_resource: ResourceProcess, key: str) -> None:
    reply = await exchange(
        any_resource,
        f"PUT /r/{key} HTTP/1.1\r\nHost: x\r\nX-Fence-Token: 1\r\nX-Fence-Token: 2\r\n"
        "Content-Length: 1\r\nConnection: close\r\n\r\nx".encode(),
    )
    assert reply.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("seq", ["", "-1", "x", str(2**63)])
async def test_a_malformed_sequence_number_is_refused(http: ResourceClient, key: str, seq: str) -> None:
    answer = await http.put(key, fence=1, x_fence_seq=seq)
    assert answer.status == 400
    assert "X-Fence-Seq" in answer.json["error"]


@pytest.mark.parametrize(
    "odd",
    ["a/b", "a//b", "/", "..", ".", "a/../b", "a?b#c", "100%", "%2F", " ", "ключ", "🔒", "a\nb", "é" * 512],
)
async def test_every_key_of_a_lock_is_a_key_of_the_resource(http: ResourceClient, key: str, odd: str) -> None:
    name = odd if len(odd) > 500 else f"{odd}{key}{odd}"
    assert (await http.put(name, odd.encode(), fence=33)).status == 200
    answer = await http.get(name, accept="application/json")
    assert (answer.json["key"], answer.json["value"]) == (name, odd)


@pytest.mark.parametrize("path", ["a/b", "a%2Fb", "%61%2fb"])
async def test_spellings_of_a_path_name_one_key(http: ResourceClient, key: str, path: str) -> None:
    await http.put(f"{key}/a/b", b"v", fence=1)
    assert (await http.send("GET", f"/r/{key}/{path}")).body == b"v"


@pytest.mark.parametrize(
    ("path", "complaint"),
    [("", "empty"), ("a%00b", "NUL"), ("%FF", "UTF-8"), ("k" * 1025, "longer"), ("%C3%A9" * 513, "longer")],
)
async def test_a_bad_key_is_refused(http: ResourceClient, path: str, complaint: str) -> None:
    for method in ("GET", "PUT"):
        answer = await http.send(method, f"/r/{path}", {"X-Fence-Token": "1"})
        assert answer.status == 400
        assert complaint in answer.json["error"]


async def test_other_paths_and_methods_are_refused_in_json(http: ResourceClient, key: str) -> None:
    assert (await http.send("GET", "/nothing")).json["error"].startswith("no such path")
    for method, path in (("POST", f"/r/{key}"), ("DELETE", f"/r/{key}"), ("PUT", "/healthz")):
        answer = await http.send(method, path)
        assert answer.status == 405
        assert answer.json == {"error": f"{method} is not allowed here"}
        assert "GET" in answer.headers["Allow"]


async def test_head_is_get_without_the_body(
    any_resource: ResourceProcess, http: ResourceClient, key: str
) -> None:
    await http.put(key, b"hello", fence=33)
    request = f"HEAD /r/{key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    head, _, body = (await exchange(any_resource, request.encode())).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and b"X-Fence-Token: 33" in head
    assert body == b""


async def test_of_many_writers_at_once_each_token_is_accepted_at_most_in_order(
    http: ResourceClient, key: str
) -> None:
    """200 writers, each token four times: what was accepted rises strictly, and the last is the value."""
    tokens = [token for token in range(1, 51) for _ in range(4)]
    answers = await asyncio.gather(*(http.put(key, b"%d" % token, fence=token) for token in tokens))
    rows = await http.log_of(key)
    accepted = [row["token"] for row in rows if row["accepted"]]
    assert accepted == sorted(set(accepted))
    assert len(accepted) == sum(answer.status == 200 for answer in answers)
    assert (await http.get(key)).body == b"%d" % accepted[-1]
    assert accepted[-1] == 50


async def test_the_log_has_one_row_per_decided_write_in_order(http: ResourceClient, key: str) -> None:
    await http.put(key, b"a", fence=33, x_fence_owner="alice")
    await http.put(key, b"b", fence=32, x_fence_owner="bob", x_fence_seq=4)
    await http.put(key, b"a", fence=33)
    await http.put(key, b"", fence=0)  # malformed: never decided
    await http.get(key, fence=40)
    await http.put(key, b"c", fence=41)
    rows = await http.log_of(key)
    assert [
        (
            row["token"],
            row["fence_seq"],
            row["accepted"],
            row["outcome"],
            row["seen"],
            row["version"],
            row["owner"],
        )
        for row in rows
    ] == [
        (33, 0, True, "accepted", 0, 1, "alice"),
        (32, 4, False, "stale", 33, 1, "bob"),
        (33, 0, False, "repeated", 33, 1, None),
        (41, 0, True, "accepted", 40, 2, None),
    ]
    assert all(row["started"] <= row["decided"] for row in rows)
    assert rows == sorted(rows, key=lambda row: row["decided"])
    assert rows[0]["digest"] == rows[2]["digest"] != rows[1]["digest"]
    middle = rows[1]["seq"]
    assert [row["seq"] for row in await http.log(after=middle) if row["key"] == key] == [
        rows[2]["seq"],
        rows[3]["seq"],
    ]
    assert (await http.send("GET", "/log?after=x")).status == 400


@pytest.mark.parametrize("page", [100, 700, 100_000])
async def test_a_log_longer_than_a_page_is_complete(
    http: ResourceClient, key: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_LOG_PAGE", page)
    await asyncio.gather(*(http.put(f"{key}-{number}", fence=1) for number in range(700)))
    rows = await http.log()
    assert sum(row["key"].startswith(key) for row in rows) == 700
    seqs = [row["seq"] for row in rows]
    assert seqs == sorted(set(seqs))


async def test_so_many_rows_of_the_log_are_shown_as_were_asked_for(http: ResourceClient, key: str) -> None:
    await asyncio.gather(*(http.put(f"{key}-{number}", fence=1) for number in range(300)))
    for limit, rows in ((0, 0), (1, 1), (256, 256), (257, 257)):
        assert (await http.send("GET", f"/log?limit={limit}")).body.count(b"\n") == rows


async def test_metrics_count_what_happened(http: ResourceClient, key: str) -> None:
    names = [
        "resource_stale_token_rejections_total",
        'resource_writes_total{outcome="accepted"}',
        'resource_writes_total{outcome="stale"}',
        'resource_writes_total{outcome="repeated"}',
        'resource_writes_total{outcome="invalid"}',
        'resource_reads_total{outcome="stale"}',
        'resource_request_duration_seconds_count{operation="write"}',
    ]
    before = [await http.metric(name) for name in names]
    await http.put(key, b"a", fence=33)
    await http.put(key, b"a", fence=33)
    await http.put(key, b"b", fence=32)
    await http.put(key, b"b", fence="x")
    await http.get(key, fence=32)
    after = [await http.metric(name) for name in names]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 1, 1, 1, 1, 1, 3]
