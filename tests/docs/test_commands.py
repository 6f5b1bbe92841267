"""Every command of ours in the README and in docs/ is understood by the program that it calls."""

import argparse
import contextlib
import re
import runpy
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from asyncdlock import cli
from harness.cli.commands import COMMANDS, MAIN
from harness.lab.registry import experiments
from tests.docs.blocks import ROOT, blocks, commands


def module_and_arguments(command: str) -> list[str]:
    words = shlex.split(command)
    return words[2:] if words[0] == "python" else words


def in_help() -> list[str]:
    """The examples that `--help` shows."""
    ours = [example for command in (MAIN, *COMMANDS.values()) for example in command.examples]
    return [example.partition(" #")[0].strip() for example in ours] + [
        example.removeprefix("ASYNCDLOCK_URL=etcd://e1,e2,e3 ") for example in cli._EXAMPLES.values()
    ]


class Understood(BaseException):
    """The program's own parser took the arguments: no need to go on."""


@pytest.fixture
def parse_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs run until they have read their arguments. One that takes none runs to its end."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_leave(self: argparse.ArgumentParser, args: Sequence[str] | None = None) -> None:
        parse(self, args)
        raise Understood

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_leave)
    monkeypatch.chdir(tmp_path)
    Path("secrets.txt").write_text(f"2026-11 {'5' * 64}\n")  # files that commands name
    Path("nightly.toml").write_text("rate = 500\n")


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, *arguments = module_and_arguments(command)
    monkeypatch.setattr(sys, "argv", [module, *(arguments or ["--help"])])  # alone it is the program's name
    # By its file: pytest rewrites packages that bring it a plugin, and those runpy cannot run by name.
    place = ROOT / module.replace(".", "/")
    runpy.run_path(
        str(place / "__main__.py" if place.is_dir() else place.with_suffix(".py")), run_name="__main__"
    )


@pytest.mark.usefixtures("parse_only")
@pytest.mark.parametrize("command", [*dict.fromkeys([*commands(), *in_help()])])
def test_the_command_is_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.suppress(Understood):
        try:
            run(command, monkeypatch)
        except SystemExit as left:
            if left.code:
                pytest.fail(f"{command!r} is refused")


def test_the_help_of_every_command_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert [name for name, command in COMMANDS.items() if not command.examples] == []
    for name, example in cli._EXAMPLES.items():
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        assert example in capsys.readouterr().out


@pytest.mark.usefixtures("parse_only")
@pytest.mark.parametrize(
    "command", ["python -m harness --no-such-flag", "harness --rate soon", "python -m bench.peers --no-such"]
)
def test_a_wrong_command_is_found_out(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as left:
        run(command, monkeypatch)
    assert left.value.code == 2


def test_every_experiment_that_is_named_exists() -> None:
    known = {found.name for found in experiments().values()} | {"list", "all"}
    for block in blocks():
        known.update(re.findall(r'@experiment\(.*?name="(.*?)"', block.text, re.DOTALL))
    words = [module_and_arguments(command) for command in commands()]
    named = {word[2] for word in words if word[:2] == ["harness", "experiment"]}
    assert len(named) > 10
    assert {name for name in named if not name.isdecimal()} <= known
