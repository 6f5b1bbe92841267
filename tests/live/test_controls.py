"""The controls of a live page: only who has the token may steer, and only what can be steered."""

import asyncio
from typing import Any

import aiohttp
import pytest

from harness.config import RunConfig, UsageError
from harness.live.controls import HEADER
from harness.live.server import LivePage
from harness.load.dask_fleet import check_fleet
from harness.load.steering import what_can_break
from tests.cli.program import harness


async def _order(url: str, order: Any, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url.partition('#')[0]}steer", json=order, headers=headers) as reply,
    ):
        return reply.status, await reply.text()


@pytest.mark.parametrize(
    ("order", "headers", "status"),
    [
        ({"order": "end"}, {}, 403),
        ({"order": "end"}, {HEADER: "guessed"}, 403),
        ({"order": "end"}, {HEADER: "gu\xe9ss"}, 403),
        ({"order": "end"}, {HEADER: "TOKEN", "Host": "evil.example"}, 421),
        ({"order": "end"}, {HEADER: "TOKEN"}, 409),
        ({"order": "rate", "rate": "nan"}, {HEADER: "TOKEN"}, 409),
        ({"order": "rate", "rate": "many"}, {HEADER: "TOKEN"}, 400),
        ({"order": "rm"}, {HEADER: "TOKEN"}, 400),
        ([], {HEADER: "TOKEN"}, 400),
    ],
)
async def test_orders_need_the_token_and_a_run(order: Any, headers: dict[str, str], status: int) -> None:
    live = LivePage(RunConfig(steer=True))
    await live.open(0)
    try:
        token = live.url.partition("#")[2]
        assert len(token) > 20
        told = {name: value.replace("TOKEN", token) for name, value in headers.items()}
        assert (await _order(live.url, order, **told))[0] == status
        async with aiohttp.ClientSession() as session, session.get(live.url.partition("#")[0]) as page:
            assert token not in await page.text(), "who can read the page cannot steer by that alone"
    finally:
        await live.aclose()


async def test_a_page_that_only_shows_takes_no_orders() -> None:
    live = LivePage(RunConfig(live=0))
    await live.open(0)
    try:
        assert "#" not in live.url
        assert (await _order(live.url, {"order": "end"}))[0] == 404
    finally:
        await live.aclose()


def test_only_what_the_harness_started_can_be_broken_from_the_page() -> None:
    assert what_can_break(RunConfig(url="redis://h", resource_url="http://h")) == ["pause:holder"]
    assert what_can_break(RunConfig(backend="memory", resource_url="http://h")) == ["pause:holder"]
    assert "kill:server5" in what_can_break(RunConfig(backend="redlock"))
    assert "partition:server" in what_can_break(RunConfig())


async def test_several_generators_are_not_steered() -> None:
    with pytest.raises(UsageError, match="--steer is for a single generator"):
        check_fleet(RunConfig(fleet="local:2", steer=True))
    words = ("--share", "1/2", "--url", "redis://127.0.0.1:1", "--resource-url", "http://127.0.0.1:1")
    async with asyncio.timeout(60):
        run = await harness(*words, "--steer")
    assert run.code == 2
    assert "--steer is for a single generator" in run.stderr
