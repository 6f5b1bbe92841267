"""Finds server programs: an environment variable, then PATH, then inside an installed wheel."""

import importlib.util
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from harness.servers.errors import ServerMissing


def from_environment(variable: str) -> Path | None:
    """The program that the variable names, if it is set.

    :raises ServerMissing: it is set, but names no program.
    """
    value = os.environ.get(variable)
    if not value:
        return None
    found = shutil.which(value)
    if found is None:
        raise ServerMissing(f"{variable} is set to {value!r}, which is no program that can be run.")
    return Path(found)


def on_path(*names: str) -> Path | None:
    """The first of the named native programs on PATH.

    Scripts are passed over: a wheel that brings a server also installs a Python script of the same
    name, which would hide the system's own.
    """
    for name in names:
        for folder in os.get_exec_path():
            candidate = Path(folder, name)
            if candidate.is_file() and os.access(candidate, os.X_OK) and not _is_script(candidate):
                return candidate
    return None


def in_wheel(package: str, pattern: str) -> Path | None:
    """The program inside an installed package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except ImportError:
        return None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for candidate in sorted(Path(folder).glob(pattern)):
            if os.access(candidate, os.X_OK):
                return candidate
    return None


def first(candidates: Iterable[Path | None], advice: str) -> Path:
    """The first program that was found.

    :raises ServerMissing: there is none; `advice` is the message.
    """
    for candidate in candidates:
        if candidate is not None:
            return candidate
    raise ServerMissing(advice)


def _is_script(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(2) == b"#!"
