"""What a process of the load has: counted before its clients are opened, and after they are closed."""

import asyncio
import gc
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

import asyncdlock
from asyncdlock import LockClient
from harness.lab.actor import warm
from harness.torture.plan import OPTIONS

_SETTLES_WITHIN = 10.0


def possessions() -> dict[str, int]:
    """How many descriptors are open, and how much memory is resident."""
    gc.collect()
    descriptors = sum(_target(entry) != os.devnull for entry in Path("/proc/self/fd").iterdir())
    return {"descriptors": descriptors, "rss": psutil.Process().memory_info().rss}


async def open_clients(spec: Mapping[str, Any], key: str) -> tuple[dict[str, int], list[LockClient]]:
    """What this process had before, and a client for each way to use this backend."""
    options = OPTIONS.get(spec["backend"], ({},))
    for one in options:  # what the first connections leave is no leak
        async with asyncdlock.connect(spec["url"], **one) as client:
            await warm(client, key)
    return possessions(), [asyncdlock.connect(spec["url"], **one) for one in options]


async def close_clients(before: Mapping[str, int], clients: Sequence[LockClient]) -> dict[str, Any]:
    """What is left of them, beside what there was before."""
    for client in clients:
        await client.aclose()
    tasks = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return {"before": dict(before), "after": await _settled(before), "tasks": tasks}


async def _settled(before: Mapping[str, int]) -> dict[str, int]:
    """What is left once gRPC has had time: it closes its sockets in threads of its own."""
    until = time.monotonic() + _SETTLES_WITHIN
    while (after := possessions())["descriptors"] > before["descriptors"] and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return after


def _target(descriptor: Path) -> str:
    """What a descriptor of ours leads to. The null device is none: gRPC opens it once, and keeps it."""
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:  # that of the listing itself, or gRPC has just closed it
        return os.devnull
