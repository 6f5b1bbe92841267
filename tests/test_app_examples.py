"""The web applications among the examples: real servers, real requests, one lock between two processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import asyncdlock
from harness.servers.ports import free_port

ROOT = Path(__file__).parent.parent
PROGRAMS = {
    "fastapi_app": "import uvicorn; uvicorn.run('examples.fastapi_app:app', host='127.0.0.1', port={port})",
    "django_app": "from wsgiref.simple_server import make_server; "
    "from examples.django_app import application as app; "
    "make_server('127.0.0.1', {port}, app).serve_forever()",
    "aiohttp_app": "from aiohttp import web; from examples.aiohttp_app import make_app; "
    "web.run_app(make_app(), host='127.0.0.1', port={port})",
}


@contextmanager
def serving(example: str, lock_url: str) -> Iterator[str]:
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAMS[example].format(port=port)],
        cwd=ROOT,
        env={**os.environ, "LOCK_URL": lock_url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        assert child.wait(60) in (0, -15)


def request(url: str) -> httpx.Response:
    """As soon as it answers."""
    with httpx.Client(transport=httpx.HTTPTransport(retries=12), timeout=60, trust_env=False) as client:
        return client.post(url)


@pytest.mark.parametrize("example", PROGRAMS)
async def test_a_report_is_rendered_by_one_at_a_time(example: str, redis_url: str) -> None:
    with serving(example, redis_url) as app:
        url, key = f"{app}/reports/{example}", f"report:{example}"
        first, second = request(url), request(url)
        assert (first.status_code, second.status_code) == (200, 200)
        assert second.json()["fence"] > first.json()["fence"]
        async with asyncdlock.connect(redis_url) as locks:
            async with locks.hold(key):
                assert request(url).status_code == 409
            assert request(url).status_code == 200
            # FastAPI ends a dependency after the answer has left: wait until it is given back.
            await (await locks.acquire(key, timeout=30)).release()


@pytest.mark.parametrize("example", PROGRAMS)
def test_a_lock_server_that_is_away_is_503(example: str) -> None:
    with serving(example, f"redis://127.0.0.1:{free_port()}") as app:
        assert request(f"{app}/reports/any").status_code == 503
