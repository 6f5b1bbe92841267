"""`--scenario FILE`: a run kept in a repository, as TOML with a name for every flag.

    backend = "redis-queue"
    stages = "500/10s,2000/30s"
    key-distribution = "zipf"
    fault = ["kill:server@5s+1s", "partition@20s+2s"]

What it says becomes words before those of the environment and of the command line, which override it; flags
that may be repeated add up.
"""

import argparse
import difflib
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.config import UsageError

OPTION = "--scenario"


def scenario_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words that the scenario named in `words` stands for; none when none is named.

    :raises UsageError: it cannot be read, or says what no flag of `parser` does.
    """
    if not any(OPTION in action.option_strings for action in parser._actions):
        return []
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument(OPTION)
    try:
        path = finder.parse_known_args(list(words))[0].scenario
    except argparse.ArgumentError:
        return []  # without a file: the parser of the whole says so
    return [] if path is None else list(_words(parser, Path(path)))


def _words(parser: argparse.ArgumentParser, path: Path) -> Iterator[str]:
    try:
        said = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the scenario {str(path)!r}: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    flags = {
        option.removeprefix("--"): action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option not in ("--help", "--version", OPTION)
    }
    for name, value in said.items():
        if name not in flags:
            close = difflib.get_close_matches(name, flags, n=1)
            meant = f"did you mean {close[0]}?" if close else "names are those of the flags, without dashes"
            raise UsageError(f"{path}: there is no setting {name!r}: {meant}")
        yield from _flag(path, name, value, flags[name])


def _flag(path: Path, name: str, value: object, action: argparse.Action) -> Iterator[str]:
    if isinstance(value, bool):
        if action.nargs == 0:
            yield from [f"--{name}"] if value else []
        else:
            yield f"--{name}={'on' if value else 'off'}"
        return
    values = value if isinstance(value, list) and isinstance(action, argparse._AppendAction) else [value]
    for entry in values:
        if action.nargs == 0 or isinstance(entry, bool) or not isinstance(entry, str | int | float):
            wanted = "true or false" if action.nargs == 0 else "text or a number, as on the command line"
            raise UsageError(f"{path}: {name} must be {wanted}, not {entry!r}")
        yield f"--{name}={entry}"
