"""Processes of a torture with a bug."""

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import asyncdlock
from harness.lab.forkserver import Channel
from harness.resource.client import ResourceClient
from harness.torture.load import load
from harness.torture.soak_load import soak_load


def exclude_nobody(spec: Mapping[str, Any], channel: Channel) -> None:
    """Every process has locks of its own: each of them grants what it is asked for."""
    asyncdlock.connect = partial(asyncdlock.connect, prefix=f"{os.getpid()}:")
    load(spec, channel)


def leave_a_task(spec: Mapping[str, Any], channel: Channel) -> None:
    """Starts something that nobody ends."""
    gather, left = asyncio.gather, []

    def forgetful(*some: Any) -> Any:
        left.append(asyncio.ensure_future(asyncio.sleep(600)))
        return gather(*some)

    asyncio.gather = forgetful  # type: ignore[assignment]
    load(spec, channel)


def leak_while_soaking(spec: Mapping[str, Any], channel: Channel) -> None:
    """Every write leaves a descriptor and a task behind."""
    put, left = ResourceClient.put, []

    async def forgetful(*words: Any, **more: Any) -> Any:
        left.append((os.open(os.devnull, os.O_RDONLY), asyncio.ensure_future(asyncio.sleep(600))))
        return await put(*words, **more)

    ResourceClient.put = forgetful  # type: ignore[method-assign]
    soak_load(spec, channel)


def end_while_soaking(spec: Mapping[str, Any], channel: Channel) -> None:
    """A load that dies when it is told to begin."""
    channel.say("ready")
    channel.hear()
