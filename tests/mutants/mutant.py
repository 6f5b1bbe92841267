"""One planted bug, and whether it still fits the source."""

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """Replace `old` by `new` in `file`, and `test` fails."""

    name: str
    file: str
    """From the root of the repository."""
    old: str
    """Found exactly once."""
    new: str
    test: str
    """As pytest takes it: `tests/file.py::test[parameters]`."""

    def misfit(self, root: Path = ROOT) -> str:
        """Why it cannot be planted; empty when it can."""
        source = root / self.file
        if not source.is_file():
            return f"there is no {self.file}"
        found = source.read_text("utf-8").count(self.old)
        if found != 1:
            return f"its text is found {found} times in {self.file}"
        path, _, name = self.test.partition("::")
        if not (root / path).is_file():
            return f"there is no {path}"
        if name.partition("[")[0] not in _functions(root / path):
            return f"there is no {name} in {path}"
        return ""

    def plant(self, root: Path) -> None:
        """Change the source below `root`."""
        source = root / self.file
        source.write_text(source.read_text("utf-8").replace(self.old, self.new), "utf-8")


def _functions(file: Path) -> set[str]:
    """The tests of a file, those of a class with its name in front."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names: set[str] = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, functions):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{method.name}" for method in node.body if isinstance(method, functions)}
    return names
