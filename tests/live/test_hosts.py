"""Ports on loopback answer to loopback names alone: a stranger's page must not read them."""

import asyncio
import logging

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from harness.config import RunConfig
from harness.live.hosts import is_local
from harness.live.metrics import MetricsServer
from harness.live.server import LivePage
from harness.load.fleet import Progress

STRANGERS = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]", "a:b:c"]
OURS = ["localhost", "LOCALHOST:8080", "a.localhost", "127.0.0.1", "127.8.9.1:99", "[::1]:80", None]


def test_loopback_names_are_local_and_nothing_else_is() -> None:
    assert not any(map(is_local, STRANGERS))
    assert all(map(is_local, OURS))


async def _status(url: str, host: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url, headers={"Host": host}) as reply:
        return reply.status


@pytest.mark.parametrize(("host", "status"), [("evil.example", 421), ("localhost:1", 200)])
async def test_the_live_page_answers_to_local_names_alone(host: str, status: int) -> None:
    live = LivePage(RunConfig())
    await live.open(0)
    try:
        assert await _status(live.url, host) == status
    finally:
        await live.aclose()


@pytest.mark.parametrize(("host", "status"), [("evil.example", 421), ("localhost:1", 200)])
async def test_the_metrics_answer_to_local_names_alone(host: str, status: int) -> None:
    server = MetricsServer(0, CollectorRegistry())
    try:
        assert await _status(server.url, host) == status
    finally:
        await asyncio.to_thread(server.close)


async def test_a_browser_that_leaves_the_stream_of_events_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    live = LivePage(RunConfig())
    await live.open(0)
    try:
        _, host, port = live.url.rstrip("/").replace("//", "").split(":")
        with caplog.at_level(logging.WARNING):
            for _ in range(5):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert await reader.readuntil(b"begin\n") != b""
                writer.transport.abort()
                for _ in range(20):
                    live.progress(Progress())
                    await asyncio.sleep(0.005)
        slow = "Executing %s took %.3f seconds"  # the debug mode's remark on a busy machine
        assert [record for record in caplog.records if record.msg != slow] == []
    finally:
        await live.aclose()
