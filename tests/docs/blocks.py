"""The code blocks and the commands of the README and of every page under docs/."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCED = re.compile(r"^([ ]*)```(\S*)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_COMMAND = re.compile(
    r"(?:^|(?<=&& ))(?:python -m (?:asyncdlock|bench|harness|tests)\b|(?:asyncdlock|harness) [a-z-])[^|&#\n]*"
)


class Block(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> list[Block]:
    found = []
    for path in PAGES:
        text = path.read_text("utf-8")
        for match in _FENCED.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            page = path.relative_to(ROOT).as_posix()
            found.append(Block(page, line, match[2], textwrap.dedent(match[3])))
    return found


def commands() -> list[str]:
    """Every command line of our programs, in a block or in a sentence, once."""
    found = {
        command[0].strip(): None
        for block in blocks()
        if block.language in ("", "bash", "console", "sh")
        for line in block.text.replace("\\\n", " ").splitlines()
        if (command := _COMMAND.search(line)) is not None
    }
    for path in PAGES:
        prose = _FENCED.sub("", path.read_text("utf-8"))
        for code in _INLINE.findall(prose):
            command = _COMMAND.fullmatch(code)
            if command is not None:
                found[command[0].strip()] = None
    return list(found)
