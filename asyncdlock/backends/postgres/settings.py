"""What a `postgres://` URL and its options say, checked before anything is sent."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from asyncdlock import _options
from asyncdlock._url import TLS_OPTIONS, Address, LockURL
from asyncdlock.backends.postgres.schema import SCHEMA

_DEFAULT_PORT = 5432
_LEAST_PATIENCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the database is, and how locks are kept there."""

    addresses: tuple[Address, ...]
    """Of one server, or of a primary and its standbys."""
    database: str | None = None
    """None, as of the next two: what the driver takes from the environment, as `psql` does."""
    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    """None: as the driver does it, which is to encrypt where the server can."""
    schema: str = SCHEMA
    """Our tables and functions live in it."""
    pooler: bool = False
    """A pooler stands in between and keeps no sessions: nobody can be told anything."""
    connect_timeout: float = 5.0
    request_timeout: float = 5.0
    """How long one request may take, repetitions included, in seconds."""
    patience: float = 3.0
    """For how long a waiter that does not speak counts as alive, in seconds."""
    local_queue: bool = True
    """Waiters of this process share one place per key in the server's queue."""
    local_handoffs: int = 256
    """How often a lock may pass on within this process before the others get their turn."""


def parse(url: str, options: Mapping[str, Any]) -> Settings:
    """Settings from `postgres://[user:password@]host[:port],…[/database][?option=value]` and named options.

    :raises ValueError: a malformed URL, an unknown option, or a value out of range.
    """
    where = LockURL.split(url)
    addresses = where.addresses(_DEFAULT_PORT, "localhost")
    user, password = where.one_login(addresses)
    values = _options.read(_options.gather(where.query, options), _OPTIONS, scheme=where.scheme)
    values.setdefault("local_queue", values.get("local_handoffs") != 0)
    if not values["local_queue"]:
        values["local_handoffs"] = 0
    if values.get("patience", _LEAST_PATIENCE) < _LEAST_PATIENCE:
        raise ValueError(f"patience must be at least {_LEAST_PATIENCE:g} s, not {values['patience']:g}")
    if values.pop("sslmode", None):
        values.setdefault("tls", True)
    if tls := where.tls("postgress", values):
        values["tls"] = tls.context()
    values = {"user": user or None, "password": password or None} | values
    return Settings(addresses=tuple(addresses), database=unquote(where.path[1:]) or None, **values)


def _sslmode(name: str, value: Any) -> bool:
    """libpq's word for the only kind of encryption that also asks who answers."""
    if value != "verify-full":
        raise ValueError(
            f"{name} must be verify-full, which is tls=true; without it, servers may encrypt or not"
        )
    return True


_OPTIONS: dict[str, _options.Reader] = {
    "user": _options.text,
    "password": _options.text,
    **TLS_OPTIONS,
    "sslmode": _sslmode,
    "schema": _options.text,
    "pooler": _options.flag,
    "connect_timeout": _options.seconds(),
    "request_timeout": _options.seconds(),
    "patience": _options.seconds(),
    "local_queue": _options.flag,
    "local_handoffs": _options.count(most=1_000_000),
}
