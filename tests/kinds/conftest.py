"""The fixtures of tests/contract/fixtures.py, for this folder."""

from tests.contract.fixtures import case, claims, connect, key, locks, ttl, url

__all__ = ["case", "claims", "connect", "key", "locks", "ttl", "url"]
