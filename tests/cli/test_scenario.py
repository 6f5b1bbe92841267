"""Scenario files: flags by their names, and a sentence for whatever is none."""

from pathlib import Path

import pytest

from harness.cli import flags
from harness.cli.main import Parser
from harness.cli.scenario import scenario_words
from harness.config import UsageError


def words_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "run.toml"
    path.write_text(text)
    parser = Parser(prog="harness", allow_abbrev=False)
    flags.add_arguments(parser)
    return scenario_words(parser, ["--rate", "7", f"--scenario={path}"])


def test_values_become_the_words_that_a_person_would_type(tmp_path: Path) -> None:
    words = words_of(
        tmp_path, 'rate = 2.5\nttl = "2s"\nfence = false\nquiet = true\noption = ["a=1", "b=2"]\n'
    )
    assert words == ["--rate=2.5", "--ttl=2s", "--fence=off", "--quiet", "--option=a=1", "--option=b=2"]


def test_a_switch_that_is_off_says_nothing(tmp_path: Path) -> None:
    assert words_of(tmp_path, "quiet = false\n") == []


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("rat = 5\n", "did you mean rate?"),
        ("colour = 'red'\n", "names are those of the flags"),
        ("scenario = 'other.toml'\n", "there is no setting 'scenario'"),
        ("rate = \n", "is not TOML"),
        ("[load]\nrate = 5\n", "there is no setting 'load'"),
        ("rate = [5, 6]\n", "rate must be text or a number"),
        ("quiet = 'yes'\n", "quiet must be true or false"),
    ],
)
def test_what_is_no_flag_is_refused(tmp_path: Path, text: str, because: str) -> None:
    with pytest.raises(UsageError, match=because.replace("?", r"\?")):
        words_of(tmp_path, text)


def test_a_file_that_is_not_there_is_named() -> None:
    parser = Parser(prog="harness")
    flags.add_arguments(parser)
    with pytest.raises(UsageError, match=r"no/such\.toml.*No such file"):
        scenario_words(parser, ["--scenario", "no/such.toml"])


def test_other_commands_have_no_scenarios() -> None:
    assert scenario_words(Parser(prog="check"), ["--scenario", "x"]) == []
