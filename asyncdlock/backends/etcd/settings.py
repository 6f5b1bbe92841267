"""What an `etcd://` URL and its options say, checked before anything is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import unquote

from asyncdlock import _options
from asyncdlock.backend import redact

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
    local_queue: bool = True
    """Waiters of this process share one place per key in the server's queue."""
    local_handoffs: int = 0
    """How often a lock may pass on within this process before the others get their turn."""


def parse(url: str, options: Mapping[str, Any]) -> Settings:
    """Settings from `etcd[s]://[user:password@]host[:port],…[/prefix][?option=value]` and keyword options.

    :raises ValueError: a malformed URL, an unknown option, or a value out of range.
    """
    shown = redact(url.partition("?")[0])  # a password may stand in the query as well
    scheme, _, rest = url.partition("://")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, _, hosts = authority.rpartition("@")
    values: dict[str, Any] = {"endpoints": _endpoints(hosts, shown), "tls": scheme == "etcds"}
    if path.strip("/"):
        values["prefix"] = "/" + unquote(path).strip("/")
    if credentials:
        user, colon, password = credentials.partition(":")
        if not user or not colon:
            raise ValueError(f"{shown!r}: credentials are written user:password@host")
        values["user"], values["password"] = unquote(user), unquote(password)

    values |= _options.read(_options.gather(query, options), _OPTIONS, scheme=scheme)
    settings = Settings(**values)
    _check(settings, shown)
    return settings


def _endpoints(hosts: str, shown: str) -> tuple[str, ...]:
    endpoints = []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not colon:
            name, port = host, str(DEFAULT_PORT)
        if not name or (":" in name and not (name[0] == "[" and name[-1] == "]")):
            raise ValueError(f"{shown!r}: {host!r} is not a host; write etcd://host:port,host:port")
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{shown!r}: {port!r} is not a port number")
        endpoints.append(f"{name}:{port}")
    return tuple(endpoints)


def _check(settings: Settings, shown: str) -> None:
    files = (settings.ca_file, settings.cert_file, settings.key_file)
    if any(files) and not settings.tls:
        raise ValueError(f"{shown!r}: certificates are given, so the URL must start with etcds://")
    if (settings.cert_file is None) != (settings.key_file is None):
        raise ValueError(f"{shown!r}: a client certificate needs both cert_file and key_file")
    if (settings.user is None) != (settings.password is None):
        raise ValueError(f"{shown!r}: user and password come together")


_PATIENCE = _options.seconds(most=3600)
_OPTIONS: dict[str, _options.Reader] = {
    "user": _options.text,
    "password": _options.text,
    "ca_file": _options.path,
    "cert_file": _options.path,
    "key_file": _options.path,
    "timeout": _PATIENCE,
    "attempt_timeout": _PATIENCE,
    "min_ttl": _options.count(1),
    "local_queue": _options.flag,
    "local_handoffs": _options.count(),
}
assert set(_OPTIONS) <= {field.name for field in fields(Settings)}
