"""The user's page on Redis: its URLs open, and its ACL rules are those that the tests use."""

import re

import pytest

import asyncdlock
from tests.redis_queue.test_access import LEAST_RULES, PAGE

URLS = re.findall(r"`((?:redis|rediss|unix)(?:-queue)?://[^`]+/[^`]+)`", PAGE)


def test_the_page_has_an_example_of_every_kind() -> None:
    kinds = ["redis-queue://h", "@host", "rediss-queue://", "unix-queue://", "=sentinel", "=cluster"]
    assert all(any(kind in url for url in URLS) for kind in kinds)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("suffix", ["-queue", ""])
async def test_every_url_of_the_page_opens(url: str, suffix: str) -> None:
    """Nothing is sent before the first use, but unknown options and malformed parts are refused."""
    client = asyncdlock.connect(url.replace("-queue://", f"{suffix}://"))
    assert client._backend.name == f"redis{suffix}"
    await client.aclose()


def test_the_least_acl_rules_are_those_that_were_tried() -> None:
    block = re.search(r"```\n(~job:.*?)```", PAGE, re.DOTALL)
    assert block is not None
    assert set(block[1].split()) == set(LEAST_RULES)
