"""A client of etcd's own Lock service, for comparison only: bench.etcd_wedge shows why.

aetcd has no stubs for this service. Its messages have one or two fields and are written by hand.
"""

from typing import Any

import grpc
from aetcd import rpc


class LockService:
    """One connection to the service."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self.leases = rpc.LeaseStub(self._channel)
        self.call_lock: Any = self._channel.unary_unary("/v3lockpb.Lock/Lock")
        self.call_unlock: Any = self._channel.unary_unary("/v3lockpb.Lock/Unlock")

    def lock(self, name: str, *, lease_ttl: int) -> "ServiceLock":
        """One contender's lock, under a lease of its own that nobody keeps alive."""
        return ServiceLock(self, name.encode(), lease_ttl)


class ServiceLock:
    """One contender: Lock blocks in the server until the lock is granted."""

    def __init__(self, service: LockService, name: bytes, lease_ttl: int) -> None:
        self._service = service
        self._name = name
        self._lease_ttl = lease_ttl
        self._lease = 0

    async def acquire(self) -> None:
        if not self._lease:
            granted = await self._service.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=self._lease_ttl))
            self._lease = granted.ID
        reply = await self._service.call_lock(_bytes(1, self._name) + _number(2, self._lease))
        self._key = _bytes_of(reply, 2)

    async def release(self) -> None:
        await self._service.call_unlock(_bytes(1, self._key))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _number(field: int, number: int) -> bytes:
    """A field of a protocol buffer with a number in it."""
    return bytes([field << 3]) + _varint(number)


def _bytes(field: int, data: bytes) -> bytes:
    """A field of a protocol buffer with bytes in it."""
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def _bytes_of(message: bytes, wanted: int) -> bytes:
    """The field `wanted` of a message that has only fields with bytes in them."""
    at = 0
    while at < len(message):
        field, size, shift = message[at] >> 3, 0, 0
        at += 1
        while True:
            byte = message[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if field == wanted:
            return message[at : at + size]
        at += size
    raise ValueError(f"the message has no field {wanted}")
