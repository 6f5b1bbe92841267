"""Fixtures for tests of the backends: a key of the test's own, and kazoo beside us."""

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.backends.zookeeper_probe import kazoo_client


@pytest.fixture
def key() -> str:
    return f"k-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def kazoo(zookeeper_url: str) -> Iterator[KazooClient]:
    """Looks at the session's ZooKeeper."""
    with kazoo_client(zookeeper_url) as client:
        yield client
