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
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from typing import NoReturn

import asyncdlock
from harness import exits
from harness.cli.commands import COMMANDS, MAIN, Command
from harness.cli.scenario import scenario_words
from harness.config import UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""What a disk says that takes nothing more: no defect of the program."""


def main(argv: Sequence[str] | None = None) -> int:
    """The whole program; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):  # one that cannot write an arrow shows its number
        sys.stdout.reconfigure(errors="backslashreplace")
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
