"""Says at the end of a run what this machine could not test, and the one command that would change it.

A test whose server or program is missing names the packages in the reason of its skip, as Debian calls them.
Every other skip is a promise that a backend does not make: nothing to install would change it.
"""

import re
from collections import Counter
from collections.abc import Iterable

import pytest

_PACKAGES = re.compile(
    r"(?:Debian: (?:apt-get install )?|apt-get install |Debian's package )"
    r"([a-z][a-z0-9+-]*(?:,? (?!has\b)[a-z][a-z0-9+-]*)*)"
)
_WHEELS = re.compile(r"pip install ")
_NPM = re.compile(r"npm install --global [^\s,)]+")


def untested(reasons: Iterable[str]) -> list[str]:
    """The lines of the summary for the reasons of all skipped tests: none if nothing was skipped."""
    counted = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    missing = {reason: tests for reason, tests in counted.items() if _PACKAGES.search(reason)}
    wheels = {reason: tests for reason, tests in counted.items() if _WHEELS.search(reason)}
    modules = {reason: tests for reason, tests in counted.items() if _NPM.search(reason)}
    lacking = missing | wheels | modules
    lines = [
        f"{tests:6,}  {reason}"
        for reason, tests in sorted(lacking.items(), key=lambda item: (-item[1], item[0]))
    ]
    if rest := counted.total() - sum(lacking.values()):
        lines.append(f"{rest:6,}  not promised by that backend, or not to be had here")
    commands = []
    if wheels:
        commands.append("pip install -e '.[dev]'")
    if missing:
        packages = {
            name for reason in missing for found in _PACKAGES.findall(reason) for name in _names(found)
        }
        commands.append(f"apt-get install -y --no-install-recommends {' '.join(sorted(packages))}")
    commands += sorted({found for reason in modules for found in _NPM.findall(reason)})
    if commands:
        lines.append(f"To test these as well: {' && '.join(commands)}")
    return lines


def _names(found: str) -> list[str]:
    return found.replace(",", " ").split()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    lines = untested(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple | list))
    if lines:
        terminalreporter.section("not tested")
        for line in lines:
            terminalreporter.write_line(line)
