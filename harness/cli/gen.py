"""`python -m harness gen --keys N --seed S`: fills a Redis with short-lived locks; see `lab.scale.fill`."""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

from harness import servers
from harness.cli.flags import flag, on_off, positive_int
from harness.config import UsageError
from harness.durations import format_duration, parse_positive_duration
from harness.lab.scale.fill import MOST_KEYS, fill
from harness.report.terminal import make_console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--keys", positive_int, "how many locks (default %(default)s)", default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the same seed, the same keys")
    parser.add_argument(
        "--url", metavar="U", help="the server to fill; without it, one is started and stopped again"
    )
    flag(parser, "--ttl", parse_positive_duration, "of each (default 60s)", default=60.0, metavar="D")
    fences = "also the counter of each lock, which never expires (default on)"
    flag(parser, "--fences", on_off, fences, default=True, metavar="on|off")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, and no progress")


async def run(args: argparse.Namespace) -> int:
    """Fill, with a progress bar; returns 0.

    :raises UsageError, ServerError: no server that can be filled.
    """
    if args.keys > MOST_KEYS:
        raise UsageError(f"--keys {args.keys}: at most {MOST_KEYS:,} can be told apart")
    async with contextlib.AsyncExitStack() as stack:
        url = args.url or (await stack.enter_async_context(servers.redis())).url
        with _bar(args.keys, shown=not args.json) as advance:
            filled = await fill(
                url, args.keys, seed=args.seed, ttl=args.ttl, fences=args.fences, progress=advance
            )
    if args.json:
        print(json.dumps(asdict(filled) | {"share_of_limit": round(filled.share_of_limit, 3)}))
        return 0
    print(
        f"{filled.keys:,} locks ({filled.new:,} new) in {format_duration(filled.seconds)}: "
        f"{filled.per_s:,.0f} per second, {filled.share_of_limit:.0%} of the raw pipelined limit of "
        f"{filled.raw_limit_per_s:,.0f}; used_memory {filled.used_memory / 2**20:,.0f} MiB"
    )
    return 0


@contextlib.contextmanager
def _bar(keys: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("filling"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=make_console(), disable=not shown) as progress:
        task = progress.add_task("filling", total=keys)
        yield lambda count: progress.advance(task, count)
