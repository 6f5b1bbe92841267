"""Fixtures of the core's tests."""

import uuid

import pytest


@pytest.fixture
def key() -> str:
    return f"k-{uuid.uuid4().hex}"
