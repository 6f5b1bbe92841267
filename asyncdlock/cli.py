"""The command line: asyncdlock hold | ls | inspect | release. Also `python -m asyncdlock`."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NoReturn

from asyncdlock import __version__, _child
from asyncdlock._connect import connect
from asyncdlock._durations import parse_duration, parse_positive_duration
from asyncdlock.client import LockClient
from asyncdlock.errors import AcquireTimeout, LockError, LockLost
from asyncdlock.types import LockInfo

OK, NOBODY, TROUBLE = 0, 1, 2
CRASHED = 70
TIMED_OUT = 75
LOST = 76
NOT_EXECUTABLE, NOT_FOUND = 126, 127

Command = Callable[[LockClient, argparse.Namespace], Coroutine[Any, Any, int]]

_AT_ONCE = 50  # locks that `ls` looks at together

_EXAMPLES = {
    "hold": "asyncdlock --url redis-queue://localhost hold nightly-report --timeout 10s -- ./report.sh",
    "ls": "ASYNCDLOCK_URL=etcd://e1,e2,e3 asyncdlock ls",
    "inspect": "asyncdlock inspect account:42 --json",
    "release": "asyncdlock release --force account:42",
}

_EXIT_CODES = """\
exit codes:
  0    done
  1    release: nobody held the lock
  2    something is wrong with the arguments, the URL or the lock server; one sentence says what
  70   a defect of this program

and those of hold:
  the command's own, 128 + n when signal n ended it or the wait for the lock
  75   the lock was not granted within --timeout
  76   the lock was lost, and the command was stopped or had just ended
  126  the command cannot be executed
  127  there is no such command
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    ours, command = _split(list(sys.argv[1:] if arguments is None else arguments))
    args = _parser().parse_args(ours)
    args.command = command
    url = getattr(args, "url", "") or os.environ.get("ASYNCDLOCK_URL", "")
    if not url:
        return _complain("which lock server? Give --url, or set ASYNCDLOCK_URL")
    try:
        return asyncio.run(_run(args, url))
    except (LockError, ValueError, ImportError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return 128 + 2
    except BrokenPipeError:  # the reader has seen enough
        return OK
    except Exception as error:
        _complain(f"this is a defect of asyncdlock: {type(error).__name__}: {error}")
        return CRASHED


async def _run(args: argparse.Namespace, url: str) -> int:
    command: Command = args.run
    prefix, label = getattr(args, "prefix", None), getattr(args, "label", None)
    async with connect(url, metrics=False, prefix=prefix, label=label) as locks:
        return await command(locks, args)


# Commands


async def _ls(locks: LockClient, args: argparse.Namespace) -> int:
    keys = sorted([key async for key in locks.keys()])  # noqa: SIM118 - a client is no dictionary
    found: list[LockInfo] = []
    for start in range(0, len(keys), _AT_ONCE):
        found += await asyncio.gather(*map(locks.inspect, keys[start : start + _AT_ONCE]))
    found = [info for info in found if info.held or info.waiters]
    if args.json:
        _print(json.dumps([asdict(info) for info in found], indent=2))
        return OK
    rows = [("KEY", "HOLDER", "FENCE", "LEASE LEFT", "WAITERS")]
    for info in found:
        holder = _shown(info.label or info.owner) if info.held else "(free)"
        rows.append(
            (_shown(info.key), holder, _shown(info.fence), _seconds(info.lease_left), str(len(info.waiters)))
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        _print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    return OK


async def _inspect(locks: LockClient, args: argparse.Namespace) -> int:
    info = await locks.inspect(args.key)
    if args.json:
        _print(json.dumps(asdict(info), indent=2))
        return OK
    _print(f"key         {_shown(info.key)}")
    if info.held:
        _print(f"holder      {_shown(info.label)}")
        _print(f"owner       {_shown(info.owner)}")
        _print(f"since       {_since(info.since)}")
        _print(f"lease left  {_seconds(info.lease_left)}")
        _print(f"fence       {_shown(info.fence)}{_block(info)}")
        for other in info.beside:
            _print(f"beside      {_shown(other.label)}  {_shown(other.owner)}")
    else:
        _print("holder      (free)")
    _print(f"waiters     {len(info.waiters)}")
    for number, waiter in enumerate(info.waiters, start=1):
        _print(f"  {number}. {_shown(waiter.label)}  {_shown(waiter.owner)}")
    return OK


async def _release(locks: LockClient, args: argparse.Namespace) -> int:
    if not args.force:
        return _complain("a lock is its holder's to release; say --force to take it away")
    if await locks.force_release(args.key):
        _print(f"{args.key!r} was taken from its holder; every later fence is above all that were granted")
        return OK
    _print(f"nobody held {args.key!r}")
    return NOBODY


async def _hold(locks: LockClient, args: argparse.Namespace) -> int:
    if not args.command:
        return _complain("what should run under the lock? Write: asyncdlock hold KEY -- command …")
    waiting = asyncio.current_task()
    assert waiting is not None
    with _child.Signals(waiting) as signals:
        try:
            async with locks.hold(args.key, ttl=args.ttl, timeout=args.timeout) as handle:
                environment = {"ASYNCDLOCK_KEY": handle.key, "ASYNCDLOCK_FENCE": str(handle.fence)}
                return await _child.run(args.command, environment, signals, grace=args.grace)
        except AcquireTimeout as late:
            _complain(str(late))
            return TIMED_OUT
        except LockLost as lost:
            _complain(str(lost))
            return LOST
        except OSError as error:
            _complain(f"{args.command[0]} cannot be run: {error.strerror}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        except asyncio.CancelledError:
            if signals.ended_by is None:
                raise
            waiting.uncancel()
            return 128 + signals.ended_by


# What is shown


def _print(line: str) -> None:
    """:raises ValueError: it cannot be written, and nothing will be from now on."""
    if sys.stdout is None:  # we were started without one
        return
    try:
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise ValueError(f"standard output cannot be written: {error.strerror}") from None


def _complain(sentence: str) -> int:
    with suppress(OSError):
        sys.stderr.write(f"asyncdlock: {sentence}\n")
    return TROUBLE


def _shown(value: object) -> str:
    """On one line, and without what a terminal obeys: anybody may have chosen a lock's name."""
    text = "-" if value is None else str(value)
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _since(epoch: float | None) -> str:
    if epoch is None:
        return "-"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(epoch))
    return f"{when} ({max(0.0, time.time() - epoch):.1f} s ago)"


def _block(info: LockInfo) -> str:
    if info.last_fence is None or info.last_fence == info.fence:
        return ""
    return f" (its process may pass the lock on up to {info.last_fence})"


# Arguments


class _Parser(argparse.ArgumentParser):
    """Complains in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(_complain(f"{message}; see {self.prog} --help"))


def _duration(parse: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our own arguments, and the command that is to run under the lock."""
    if "--" in words and "hold" in words[: words.index("--")]:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    return words, []


def _examples(*commands: str) -> str:
    return "\n".join(["examples:", *(f"  {_EXAMPLES[command]}" for command in commands)])


def _where() -> _Parser:
    """Options that may be given before or after the command's name."""
    where = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    where.add_argument("--url", help="the lock server (default: ASYNCDLOCK_URL)")
    where.add_argument("--prefix", help="put before every key on the server")
    return where


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="asyncdlock",
        description="Runs a command under a distributed lock, shows locks, and takes them away.",
        epilog=f"{_examples(*_EXAMPLES)}\n\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_where()],
    )
    parser.add_argument("--version", action="version", version=f"asyncdlock {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Command, text: str, usage: str | None = None) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = commands.add_parser(
            name,
            help=text,
            description=text,
            usage=usage,
            epilog=_examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[_where()],
        )
        added.set_defaults(run=run)
        return added

    ls = command("ls", _ls, "Lists the locks that are held or waited for.")
    inspect = command("inspect", _inspect, "Shows who holds a lock and who waits for it.")
    release = command("release", _release, "Takes a lock away from its holder; all later fences are higher.")
    hold = command(
        "hold",
        _hold,
        "Runs a command while holding a lock; the command sees ASYNCDLOCK_KEY and ASYNCDLOCK_FENCE.",
        "asyncdlock hold KEY [options] -- COMMAND [ARGUMENT ...]",
    )
    for shows in (ls, inspect):
        shows.add_argument("--json", action="store_true", help="print JSON")
    for one in (inspect, release, hold):
        one.add_argument("key", metavar="KEY")
    release.add_argument("--force", action="store_true", help="required, because the holder is not asked")
    hold.add_argument("--label", help="what inspect shows of the holder (default: host:pid)")
    for name, parse, default, text in (
        ("--timeout", parse_duration, None, "how long to wait: 500ms, 10s, 1m (default: for ever)"),
        ("--ttl", parse_positive_duration, 10.0, "how long the lock outlives its holder (default: 10s)"),
        ("--grace", parse_duration, 5.0, "from SIGTERM to SIGKILL when the lock is lost (default: 5s)"),
    ):
        hold.add_argument(name, metavar="D", type=_duration(parse), default=default, help=text)
    return parser
