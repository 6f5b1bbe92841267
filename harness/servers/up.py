"""Keeps real servers up for a developer, until Ctrl-C."""

import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import NamedTuple, Protocol

from harness import servers
from harness.servers.server import Server

_OK, _USAGE, _DIED = 0, 2, 3  # as of every other command of the harness
_ENDINGS = (signal.SIGINT, signal.SIGTERM)
_LOOK_EVERY = 0.5


class _Started(Protocol):
    @property
    def url(self) -> str: ...
    @property
    def nodes(self) -> Sequence[Server]: ...


class _Offer(NamedTuple):
    start: Callable[[], AbstractAsyncContextManager[_Started]]
    what: str


OFFERS = {
    "redis": _Offer(servers.redis, "one Redis"),
    "redlock": _Offer(servers.redis_nodes, "five independent Redis nodes"),
    "replicated": _Offer(servers.redis_replicated, "a Redis primary and a replica"),
    "sentinel": _Offer(servers.redis_sentinel, "a Redis primary, two replicas, three sentinels"),
    "cluster": _Offer(servers.redis_cluster, "a Redis Cluster of three shards"),
    "etcd": _Offer(servers.etcd, "one etcd member"),
    "etcd3": _Offer(lambda: servers.etcd(3), "three etcd members"),
    "zookeeper": _Offer(servers.zookeeper, "one ZooKeeper"),
    "zookeeper3": _Offer(lambda: servers.zookeeper(3), "three ZooKeepers"),
}


async def up(names: list[str]) -> int:
    """Start the named servers, print one URL per line, and keep them up until Ctrl-C or SIGTERM.

    Returns 0 then; 2 when a server is not installed; 3 when one failed or died. Nothing stays up,
    also when cancelled.
    """
    loop = asyncio.get_running_loop()
    serving = asyncio.create_task(_serve(names))
    for number in _ENDINGS:
        loop.add_signal_handler(number, serving.cancel)
    try:
        await asyncio.wait([serving])
    finally:
        for number in _ENDINGS:
            loop.remove_signal_handler(number)
        if serving.cancel():
            await asyncio.wait([serving])
    if serving.cancelled():
        return _OK
    try:
        serving.result()
    except servers.ServerMissing as missing:
        print(f"harness: {missing}", file=sys.stderr)
        return _USAGE
    except servers.ServerError as failed:
        print(f"harness: {failed}", file=sys.stderr)
    return _DIED


async def _serve(names: list[str]) -> None:
    started: list[_Started] = []
    async with AsyncExitStack() as stack:
        for name in names:
            started.append(await stack.enter_async_context(OFFERS[name].start()))
            print(started[-1].url, flush=True)
        runs = "".join(f"    python -m harness --url '{server.url}'\n" for server in started)
        print(f"\nIn another terminal:\n{runs}Ctrl-C stops all of it.", flush=True)
        nodes = [node for server in started for node in server.nodes]
        while True:
            for node in nodes:
                node.check()
            await asyncio.sleep(_LOOK_EVERY)
