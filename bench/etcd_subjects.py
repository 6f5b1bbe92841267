"""What is measured on etcd: our backend, and the recipes that it was chosen over."""

import math
from typing import Any

import grpc
from aetcd import rpc

from bench import go_subject
from bench.etcd_lock_service import LockService
from bench.subject import LEASE, Lock, PeerLock, Subject
from bench.subjects import Ours


class Etcd(Ours):
    name = "asyncdlock"
    scheme = "etcd"


class HandOff(Etcd):
    name = "asyncdlock, local_handoffs=1000"
    query = "?local_handoffs=1000"


class PredecessorWatches(Etcd):
    """Go's recipe: every contender has its place in the server's queue and watches the one in front."""

    name = "asyncdlock, local_queue=off"
    query = "?local_queue=off"


class Library(Etcd):
    name = "asyncdlock, transport=grpc"
    query = "?transport=grpc"


class Go(Subject):
    """Go's own client; `bench.go_subject` runs it. A session for all own keys, or one each for a hot key."""

    name = go_subject.NAME


class LeaseEach(Subject):
    """The same keys, with a lease for every acquisition and a call for every request. Never waits."""

    name = "a lease per acquisition, a call per request"
    shared = 0

    async def open(self) -> None:
        channel = grpc.aio.insecure_channel(_address(self.url))
        self.kv, self.leases = rpc.KVStub(channel), rpc.LeaseStub(channel)

    def lock(self, key: str) -> Lock:
        return PeerLock(PlainLock(self, f"/locks/{key}/".encode()))

    async def grant(self) -> int:
        granted = await self.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=math.ceil(LEASE)))
        return int(granted.ID)


class SharedLease(LeaseEach):
    """One lease for all, still with a call for every request: what sharing the lease gains by itself."""

    name = "one shared lease, a call per request"

    async def open(self) -> None:
        await super().open()
        self.shared = await self.grant()


class PlainLock:
    def __init__(self, subject: LeaseEach, prefix: bytes) -> None:
        self._subject = subject
        self._prefix = prefix

    async def acquire(self) -> None:
        self._lease = self._subject.shared or await self._subject.grant()
        self._key = self._prefix + b"%x" % self._lease
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=self._key, value=b"owner", lease=self._lease))
        first = rpc.RequestOp(
            request_range=rpc.RangeRequest(
                key=self._prefix,
                range_end=self._prefix[:-1] + b"0",
                sort_target=rpc.RangeRequest.CREATE,
                sort_order=rpc.RangeRequest.ASCEND,
                limit=1,
            )
        )
        reply = await self._subject.kv.Txn(rpc.TxnRequest(success=[put, first]))
        assert reply.responses[1].response_range.kvs[0].key == self._key, "these keys are nobody else's"

    async def release(self) -> None:
        if self._subject.shared:
            await self._subject.kv.DeleteRange(rpc.DeleteRangeRequest(key=self._key))
        else:
            await self._subject.leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=self._lease))


class Aetcd(Subject):
    name = "aetcd Lock"

    async def open(self) -> None:
        import aetcd

        host, port = _address(self.url).split(":")
        self._client = aetcd.Client(host=host, port=int(port))
        await self._client.connect()

    def lock(self, key: str) -> Lock:
        return PeerLock(AetcdLock(self._client, key))


class AetcdLock:
    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = key.encode()

    async def acquire(self) -> None:
        self._lock = self._client.lock(self._key, ttl=math.ceil(LEASE))
        # Its own time-out of 10 s would end the wait without the lock, and without saying so.
        while not await self._lock.acquire(timeout=None):
            pass

    async def release(self) -> None:
        await self._lock.release()


class ServerSide(Subject):
    """etcd's own Lock service: the server stands in the queue for the client."""

    name = "server-side Lock"

    async def open(self) -> None:
        self._service = LockService(_address(self.url))

    def lock(self, key: str) -> Lock:
        # Its leases are not kept alive here: they outlive the measurement.
        return PeerLock(self._service.lock(key, lease_ttl=3600))


def _address(url: str) -> str:
    return url.removeprefix("etcd://")


ALONE: tuple[type[Subject], ...] = (Etcd, Library, Go)
ON_OWN_KEYS: tuple[type[Subject], ...] = (
    Etcd,
    HandOff,
    PredecessorWatches,
    Library,
    Go,
    SharedLease,
    LeaseEach,
    Aetcd,
    ServerSide,
)
ON_A_HOT_KEY: tuple[type[Subject], ...] = (
    Etcd,
    HandOff,
    PredecessorWatches,
    Library,
    Go,
    Aetcd,
    ServerSide,
)
OVER_PROCESSES: tuple[type[Subject], ...] = (Etcd, HandOff, PredecessorWatches, Library, Go)
