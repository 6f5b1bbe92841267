"""Fixtures of the tests with faults."""

import uuid

import pytest


@pytest.fixture
def key() -> str:
    return f"k-{uuid.uuid4().hex}"
