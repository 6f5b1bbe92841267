"""What an accident is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from harness.servers.server import Server

Scope = Literal["one", "all"]


class Site(NamedTuple):
    """Where an accident happens."""

    node: Server
    url: str
    """Of the installation that the node belongs to."""
    key: str


@dataclass(frozen=True, slots=True)
class Accident:
    name: str
    cause: Callable[[Site], Awaitable[None]]
    frees: Scope | None = None
    """Whose holders may have lost the lock: those of the key, or all."""
    forgets: Scope | None = None
    """Whose fences may run backwards: those of the key, or all."""


class AccidentFailed(Exception):
    """It may have happened all the same."""
