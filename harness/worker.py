"""`python -m harness worker`: one real worker process that says what it does, a JSON object a line.

    {"event": "granted", "at": 12.345678, "key": "job", "fence": 33, "owner": "…"}

`at` is the monotonic clock in seconds, the same for all processes of a machine. Every line is flushed
before the next step is taken, so that whoever freezes or kills the process knows how far it had come.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import REGISTRY

import asyncdlock
from asyncdlock import AcquireTimeout, LockClient, LockError
from harness import exits
from harness.clock import now
from harness.durations import parse_duration, parse_positive_duration
from harness.flags import on_off, patience, port_number, positive_int, typed
from harness.metrics import MetricsServer
from harness.writer import FencedWriter, open_writer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", required=True, metavar="U", help="the lock server, e.g. redis://127.0.0.1:6379/0"
    )
    parser.add_argument("--key", required=True, metavar="KEY", help="the lock, and where to write")
    parser.add_argument(
        "--resource-url", metavar="U", help="the fenced resource; without one nothing is written"
    )
    parser.add_argument(
        "--ttl", type=typed(parse_positive_duration), default=10.0, metavar="D", help="the lease"
    )
    parser.add_argument(
        "--timeout",
        type=typed(patience),
        default=None,
        metavar="D|none",
        help="give up waiting (default none)",
    )
    parser.add_argument(
        "--pause",
        type=typed(parse_duration),
        default=0.0,
        metavar="D",
        help="stop the whole process for so long between grant and write, renewal included: a garbage "
        "collector's pause, a frozen host",
    )
    parser.add_argument(
        "--work", type=typed(parse_duration), default=0.0, metavar="D", help="then work for so long"
    )
    parser.add_argument(
        "--renew",
        type=typed(on_off),
        default=True,
        metavar="on|off",
        help="extend the lease in the background",
    )
    parser.add_argument(
        "--fence",
        type=typed(on_off),
        default=True,
        metavar="on|off",
        help="send the fencing token with the write; off is a worker that knows no better",
    )
    parser.add_argument(
        "--count", type=typed(positive_int), default=1, metavar="N", help="how often (default %(default)s)"
    )
    parser.add_argument("--body", metavar="TEXT", help="what to write (default: the owner's identifier)")
    parser.add_argument(
        "--metrics-port", type=typed(port_number), metavar="P", help="serve /metrics on this port"
    )


async def run(args: argparse.Namespace) -> int:
    """Do the work; 0 when every turn came to its end, whatever the resource said, 3 when one failed.

    SIGTERM and Ctrl-C end it: the lock is given back.

    :raises UsageError: the metrics port is taken.
    """
    with _metrics(args.metrics_port) as url:
        say("started", key=args.key, ttl=args.ttl, metrics=url)
        work = asyncio.ensure_future(_turns(args))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        try:
            return await work
        except asyncio.CancelledError:
            say("interrupted")
            return exits.INTERRUPTED


def say(event: str, **details: Any) -> None:
    """One line about what happened just now."""
    facts = {name: value for name, value in details.items() if value is not None}
    print(json.dumps({"event": event, "at": round(now() / 1e9, 6), **facts}), flush=True)


async def _turns(args: argparse.Namespace) -> int:
    try:
        client = asyncdlock.connect(args.url)
    except (ValueError, ImportError) as error:
        say("failed", error=str(error))
        return exits.UNTRUSTED
    async with client, contextlib.AsyncExitStack() as stack:
        writer = None
        if args.resource_url is not None:
            writer = await stack.enter_async_context(open_writer(args.resource_url))
        failed = False
        for _ in range(args.count):
            try:
                failed |= not await _turn(args, client, writer)
            except AcquireTimeout as error:
                say("timed_out", error=str(error))
            except (LockError, ValueError, OSError) as error:
                say("failed", error=str(error))
                failed = True
        return exits.UNTRUSTED if failed else exits.OK


async def _turn(args: argparse.Namespace, client: LockClient, writer: FencedWriter | None) -> bool:
    """Acquire, pause, work, write, release. False when the write's fate is not known."""
    say("acquiring", key=args.key)
    handle = await client.acquire(args.key, ttl=args.ttl, timeout=args.timeout, renew=args.renew)
    say(
        "granted",
        key=args.key,
        fence=handle.fence,
        owner=handle.owner,
        remaining=round(handle.remaining(), 6),
    )
    if args.pause:
        say("pausing", seconds=args.pause)
        time.sleep(args.pause)  # noqa: ASYNC251 - the whole process is to stand still
        say("resumed")
    if args.work:
        await asyncio.sleep(args.work)
    decided = True
    if writer is not None:
        body = (args.body if args.body is not None else handle.owner).encode()
        say("writing", fence=handle.fence, held=handle.held)
        reply = await writer.put(
            args.key, fence=handle.fence if args.fence else None, owner=handle.owner, body=body
        )
        say(reply.write, fence=handle.fence, seen=reply.seen, error=reply.error)
        decided = reply.write in ("accepted", "stale")
    say("released", owned=await handle.release())
    return decided


@contextlib.contextmanager
def _metrics(port: int | None) -> Iterator[str | None]:
    if port is None:
        yield None
        return
    with contextlib.closing(MetricsServer(port, REGISTRY)) as server:
        yield server.url
