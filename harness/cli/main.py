"""Parses the command line and calls the command: the run itself, or one of the sub-commands.

A sub-command is a module with `add_arguments(parser)` and `run(args)`, plain or async, that returns
the exit code. It is imported when it is called.
"""

import argparse
import asyncio
import difflib
import errno
import importlib
import importlib.util
import inspect
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import asyncdlock
from harness import exits
from harness.cli.scenario import scenario_words
from harness.config import UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""What a disk says that takes nothing more: no defect of the program."""


class Command(NamedTuple):
    """Where a sub-command lives, and what it is for."""

    module: str
    summary: str
    examples: Sequence[str] = ()


MAIN = Command(
    "harness.cli.run",
    "Drives asyncdlock under contention and judges it from recorded history: a real lock server, a fenced "
    "resource in its own process, arrivals that do not wait for one another, and a verdict.",
    (
        "python -m harness --contenders 1000 --rate 500",
        "python -m harness --backend redis-queue --rate 2000 --duration 30s",
        "python -m harness --fence off --ttl 1s --pause 3s     # two writers, exit code 1",
        "python -m harness --fence on  --ttl 1s --pause 3s     # the same load, made safe by the resource",
        "python -m harness --url redis://127.0.0.1:6379/0 --keys 100000 --key-distribution zipf",
        "python -m harness --backend redis-queue --fault kill:server@5s+1s --fault partition@10s+2s",
        "python -m harness --stages 200/5s,1000/5s,5000/5s",
        "python -m harness --fleet local:4 --backend redis-queue --rate 2000",
        "python -m harness --scenario nightly.toml --out runs/nightly",
        "python -m harness --threshold 'acquire.p99<50ms' --threshold 'failed==0' --quiet",
    ),
)
COMMANDS: Mapping[str, Command] = {
    "experiment": Command(
        "harness.cli.experiment", "Runs a prepared experiment and judges what it predicts."
    ),
    "report": Command("harness.cli.report", "Prints a finished run again."),
    "check": Command("harness.cli.check", "Judges the recorded history of a run again."),
    "compare": Command(
        "harness.cli.compare",
        "Says of two runs, or of two sets of runs, what differs, what does not, and what cannot be told.",
        ("python -m harness compare runs/before runs/after", "python -m harness compare a1,a2,a3 b1,b2,b3"),
    ),
    "merge": Command(
        "harness.cli.merge",
        "Makes one run of the shares that several generators made, and judges it.",
        ("python -m harness merge runs/share-1 runs/share-2 runs/share-3",),
    ),
    "simulate": Command(
        "harness.cli.simulate",
        "A deterministic model of queue, hand-off and the server's thread, for loads beyond these machines.",
        (
            "python -m harness simulate --hosts 1000 --rtt 1ms --rate 1e6 --keys 100000",
            "python -m harness simulate --from runs/measured --sweep rtt=0,1ms,10ms,80ms --rate 5000",
            "python -m harness simulate --from runs/one --against runs/another     # is the model right?",
        ),
    ),
    "torture": Command(
        "harness.cli.torture",
        "Load, faults and administrators' accidents at once, round after round; then looks at everything.",
        (
            "python -m harness torture --backend redis-queue --minutes 10 --seed 7",
            "python -m harness torture --backend all --minutes 60",
            "python -m harness torture --backend etcd --rounds 1 --seed 12     # one round again",
            "python -m harness torture --backend redis --rounds 5 --fence off  # it can fail: exit code 1",
        ),
    ),
    "advise": Command(
        "harness.cli.advise",
        "Measures the pauses of this host, and says what each TTL would mean here.",
        ("python -m harness advise --measure 60s", "python -m harness advise --measure 1h --hold 30s --json"),
    ),
    "worker": Command(
        "harness.cli.worker",
        "One worker process: acquires the lock, pauses, works, writes with its fence, releases.",
        ("python -m harness worker --url redis://127.0.0.1:6379/0 --key job --ttl 2s --pause 5s",),
    ),
    "resource": Command(
        "harness.cli.resource",
        "The fenced resource: refuses writes whose fencing token runs backwards.",
        ("python -m harness resource --listen 127.0.0.1:8080 --store sqlite:resource.db",),
    ),
    "lower-mark": Command(
        "harness.cli.lower_mark",
        "Lowers a mark of the resource that a made-up token has raised.",
        ("python -m harness lower-mark account:42 --to 35 --store sqlite:resource.db",),
    ),
    "servers": Command("harness.cli.servers", "Starts real lock servers on free ports, without Docker."),
    "gen": Command("harness.cli.gen", "Fills a lock server with many keys, the same ones for the same seed."),
    "repro": Command(
        "harness.cli.repro", "Measures published figures again: theirs, ours, and what differs."
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """The whole program; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words and not words[0].startswith("-"):
            command = _command(words[0])
            parser = _parser(f"python -m harness {words[0]}", command)
            words = words[1:]
        else:
            command = MAIN
            parser = _parser("python -m harness", command, epilog=_command_list())
        module = importlib.import_module(command.module)
        module.add_arguments(parser)
        kept = scenario_words(parser, words)
        args = parser.parse_args([*kept, *parser.from_environment(os.environ), *words])
        args.argv = words
        result = module.run(args)
        if inspect.iscoroutine(result):
            import uvloop

            result = uvloop.run(result)
        return int(result or 0)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("harness: interrupted", file=sys.stderr)
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as in `| head`; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.USAGE
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not _is_ours(error):
            print(f"harness: {error.name} is missing: pip install 'asyncdlock[harness]'", file=sys.stderr)
            return exits.USAGE
        if isinstance(error, OSError) and error.errno in _FULL:
            where = f" {error.filename}" if error.filename else ""
            print(
                f"harness: cannot write{where}: {error.strerror}; there is no verdict. What was recorded is "
                "kept: make room, or choose another folder with --out",
                file=sys.stderr,
            )
            return exits.UNTRUSTED
        if not isinstance(error, _expected()):
            return _crashed(error)
        print(f"harness: {error}", file=sys.stderr)
        return exits.USAGE


def _is_ours(error: ModuleNotFoundError) -> bool:
    """Whether it is a part of the program itself that is missing, not a package that it needs."""
    return (error.name or "harness").partition(".")[0] in ("harness", "asyncdlock")


def _crashed(error: Exception) -> int:
    """Say so in one sentence; the traceback goes into a file of its own."""
    trace = "".join(traceback.format_exception(error))
    what = " ".join(f"{type(error).__name__}: {error}".split())
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="harness-crash-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(trace)
        where = f"the traceback is in {file.name}"
    except OSError:
        where = f"the traceback could not be written\n{trace}"
    print(
        f"harness: crashed, which is a defect of the harness and no verdict ({what}): {where}",
        file=sys.stderr,
    )
    return exits.CRASHED


def _expected() -> tuple[type[Exception], ...]:
    """Errors whose message is a sentence for the user; looked up only when there is one."""
    from asyncdlock import LockError
    from harness.history import HistoryError
    from harness.report.summary_json import NoSummary
    from harness.servers.errors import ServerError

    return UsageError, ServerError, HistoryError, NoSummary, LockError


def _command(name: str) -> Command:
    """:raises UsageError: there is no such command."""
    if name in COMMANDS and _exists(COMMANDS[name].module):
        return COMMANDS[name]
    known = [known for known, command in COMMANDS.items() if _exists(command.module)]
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
    raise UsageError(f"there is no command {name!r}: {meant}")


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _command_list() -> str:
    lines = [
        f"  {name:<12}{command.summary}" for name, command in COMMANDS.items() if _exists(command.module)
    ]
    return "\n".join(["commands (python -m harness COMMAND --help):", *lines])


def _parser(prog: str, command: Command, epilog: str = "") -> "Parser":
    examples = "\n".join(["examples:", *(f"  {example}" for example in command.examples)])
    parts = [examples if command.examples else "", epilog, _ENVIRONMENT]
    parser = Parser(
        prog=prog,
        description=command.summary,
        epilog="\n\n".join(part for part in parts if part),
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"asyncdlock {asyncdlock.__version__}")
    return parser


_ENVIRONMENT = (
    "Durations: 500ms, 2s, 1m, or a number of seconds. Every flag also reads an environment variable:\n"
    "HARNESS_RATE=200 is --rate 200, HARNESS_KEY_DISTRIBUTION=zipf is --key-distribution zipf."
)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the examples as they are written, and fills the description."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


class Parser(argparse.ArgumentParser):
    """Reads flags from the environment too, and complains in one sentence."""

    _environment: Mapping[str, str] = {}

    def from_environment(self, environment: Mapping[str, str]) -> list[str]:
        """The words that stand in the environment, to be put before those of the command line.

        Words and not defaults: so they pass the same checks, and what is typed overrides them. A
        flag that may be repeated takes a list with commas.
        """
        words: list[str] = []
        used: dict[str, str] = {}
        for action in self._actions:
            option = next((name for name in action.option_strings if name.startswith("--")), None)
            variable = f"HARNESS_{option[2:].upper().replace('-', '_')}" if option else ""
            if option is None or option in ("--help", "--version") or variable not in environment:
                continue
            value = environment[variable]
            used[option] = variable
            if action.nargs == 0:
                if value.lower() in ("1", "true", "yes", "on"):
                    words.append(option)
                elif value.lower() not in ("", "0", "false", "no", "off"):
                    self.error(f"{variable} must be on or off, not {value!r}")
            else:
                values = value.split(",") if isinstance(action, argparse._AppendAction) else [value]
                words += [f"{option}={entry.strip()}" for entry in values]
        self._environment = used
        return words

    def error(self, message: str) -> NoReturn:
        """Print one sentence and leave with exit code 2."""
        for option, variable in self._environment.items():
            if message.startswith(f"argument {option}:"):
                message += f" (is {variable} set?)"
        message = message.removeprefix("argument ")
        if message.startswith("unrecognized arguments: "):
            message = self._unknown(message.removeprefix("unrecognized arguments: ").split()[0])
        self.exit(exits.USAGE, f"{self.prog}: {message} (see --help)\n")

    def _unknown(self, word: str) -> str:
        known = [option for action in self._actions for option in action.option_strings]
        close = difflib.get_close_matches(word.partition("=")[0], known, n=1)
        return f"unknown flag {word}" + (f", did you mean {close[0]}?" if close else "")
