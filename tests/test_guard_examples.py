"""The examples of the guards, on real stores: the displaced holder is refused and stores nothing."""

from collections.abc import Iterator

import pytest

from harness import servers
from harness.servers.s3_node import s3
from tests.conftest import _started
from tests.test_examples import ROOT, run


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with _started(servers.postgres()) as node:
        yield node.url


def test_postgres(dsn: str) -> None:
    said = run(ROOT / "examples/guard_postgres.py", dsn)
    assert "refused: " in said
    assert said.endswith("balance: 90\n")


def test_s3() -> None:
    with _started(s3()) as node:
        said = run(ROOT / "examples/guard_s3.py", node.url)
    assert "refused: " in said
    assert said.endswith("stored: b'by the quick worker'\n")


def test_redis(redis_url: str) -> None:
    said = run(ROOT / "examples/guard_redis.py", redis_url)
    assert "refused: " in said
    assert said.endswith("stored: b'two apples'\n")


def test_etcd(etcd_url: str) -> None:
    said = run(ROOT / "examples/guard_etcd.py", etcd_url)
    assert "refused: " in said
    assert said.endswith("stored: b'new'\n")


def test_a_service_of_ones_own() -> None:
    said = run(ROOT / "examples/guard_service.py").splitlines()
    assert [line.split(": ")[1].split()[0] for line in said[:3]] == ["200", "409", "403"]
    assert said[3] == "stored: b'by the quick worker'"


def test_a_service_with_its_marks_in_postgres(dsn: str) -> None:
    said = run(ROOT / "examples/guard_aiohttp.py", dsn).splitlines()
    assert [line.split(": ")[1].split()[0] for line in said[:2]] == ["200", "409"]
    assert said[2] == "stored: ['by the quick worker']"
