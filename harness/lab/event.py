"""What participants and experiments say to each other: one JSON object a line, both ways."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from harness.load.clock import now


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. Of whoever takes locks: `started`, `ready`, `acquiring`, `granted`, `pausing`,
    `resumed`, `writing`, `accepted`, `stale`, `unknown`, `failed`, `timed_out`, `lost`, `released`."""

    at: int
    """Nanoseconds of the monotonic clock; in a track, since the case began."""
    name: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def happened(cls, name: str, /, **details: Any) -> "Event":
        """Just now; details that are None are left out."""
        return cls(now(), name, {key: value for key, value in details.items() if value is not None})

    @classmethod
    def parse(cls, line: bytes) -> "Event":
        told = json.loads(line)
        return cls(told.pop("at"), told.pop("event"), told)

    def line(self) -> bytes:
        return json.dumps({"event": self.name, "at": self.at, **self.details}).encode() + b"\n"

    def since(self, origin: int) -> "Event":
        """The same on a clock that began at `origin`; so is the end of a lease, `valid_until`."""
        details = self.details
        if "valid_until" in details:
            details = {**details, "valid_until": details["valid_until"] - origin}
        return replace(self, at=self.at - origin, details=details)


Heard = Callable[[Event], None]
"""Called with each event of a participant."""


class Say(Protocol):
    """Tells whoever listens that something happened just now."""

    def __call__(self, event: str, /, **details: Any) -> None: ...
