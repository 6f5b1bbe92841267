"""Keeps real servers up for a developer, until Ctrl-C."""

import asyncio
import signal
import sys
from contextlib import AsyncExitStack

from harness.servers.catalogue import INSTALLATIONS, Installation, LockServer
from harness.servers.errors import ServerError, ServerMissing
from harness.servers.s3_node import s3_with_bucket

_OK, _USAGE, _DIED = 0, 2, 3  # as of every other command of the harness
_ENDINGS = (signal.SIGINT, signal.SIGTERM)
_LOOK_EVERY = 0.5


_S3 = Installation(
    name="s3", about="one S3 server, for the fenced resource", build=s3_with_bucket, backend=False
)
OFFERS = {name: one for name, one in INSTALLATIONS.items() if one.build is not None} | {_S3.name: _S3}


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
    except ServerMissing as missing:
        print(f"harness: {missing}", file=sys.stderr)
        return _USAGE
    except ServerError as failed:
        print(f"harness: {failed}", file=sys.stderr)
    return _DIED


async def _serve(names: list[str]) -> None:
    started: list[LockServer] = []
    async with AsyncExitStack() as stack:
        for name in names:
            started.append(await stack.enter_async_context(OFFERS[name].start()))
            print(started[-1].url, flush=True)
        uses = "".join(f"    python -m harness {_use(server.url)}\n" for server in started)
        print(f"\nIn another terminal:\n{uses}Ctrl-C stops all of it.", flush=True)
        nodes = [node for server in started for node in server.nodes]
        while True:
            for node in nodes:
                node.check()
            await asyncio.sleep(_LOOK_EVERY)


def _use(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme == "http":  # S3, which takes any credentials, and has to be given some
        return f"resource --store 's3:http://any:any@{rest}/harness'"
    return f"--url '{url}'"
