"""Reads `redlock[s]://[user:password@]host[:port],…[/db][?option=value…]`."""

from typing import Any

from asyncdlock._url import redact
from asyncdlock.backends.redis.node import Node
from asyncdlock.backends.redis.url import RedisURL
from asyncdlock.backends.redlock.backend import MOST_NODES, RedlockBackend
from asyncdlock.backends.redlock.member import Member

_NODE_TIMEOUT = 0.25
_CONNECT_TIMEOUT = 2.0


def from_url(url: str, **options: Any) -> RedlockBackend:
    """The backend for 1 to 15 nodes, unconnected.

    :raises ValueError: malformed URL, unknown or invalid option.
    """
    where = RedisURL.parse(url, options, known={"node_timeout": float, "local_queue": bool})
    logins = dict(zip(where.hosts, where.logins, strict=True))
    if len(logins) != len(where.hosts):
        raise ValueError(f"a node stands twice in {redact(url)!r}: a majority needs different nodes")
    if len(logins) > MOST_NODES:
        raise ValueError(f"redlock:// takes at most {MOST_NODES} nodes, not {len(logins)}")
    # The order of the nodes is part of the fence: it must not depend on how the URL is written.
    # No patience with a node that is down: the majority is what bridges it.
    members = [
        Member(
            Node(where.opener_to(host, port, **logins[host, port]), reconnect_for=0.0, **where.wire),
            f"{host}:{port}",
        )
        for host, port in sorted(logins)
    ]
    return RedlockBackend(
        members,
        node_timeout=where.ours.get("node_timeout", _NODE_TIMEOUT),
        local_queue=where.ours.get("local_queue", True),
        connect_timeout=where.theirs.get("socket_connect_timeout") or _CONNECT_TIMEOUT,
    )
