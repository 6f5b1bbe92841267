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
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from prometheus_client import REGISTRY

import asyncdlock
from asyncdlock._arguments import check_key
from harness import exits
from harness.cli.flags import flag, on_off, patience, port_number, positive_int
from harness.config import UsageError
from harness.durations import parse_duration, parse_positive_duration
from harness.lab.event import Event
from harness.lab.worker import Job, work
from harness.live.metrics import MetricsServer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", required=True, metavar="U", help="the lock server, e.g. redis://127.0.0.1:6379/0"
    )
    parser.add_argument("--key", required=True, metavar="KEY", help="the lock, and where to write")
    parser.add_argument(
        "--resource-url", metavar="U", help="the fenced resource; without one nothing is written"
    )
    flag(parser, "--ttl", parse_positive_duration, "the lease", default=10.0, metavar="D")
    flag(parser, "--timeout", patience, "give up waiting (default none)", default=None, metavar="D|none")
    pause = (
        "stop the whole process for this long between grant and write, renewal included: a garbage "
        "collector's pause, a frozen host"
    )
    flag(parser, "--pause", parse_duration, pause, default=0.0, metavar="D")
    flag(parser, "--work", parse_duration, "then work for this long", default=0.0, metavar="D")
    renew = "extend the lease in the background"
    flag(parser, "--renew", on_off, renew, default=True, metavar="on|off")
    fence = "send the fencing token with the write; off is a worker that knows no better"
    flag(parser, "--fence", on_off, fence, default=True, metavar="on|off")
    flag(parser, "--count", positive_int, "how often (default %(default)s)", default=1, metavar="N")
    parser.add_argument("--body", metavar="TEXT", help="what to write (default: the owner's identifier)")
    flag(parser, "--metrics-port", port_number, "serve /metrics on this port", metavar="P")


async def run(args: argparse.Namespace) -> int:
    """Do the work; 0 when every turn came to its end, whatever the resource said, 3 when one failed.

    SIGTERM and Ctrl-C end it: the lock is given back.

    :raises UsageError: the metrics port is taken; no lock can have this URL or this key.
    """
    job = Job(**{field.name: getattr(args, field.name) for field in fields(Job)})
    with _metrics(args.metrics_port) as url:
        say("started", key=job.key, ttl=job.ttl, metrics=url)
        working = asyncio.ensure_future(_work(job))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, working.cancel)
        try:
            return await working
        except asyncio.CancelledError:
            say("interrupted")
            return exits.INTERRUPTED


def say(event: str, /, **details: Any) -> None:
    """One line about what happened just now."""
    happened = Event.happened(event, **details)
    line = {"event": happened.name, "at": round(happened.at / 1e9, 6), **happened.details}
    print(json.dumps(line), flush=True)


async def _work(job: Job) -> int:
    try:
        check_key(job.key)
        client = asyncdlock.connect(job.url)
    except (ValueError, ImportError) as error:
        say("failed", error=str(error))
        raise UsageError(str(error)) from None
    async with client:
        return exits.OK if await work(job, client, say) else exits.UNTRUSTED


@contextlib.contextmanager
def _metrics(port: int | None) -> Iterator[str | None]:
    if port is None:
        yield None
        return
    with contextlib.closing(MetricsServer(port, REGISTRY)) as server:
        yield server.url
