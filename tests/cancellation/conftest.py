"""The fixtures of tests/contract/fixtures.py, for this folder."""

from tests.contract.fixtures import case, claims, connect, key, locks, memory_url, ttl, url

__all__ = ["case", "claims", "connect", "key", "locks", "memory_url", "ttl", "url"]
