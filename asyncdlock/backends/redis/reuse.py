"""connect(redis=client): where the application's redis-py client connects to, and how.

Asyncio or not, a client or its pool, alone, behind Sentinel or a cluster. Only what says where and as whom to
connect is taken: the connection is our own, and neither decodes nor retries as the application's may.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any, NamedTuple

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection

_TAKEN = frozenset(
    (
        "client_name",
        "credential_provider",
        "db",
        "host",
        "password",
        "path",
        "port",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_timeout",
        "username",
    )
)


# Connections without asyncio know more of them.
_OF_TLS = frozenset(name for name in signature(SSLConnection).parameters if name.startswith("ssl_"))


class Reused(NamedTuple):
    """What a client says of its connections, in the words of `RedisURL`."""

    topology: str
    hosts: list[tuple[str, int]]
    service: str
    encrypted: bool
    theirs: dict[str, Any]
    sentinel_login: dict[str, Any]


def reused(client: Any) -> Reused:
    """Read a client or a pool.

    :raises ValueError: it is neither.
    """
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        options = getattr(client, "connection_kwargs", None) or nodes.connection_kwargs
        hosts = [(node.host, node.port) for node in nodes.startup_nodes.values()]
        return _reused("cluster", options, options.get("connection_class"), hosts)
    pool = getattr(client, "connection_pool", client)
    options = getattr(pool, "connection_kwargs", None)
    if not isinstance(options, Mapping):
        raise ValueError(f"redis must be a client or a pool of redis-py, not {type(client).__name__}")
    finder = getattr(pool, "sentinel_manager", None)
    if finder is None:
        hosts = [] if "path" in options else [(options.get("host", "localhost"), options.get("port", 6379))]
        return _reused("single", options, pool.connection_class, hosts)
    asking = [sentinel.connection_pool.connection_kwargs for sentinel in finder.sentinels]
    found = _reused(
        "sentinel", options, pool.connection_class, [(one["host"], one["port"]) for one in asking]
    )
    login = {name: asking[0][name] for name in ("username", "password") if asking[0].get(name)}
    return found._replace(service=pool.service_name, sentinel_login=login)


def _reused(topology: str, options: Mapping[str, Any], kind: Any, hosts: list[tuple[str, int]]) -> Reused:
    # By name: a class for asyncio and one without, both also for Sentinel.
    encrypted = bool(options.get("ssl")) or "SSL" in getattr(kind, "__name__", "")
    taken = {
        name: value
        for name, value in options.items()
        if value is not None and (name in _TAKEN or (encrypted and name in _OF_TLS))
    }
    opened_by = UnixDomainSocketConnection if "path" in taken else SSLConnection if encrypted else Connection
    return Reused(topology, hosts, "", encrypted, {**taken, "connection_class": opened_by}, {})
