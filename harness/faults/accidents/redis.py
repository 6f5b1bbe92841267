"""Accidents with redis-cli."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from harness.faults.accidents.accident import Accident, Site
from harness.servers.redis_node import RedisNode

_FULL_FOR = 0.3  # seconds


def _command(*words: str) -> Callable[[Site], Awaitable[None]]:
    async def send(site: Site) -> None:
        await cast(RedisNode, site.node).command(*(word.format(key=site.key) for word in words))

    return send


async def _kill_connections(site: Site) -> None:
    for kind in ("normal", "pubsub"):
        await _command("CLIENT", "KILL", "TYPE", kind)(site)


async def _fill_memory(site: Site) -> None:
    """As when others fill it: writes are refused until there is room again."""
    await _command("CONFIG", "SET", "maxmemory", "1")(site)
    try:
        await asyncio.sleep(_FULL_FOR)
    finally:
        await _command("CONFIG", "SET", "maxmemory", "0")(site)


ALL = (
    Accident("DEL of a lock", _command("DEL", "{key}"), frees="one"),
    Accident("DEL of a fence counter", _command("DEL", "fence:{{{key}}}"), forgets="one"),
    Accident("FLUSHALL", _command("FLUSHALL"), frees="all", forgets="all"),
    Accident("SCRIPT FLUSH", _command("SCRIPT", "FLUSH")),
    Accident("CLIENT KILL", _kill_connections),
    Accident("maxmemory reached", _fill_memory),
)
WITH_A_QUEUE = (Accident("DEL of a queue", _command("DEL", "queue:{{{key}}}", "sessions:{{{key}}}")),)
