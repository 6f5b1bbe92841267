"""Every public attribute of every public name, with its signature, as `public_api.txt` has it.

Removing or changing one breaks users; adding one is a promise. When it is meant:
`python -m tests.typing.test_surface > tests/typing/public_api.txt`, and a line in the changelog.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncdlock
from asyncdlock import blocking

SHIPPED = Path(__file__).with_name("public_api.txt")
SHOWN = ("__init__", "__aenter__", "__aexit__", "__enter__", "__exit__")
NOT_MADE_BY_USERS = (
    asyncdlock.Handle,
    asyncdlock.Backend,
    asyncdlock.Inspectable,
    asyncdlock.Semaphore,
    asyncdlock.Term,
    asyncdlock.Tick,
    blocking.BlockingHandle,
    blocking.BlockingClient,
    blocking.BlockingSemaphore,
)


def surface() -> Iterator[str]:
    """The public names in order, each with its members."""
    names = {name: getattr(asyncdlock, name) for name in (*asyncdlock.__all__, "__version__")}
    names |= {f"blocking.{name}": getattr(blocking, name) for name in blocking.__all__}
    for name, value in sorted(names.items()):
        if inspect.isclass(value):
            bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
            yield f"class {name}({bases})" if bases else f"class {name}"
            yield from sorted(f"    {line}" for line in _members(value))
        elif callable(value):
            yield f"def {name}{_signature(value)}"
        else:
            yield f"{name}: {type(value).__name__}"


def _members(cls: type) -> Iterator[str]:
    """What it has of ours, its base classes included; what Python's own classes bring is not our promise."""
    found: dict[str, str] = {}
    for owner in cls.__mro__:
        if not owner.__module__.startswith("asyncdlock"):
            continue
        for name, annotation in inspect.get_annotations(owner).items():
            if _public(name, cls):
                found.setdefault(name, f"{name}: {_shown(annotation)}")
        for name, value in vars(owner).items():
            if _public(name, cls):
                found.setdefault(name, _member(name, value))
    return iter(found.values())


def _public(name: str, cls: type) -> bool:
    if name == "__init__":
        return cls not in NOT_MADE_BY_USERS
    return not name.startswith("_") or name in SHOWN


def _member(name: str, value: Any) -> str:
    if isinstance(value, property) and value.fget is not None:
        return f"{name}: {_shown(inspect.signature(value.fget).return_annotation)}"
    if inspect.iscoroutinefunction(value):
        return f"async def {name}{_signature(value)}"
    if inspect.isfunction(value):
        return f"def {name}{_signature(value)}"
    return f"{name}: {type(value).__name__}"


def _signature(function: Any) -> str:
    text = str(inspect.signature(function))
    return _without_modules(text.replace("'LockClient'", "LockClient"))


def _shown(annotation: Any) -> str:
    return _without_modules(inspect.formatannotation(annotation))


def _without_modules(text: str) -> str:
    return re.sub(r"\b(?:[a-z_]\w*\.)+([A-Z]\w*)", r"\1", text)


def test_the_public_surface_is_what_was_shipped() -> None:
    assert "\n".join(surface()) + "\n" == SHIPPED.read_text()


async def test_what_is_made_shows_no_more_than_its_class() -> None:
    """An attribute that is set and not declared would escape the list."""
    async with asyncdlock.connect("memory://surface") as locks:
        handle = await locks.acquire("key")
        lock = asyncdlock.ReentrantLock(locks, "key")
        made = [locks, handle, lock, asyncdlock.BackendError("no"), asyncdlock.QuorumError("no")]
        made += [asyncdlock.AcquireTimeout("no"), asyncdlock.StaleFence("key", seen=2, got=1)]
        for one in made:
            shown = {line.split()[-1] for line in _names(type(one))}
            assert {name for name in getattr(one, "__dict__", {}) if not name.startswith("_")} <= shown
        await handle.release()


def _names(cls: type) -> Iterator[str]:
    for line in _members(cls):
        yield re.split(r"[:(]", line)[0]


if __name__ == "__main__":
    sys.stdout.write("\n".join(surface()) + "\n")
