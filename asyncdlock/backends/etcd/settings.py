"""What an `etcd://` URL and its options say, checked before anything is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import unquote

from asyncdlock import _options
from asyncdlock._url import TLS_OPTIONS, LockURL

DEFAULT_PORT = 2379


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One cluster, how to reach it, and how locks are kept there."""

    endpoints: tuple[str, ...]
    """`host:port` of each member."""
    prefix: str = "/locks"
    """Every lock lives below this; `/locks` is what the rest of the fleet expects."""
    user: str | None = None
    password: str | None = None
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    timeout: float = 5.0
    """How long one request may try all members before it fails, in seconds."""
    attempt_timeout: float = 2.0
    """How long one member may take to answer before the next one is asked, in seconds."""
    min_ttl: int = 2
    """The server's shortest lease; a cluster with a 500 ms election timeout accepts 1."""
    transport: Literal["http2", "grpc"] = "http2"
    """Who carries the requests: this package, or gRPC's own library."""
    local_queue: bool = True
    """Waiters of this process share one place per key in the server's queue."""
    local_handoffs: int = 0
    """How often a lock may pass on within this process before the others get their turn."""


def parse(url: str, options: Mapping[str, Any]) -> Settings:
    """Settings from `etcd[s]://[user:password@]host[:port],…[/prefix][?option=value]` and keyword options.

    :raises ValueError: a malformed URL, an unknown option, or a value out of range.
    """
    where = LockURL.split(url)
    addresses = where.addresses(DEFAULT_PORT)
    user, password = where.one_login(addresses)
    values = _options.read(_options.gather(where.query, options), _OPTIONS, scheme=where.scheme)
    _options.merge(values, "request_timeout", "timeout")
    if "request_timeout" in values:
        values["timeout"] = values.pop("request_timeout")
    if tls := where.tls("etcds", values):
        values |= {"tls": True, **tls._asdict()}
    if prefix := unquote(where.path).strip("/"):
        values["prefix"] = f"/{prefix}"
    values = {"user": user or None, "password": password or None} | values
    if (values["user"] is None) != (values["password"] is None):
        raise ValueError(f"{where.shown!r} needs both a user and a password: etcd://user:password@host")
    return Settings(endpoints=tuple(map(str, addresses)), **values)


_PATIENCE = _options.seconds(most=3600)
_OPTIONS: dict[str, _options.Reader] = {
    "user": _options.text,
    "password": _options.text,
    **TLS_OPTIONS,
    "request_timeout": _PATIENCE,
    "timeout": _PATIENCE,
    "attempt_timeout": _PATIENCE,
    "min_ttl": _options.count(1),
    "transport": _options.one_of("http2", "grpc"),
    "local_queue": _options.flag,
    "local_handoffs": _options.count(),
}
assert set(_OPTIONS) - {"request_timeout"} <= {field.name for field in fields(Settings)}
