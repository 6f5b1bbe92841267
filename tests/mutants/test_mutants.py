"""The planted bugs still fit the source; whether their tests notice them, `python -m tests.mutants` shows."""

from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.trial import Verdict, attempt


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_can_be_planted_and_its_test_exists(mutant: Mutant) -> None:
    assert mutant.misfit() == ""
    assert mutant.old != mutant.new


def test_there_are_enough_and_no_two_share_a_name() -> None:
    assert len(MUTANTS) >= 60
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project: a function, and a test that looks at half of what it does."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    (tmp_path / "doubling.py").write_text("def double(n):\n    wanted = True\n    return n + n\n")
    (tmp_path / "test_doubling.py").write_text(
        "import pytest\nfrom doubling import double\n\n\ndef test_it():\n    assert double(2) == 4\n\n\n"
        "def test_nothing():\n    pytest.skip('no server')\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "test", "verdict"),
    [
        ("n + n", "n + 1", "test_it", Verdict.KILLED),
        ("n + n", "n * n", "test_it", Verdict.SURVIVED),
        ("n + n", "while True: pass", "test_it", Verdict.NOT_APPLICABLE),
        ("    return n + n", "    while True: pass", "test_it", Verdict.KILLED),
        ("wanted = True", "wanted = False", "test_nothing", Verdict.NOT_APPLICABLE),
        ("n", "m", "test_it", Verdict.NOT_APPLICABLE),
        ("n - n", "n + n", "test_it", Verdict.NOT_APPLICABLE),
        ("n + n", "n * n", "test_that_is_gone", Verdict.NOT_APPLICABLE),
    ],
)
def test_a_trial_tells_killed_from_survived_and_from_what_says_nothing(
    tree: Path, old: str, new: str, test: str, verdict: Verdict
) -> None:
    before = (tree / "doubling.py").read_text()
    limit = 3.0 if "while" in new and verdict is Verdict.KILLED else 60.0
    outcome = attempt(Mutant("one", "doubling.py", old, new, f"test_doubling.py::{test}"), tree, limit)
    assert outcome.verdict is verdict, outcome.detail
    assert (tree / "doubling.py").read_text() == before


def test_a_machine_that_is_slow_kills_nothing(tree: Path) -> None:
    harmless = Mutant("one", "doubling.py", "n + n", "n * n", "test_doubling.py::test_it")
    assert attempt(harmless, tree, limit=0.001).verdict is Verdict.SURVIVED
