"""The lower bound of each dependency of the product, read from pyproject.toml, as a pin: `redis==5.1`."""

import re
import tomllib
from pathlib import Path

TOOLS = ("bench", "docs", "dev")
"""Extras for those who work on the project; only what it needs to run is pinned."""


def pins() -> list[str]:
    """One a dependency, for `pip install --constraint`."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: ranges for name, ranges in project["optional-dependencies"].items() if name not in TOOLS}
    ranges = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    bounds = (re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", one) for one in ranges)
    return sorted({f"{bound[1]}=={bound[2]}" for bound in bounds if bound is not None})


if __name__ == "__main__":
    print(*pins(), sep="\n")  # noqa: T201 - for pip
