"""A guard for objects in S3: conditional writes, with the fence in the object's metadata.

Read, compare, and write on condition that nobody wrote in between (`If-Match`, or `If-None-Match: *` for an
object that does not exist yet): the store decides, and a writer that was overtaken looks again. Some stores
that call themselves compatible ignore the condition and answer 200: `probe` finds out, and `FencedS3` asks it
before its first write.

Most stores derive the ETag from the body alone. A value that comes back under a later fence would then look
like the one that a delayed writer had read, and let it in; so the body ends with a line that names its fence.
"""

import asyncio
import hashlib
import uuid
from typing import Any, NamedTuple

from asyncdlock.errors import LockError, StaleFence
from asyncdlock.fencing._check import check_fence, written_before
from asyncdlock.fencing._objects import Objects, StoredObject

_FENCE, _SEQ, _DIGEST, _SIZE = "asyncdlock-fence", "asyncdlock-seq", "asyncdlock-sha256", "asyncdlock-size"


class UnfitStore(LockError):
    """The store does not honour conditional writes: no guard can be built on it."""


class FencedObject(NamedTuple):
    """What a read found."""

    body: bytes | None
    """None: no such object."""
    fence: int
    """The fence that it was written with; 0 when it was written without one."""
    etag: str | None


class FencedS3:
    """Reads and writes objects of one bucket under the fence of a lock.

    `client` is an S3 client of aiobotocore or aioboto3 and stays the caller's. What it raises comes out as it
    is; after a lost reply the write may have happened, and repeating it with the same fence and `seq` is
    safe.

    A stored object is the body and a last line of the guard's; its metadata `asyncdlock-size` tells other
    readers how many bytes are the body.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
        self._objects = Objects(client, bucket)
        self._fit: asyncio.Future[None] | None = None

    async def put(self, key: str, body: bytes, *, fence: int, seq: int = 0) -> None:
        """Store `body`, unless a later holder of the lock has written.

        A holder that writes more than once numbers its writes upwards with `seq`.

        :raises StaleFence: the lock has passed on; nothing was stored.
        :raises LockError: this holder has written with that `seq`, or a higher one, before.
        :raises UnfitStore: the store ignores conditions; nothing was stored.
        :raises ValueError: not a fence.
        """
        check_fence(fence, seq)
        digest = hashlib.sha256(body).hexdigest()
        metadata = {_FENCE: str(fence), _SEQ: str(seq), _DIGEST: digest, _SIZE: str(len(body))}
        stamp = f"\nasyncdlock fence={fence} seq={seq} sha256={digest}\n".encode()
        await self._check_fit()
        while True:
            found = _mark(await self._objects.head(key))
            if found[:3] == (fence, seq, digest):
                return  # our own write, whose reply was lost
            _check_order(key, found, fence, seq)
            if await self._objects.replace(key, body + stamp, etag=found.etag, metadata=metadata):
                return

    async def get(self, key: str, *, fence: int | None = None) -> FencedObject:
        """The object. With a `fence`, a holder that was displaced by a *write* is told so.

        S3 cannot note a read: an older holder may still write between this read and the write that is based
        on it, and its update would be lost. Where that must not happen, write first, if only a marker under
        your fence, and read then.

        :raises StaleFence: a later holder has written.
        """
        if fence is not None:
            check_fence(fence)
        found = await self._objects.get(key)
        if found is None:
            return FencedObject(None, 0, None)
        mark = _mark(found)
        if fence is not None and mark.fence > fence:
            raise StaleFence(key, seen=mark.fence, got=fence)
        size = int(found.metadata.get(_SIZE, len(found.body)))
        return FencedObject(found.body[:size], mark.fence, found.etag)

    async def _check_fit(self) -> None:
        if self._fit is None or (self._fit.done() and (self._fit.cancelled() or self._fit.exception())):
            self._fit = asyncio.ensure_future(probe(self._client, self._bucket))
        await asyncio.shield(self._fit)


async def probe(client: Any, bucket: str, *, prefix: str = "asyncdlock-probe/") -> None:
    """Find out whether the store honours conditions, with one object that is deleted again.

    :raises UnfitStore: it does not.
    """
    key = f"{prefix}{uuid.uuid4()}"
    objects = Objects(client, bucket)
    try:
        first = await objects.replace(key, b"first", etag=None)
        if first is None:
            raise UnfitStore("the store refuses a conditional write of an object that does not exist")
        if await objects.replace(key, b"second", etag=None) is not None:
            raise UnfitStore("the store ignores If-None-Match: two writers could both create an object")
        if await objects.replace(key, b"third", etag=first) is None:
            raise UnfitStore("the store refuses If-Match with the right ETag")
        if await objects.replace(key, b"fourth", etag=first) is not None:
            raise UnfitStore("the store ignores If-Match: a stale writer could overwrite a newer one")
    finally:
        await objects.delete(key)


class _Mark(NamedTuple):
    fence: int = 0
    seq: int = -1
    digest: str = ""
    etag: str | None = None


def _mark(found: StoredObject | None) -> _Mark:
    if found is None:
        return _Mark()
    told = found.metadata
    return _Mark(int(told.get(_FENCE, 0)), int(told.get(_SEQ, -1)), told.get(_DIGEST, ""), found.etag)


def _check_order(key: str, found: _Mark, fence: int, seq: int) -> None:
    if found.fence > fence:
        raise StaleFence(key, seen=found.fence, got=fence)
    if found.fence == fence and found.seq >= seq:
        raise written_before(key, fence, found.seq)
