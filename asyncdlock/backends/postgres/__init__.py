"""postgres://: a leased row for each key, a fair queue, and NOTIFY to wake waiters."""

from typing import Any

from asyncdlock.backends.postgres.backend import PostgresBackend
from asyncdlock.backends.postgres.settings import parse

__all__ = ["PostgresBackend", "from_url"]


def from_url(url: str, **options: Any) -> PostgresBackend:
    """The backend for `url`, unconnected.

    :raises ValueError: malformed URL, unknown or invalid option.
    """
    return PostgresBackend(parse(url, options))
