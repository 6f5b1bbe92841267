"""Records of ZooKeeper's protocol that kazoo lacks."""

import struct
from dataclasses import dataclass
from typing import Any, Protocol

from kazoo.protocol.serialization import Create, write_string

_INT = struct.Struct("!i")
_CONTAINER = 4
_DATA_WATCHES = 2


class Record(Protocol):
    """A request of the protocol."""

    type: int

    def serialize(self) -> bytes | bytearray: ...


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Create a node that the server removes once its last child is gone (ZooKeeper 3.5)."""

    path: str
    acl: list[Any]
    type = 19

    def serialize(self) -> bytes | bytearray:
        record: bytearray = Create(self.path, b"", self.acl, _CONTAINER).serialize()
        return record


@dataclass(frozen=True, slots=True)
class RemoveDataWatch:
    """Take back a watch that is no longer wanted (ZooKeeper 3.5)."""

    path: str
    type = 18

    def serialize(self) -> bytes | bytearray:
        path: bytes = write_string(self.path)
        return path + _INT.pack(_DATA_WATCHES)
