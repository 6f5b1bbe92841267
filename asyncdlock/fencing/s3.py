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
from asyncdlock.fencing._resource import UnknownOutcome

__all__ = ["FencedObject", "FencedS3", "UnfitStore", "UnknownOutcome", "probe"]

_FENCE, _SEQ, _DIGEST, _SIZE = "asyncdlock-fence", "asyncdlock-seq", "asyncdlock-sha256", "asyncdlock-size"
_PAST = "asyncdlock-past"
_REMEMBERED = 16  # writes before the present one


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
        :raises UnknownOutcome: the lock has passed on, and the write may have been stored before that: the
            client may have sent it again by itself, and others have written much since.
        :raises LockError: this holder has written with that `seq`, or a higher one, before.
        :raises UnfitStore: the store ignores conditions; nothing was stored.
        :raises ValueError: not a fence.
        """
        check_fence(fence, seq)
        digest = hashlib.sha256(body).hexdigest()
        mine = _Write(fence, seq, digest)
        metadata = {_FENCE: str(fence), _SEQ: str(seq), _DIGEST: digest, _SIZE: str(len(body))}
        stamp = f"\nasyncdlock fence={fence} seq={seq} sha256={digest}\n".encode()
        await self._check_fit()
        refused = False
        while True:
            found = _mark(await self._objects.head(key))
            if found.write == mine or mine.remembered in found.past:
                return  # our own write, whose reply was lost
            # A client that sends twice gets a refusal for what it has stored; others may have written since.
            if refused and found.write.fence > fence and not found.remembers_since(mine):
                raise UnknownOutcome(key, seen=found.write.fence, got=fence)
            _check_order(key, found.write, fence, seq)
            metadata[_PAST] = ",".join((found.write.remembered, *found.past)[:_REMEMBERED])
            if await self._objects.replace(key, body + stamp, etag=found.etag, metadata=metadata):
                return
            refused = True

    async def get(self, key: str, *, fence: int | None = None) -> FencedObject:
        """The object. With a `fence`, a holder that was displaced by a *write* is told so.

        S3 cannot take note of a read: an older holder may still write between this read and the write that is
        based on it, and its update would be lost. Where that must not happen, first write something under
        your fence, if only a marker, and then read.

        :raises StaleFence: a later holder has written.
        """
        if fence is not None:
            check_fence(fence)
        found = await self._objects.get(key)
        if found is None:
            return FencedObject(None, 0, None)
        written = _mark(found).write.fence
        if fence is not None and written > fence:
            raise StaleFence(key, seen=written, got=fence)
        size = int(found.metadata.get(_SIZE, len(found.body)))
        return FencedObject(found.body[:size], written, found.etag)

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


class _Write(NamedTuple):
    fence: int = 0
    seq: int = -1
    digest: str = ""

    @property
    def remembered(self) -> str:
        """As it stands in the metadata of later objects."""
        return f"{self.fence}.{self.seq}.{self.digest[:16]}"


class _Mark(NamedTuple):
    """What an object tells of the write that made it, and of those before."""

    write: _Write = _Write()
    past: tuple[str, ...] = ()
    """The latest first."""
    etag: str | None = None

    def remembers_since(self, write: _Write) -> bool:
        """Whether all from `write` on are among the past: one that came before it is."""
        if not self.past:
            return False
        fence, seq, _ = self.past[-1].split(".")
        return (int(fence), int(seq)) < write[:2]


def _mark(found: StoredObject | None) -> _Mark:
    if found is None:
        return _Mark()
    told = found.metadata
    write = _Write(int(told.get(_FENCE, 0)), int(told.get(_SEQ, -1)), told.get(_DIGEST, ""))
    past = told.get(_PAST, "")
    return _Mark(write, tuple(past.split(",")) if past else (), found.etag)


def _check_order(key: str, found: _Write, fence: int, seq: int) -> None:
    if found.fence > fence:
        raise StaleFence(key, seen=found.fence, got=fence)
    if found.fence == fence and found.seq >= seq:
        raise written_before(key, fence, found.seq)
