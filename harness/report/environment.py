"""Where a run took place: what a reader needs to compare its figures with another's."""

import os
import platform
import sys
from importlib import metadata
from typing import Any

_PACKAGES = (
    "asyncdlock",
    "redis",
    "hiredis",
    "aiohttp",
    "uvloop",
    "aetcd",
    "kazoo",
    "asyncpg",
    "pottery",
    "redlock-ng",
    "sqlalchemy-dlock",
)


def describe() -> dict[str, Any]:
    """Interpreter, system, processors, load, and the versions of what did the work."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "implementation": sys.implementation.name,
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "packages": versions,
    }
