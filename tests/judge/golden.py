"""The golden histories: small runs written by hand, each with what it shows and the verdicts it must get.

The first word of a file's name is the verdict of the run. The note inside names the checks that must
not be `ok`; all others must be.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.history import History, load
from harness.judge.checkers import Verdict
from harness.judge.checkers.registry import checkers

FOLDER = Path(__file__).parent.parent / "histories"


@dataclass(frozen=True)
class Golden:
    path: Path
    expected: Mapping[str, Verdict]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def verdict(self) -> str:
        return self.name.partition("-")[0]

    def load(self) -> History:
        """A fresh copy, to be mutated at will."""
        return load(self.path)


def read_golden(path: Path) -> Golden:
    lines = map(json.loads, path.read_text().splitlines())
    note = next(line for line in lines if "note" in line)
    assert set(note.get("expect", {})) <= set(checkers()), f"{path} expects something of an unknown check"
    return Golden(path, dict.fromkeys(checkers(), "ok") | note.get("expect", {}))


GOLDEN = [read_golden(path) for path in sorted(FOLDER.glob("*.jsonl"))]
GOOD = [golden for golden in GOLDEN if golden.verdict == "ok"]
BAD = [golden for golden in GOLDEN if golden.verdict == "violated"]
