"""A resource that answers, but not in the language of one: the judge is told so, and nothing crashes."""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from harness.load.targets import Resource
from harness.resource.client import ResourceClient, UnexpectedReply

ROW = {
    "key": "k",
    "seq": 1,
    "token": 1,
    "fence_seq": 0,
    "outcome": "accepted",
    "seen": None,
    "version": 1,
    "started": 1,
    "decided": 2,
    "owner": None,
    "digest": None,
}


async def collect(rows: object, etag: dict[str, str], path: Path) -> None:
    async def log(request: web.Request) -> web.Response:
        page = rows if isinstance(rows, list) else [rows] * int(request.query["limit"])
        return web.Response(text="".join(json.dumps(row) + "\n" for row in page))

    async def read(request: web.Request) -> web.Response:
        return web.Response(headers=etag)

    app = web.Application()
    app.add_routes([web.get("/log", log), web.get("/r/{key}", read)])
    async with TestServer(app) as server, ResourceClient(str(server.make_url(""))) as client:
        await Resource(client).save_log(path, 0)


async def test_a_log_in_its_language_is_saved(tmp_path: Path) -> None:
    await collect([ROW], {"ETag": '"1"'}, tmp_path / "log")
    assert '{"value":"k","version":1' in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([3], "number None after 0"),
        ([{}], "number None after 0"),
        ([{**ROW, "seq": "1"}], "number '1' after 0"),
        ([{name: value for name, value in ROW.items() if name != "digest"}], "a row without digest"),
        (ROW, "number 1 after 1"),
    ],
    ids=["scalar", "empty", "words", "no digest", "endless"],
)
async def test_a_log_that_is_none_is_an_unexpected_reply(rows: Any, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(UnexpectedReply, match=complaint):
        await collect(rows, {"ETag": '"1"'}, tmp_path / "log")


@pytest.mark.parametrize("etag", [{}, {"ETag": 'W/"abc"'}], ids=["none", "weak"])
async def test_a_value_without_a_version_is_no_answer(etag: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UnexpectedReply, match="at version"):
        await collect([ROW], etag, tmp_path / "log")
