"""The backends under contract. A new one joins every contract and cancellation test by one entry here."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from kazoo.client import KazooClient
from redis.asyncio import Redis

import asyncdlock
from asyncdlock.backends import memory
from harness.servers.catalogue import INSTALLATIONS
from tests.backends import postgres_probe

Inspector = Callable[[str, str], Awaitable[list[str]]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A backend of the catalogue, and how to see what it keeps on its server."""

    name: str
    claims: Inspector
    """What the server at a URL stores for a key: the holder, then whoever waits. Empty: nothing."""
    query: str = ""
    """Added to the URL."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Given to `connect` in every test."""
    own_place: Mapping[str, Any] = field(default_factory=dict)
    """Options that give every waiter its own place on the server."""
    ttl: float = 0.5
    """The shortest that a loaded machine can be trusted to renew in time."""
    crowd: int = 1000
    """So many waiters at once are reasonable."""
    consecutive: bool = True
    """Whether a fence is the one before, or a floor, plus one."""

    scheme: str = ""
    """Of its URL, where that is not its name."""

    def __str__(self) -> str:
        return "-in-".join([self.name, *self.options.values()])

    @property
    def can(self) -> asyncdlock.Capabilities:
        """What the backend promises; it is not asked over the network for that."""
        nobody = ",".join(f"nobody-{node}.invalid" for node in range(INSTALLATIONS[self.name].votes))
        url = f"{self.scheme or self.name}://{nobody}{self.query}"
        return asyncdlock.connect(url, metrics=False).capabilities


async def _memory_claims(url: str, key: str) -> list[str]:
    lock = memory._servers[url.partition("://")[2]].get(key)
    if lock is None:
        return []
    return [
        *(() if lock.is_free() else (*lock.sharers,) if lock.sharers else (lock.owner or "",)),
        *lock.waiters,
    ]


async def _redis_claims(url: str, key: str) -> list[str]:
    server = "redis://" + url.partition("://")[2]
    async with Redis.from_url(
        server, decode_responses=True, socket_connect_timeout=60, socket_timeout=60
    ) as redis:
        holder = await redis.get(key)
        waiting = await redis.zrange(f"queue:{{{key}}}", 0, -1)
        beside = await redis.zrange(f"holders:{{{key}}}", 0, -1)
        stray = [] if waiting or not await redis.exists(f"sessions:{{{key}}}") else ["sessions"]
        return [*(beside or ([] if holder is None else [holder])), *waiting, *stray]


async def _redlock_claims(url: str, key: str) -> list[str]:
    """What is stored on the node that stores most, once the nodes agree or will not.

    A verb returns when a majority has answered; the others do what it asked a moment later.
    """
    nodes = url.partition("://")[2].partition("?")[0].split(",")
    patience = time.monotonic() + 2.0
    while True:
        found = [await _redis_claims(f"redis://{node}", key) for node in nodes]
        if all(one == found[0] for one in found) or time.monotonic() > patience:
            return max(found, key=len)


async def _etcd_claims(url: str, key: str) -> list[str]:
    prefix = f"/locks/{key}/".encode()
    question = {
        "key": base64.b64encode(prefix).decode(),
        "range_end": base64.b64encode(prefix[:-1] + bytes([prefix[-1] + 1])).decode(),
    }
    address = urlsplit(url).netloc.split(",")[0]
    async with aiohttp.ClientSession(raise_for_status=True) as session:
        async with session.post(f"http://{address}/v3/kv/range", json=question) as reply:
            found = (await reply.json()).get("kvs", [])
    return [base64.b64decode(kv["key"]).decode() for kv in found]


async def _zookeeper_claims(url: str, key: str) -> list[str]:
    return await asyncio.to_thread(_zookeeper_children, url.partition("://")[2], f"/locks/{key}")


def _zookeeper_children(hosts: str, path: str) -> list[str]:
    client = KazooClient(hosts)
    client.start()
    try:
        return list(client.get_children(path)) if client.exists(path) else []
    finally:
        client.stop()
        client.close()


_OWN_PLACE = {"local_queue": False}

CASES = [
    Case(name="memory", claims=_memory_claims),
    Case(
        name="redis",
        claims=_redis_claims,
        own_place=_OWN_PLACE,
    ),
    Case(
        name="redis-queue",
        claims=_redis_claims,
        own_place=_OWN_PLACE,
    ),
    Case(
        name="redis-queue",
        claims=_redis_claims,
        options={"renew_in": "thread"},
        own_place=_OWN_PLACE,
    ),
    Case(
        name="redlock",
        query="?node_timeout=10",
        claims=_redlock_claims,
        own_place=_OWN_PLACE,
        ttl=2.0,  # a node has a tenth of it to answer
        crowd=12,  # contenders split the votes, and each vote costs ten requests
        consecutive=False,  # 16 for each count, and a lost vote counts as well
    ),
    Case(
        name="etcd",
        query="?min_ttl=1",  # the fixture's election timeout allows it
        claims=_etcd_claims,
        own_place=_OWN_PLACE,
    ),
    Case(
        name="zookeeper",
        claims=_zookeeper_claims,
        own_place=_OWN_PLACE,
    ),
    Case(
        name="postgres",
        ttl=1.5,  # a commit on a loaded disk may take half a second
        claims=postgres_probe.claims,
        own_place=_OWN_PLACE,
    ),
    Case(
        name="pgbouncer",  # the same, and nobody can be told anything
        scheme="postgres",
        ttl=1.5,
        claims=postgres_probe.claims,
        own_place=_OWN_PLACE,
        crowd=100,
    ),
]


def backends(
    *,
    that: Callable[[asyncdlock.Capabilities], bool] = lambda can: True,
    only: Callable[[Case], bool] = lambda case: True,
) -> pytest.MarkDecorator:
    """Runs a test, or a module, over the backends that promise what it is about.

    On the others there is nothing to test: they get no test that is skipped. Who promises what is held
    against a table in test_promises.py, so that none can drop out by forgetting a promise.
    """
    chosen = [case for case in CASES if only(case) and that(case.can)]
    assert chosen
    return pytest.mark.parametrize("case", chosen, ids=str)
