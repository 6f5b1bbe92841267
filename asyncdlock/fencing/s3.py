"""A guard for objects in S3: conditional writes, with the fence in the object's metadata.

Read, compare, and write on condition that nobody wrote in between (`If-Match`, or `If-None-Match: *` for an
object that does not exist yet): the store decides, and a writer that was overtaken looks again. Some stores
that call themselves compatible ignore the condition and answer 200: `probe` finds out, and `FencedS3` asks it
before its first write.
"""

import asyncio
import hashlib
import uuid
from typing import Any, NamedTuple

from asyncdlock.errors import LockError, StaleFence
from asyncdlock.fencing._check import check_fence, written_before

_FENCE, _SEQ, _DIGEST = "asyncdlock-fence", "asyncdlock-seq", "asyncdlock-sha256"
_LOST_RACE = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict")
_MISSING = ("404", "NoSuchKey", "NotFound")


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
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket
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
        await self._check_fit()
        while True:
            found = await self._head(key)
            if found[:3] == (fence, seq, digest):
                return  # our own write, whose reply was lost
            _check_order(key, found, fence, seq)
            condition = {"IfNoneMatch": "*"} if found.etag is None else {"IfMatch": found.etag}
            try:
                await self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=body,
                    Metadata={_FENCE: str(fence), _SEQ: str(seq), _DIGEST: digest},
                    **condition,
                )
            except Exception as error:
                if _code(error) not in _LOST_RACE:
                    raise
            else:
                return

    async def get(self, key: str, *, fence: int | None = None) -> FencedObject:
        """The object. With a `fence`, a holder that was displaced by a *write* is told so.

        S3 cannot note a read: an older holder may still write between this read and the write that is based
        on it, and its update would be lost. Where that must not happen, write first, if only a marker under
        your fence, and read then.

        :raises StaleFence: a later holder has written.
        """
        try:
            found = await self._client.get_object(Bucket=self._bucket, Key=key)
        except Exception as error:
            if _code(error) in _MISSING:
                return FencedObject(None, 0, None)
            raise
        async with found["Body"] as stream:
            body = await stream.read()
        mark = _mark(found)
        if fence is not None:
            check_fence(fence)
            if mark.fence > fence:
                raise StaleFence(key, seen=mark.fence, got=fence)
        return FencedObject(body, mark.fence, found["ETag"])

    async def _head(self, key: str) -> "_Mark":
        try:
            return _mark(await self._client.head_object(Bucket=self._bucket, Key=key))
        except Exception as error:
            if _code(error) in _MISSING:
                return _Mark(0, -1, "", None)
            raise

    async def _check_fit(self) -> None:
        if self._fit is None or (self._fit.done() and (self._fit.cancelled() or self._fit.exception())):
            self._fit = asyncio.ensure_future(probe(self._client, self._bucket))
        await asyncio.shield(self._fit)


async def probe(client: Any, bucket: str, *, prefix: str = "asyncdlock-probe/") -> None:
    """Find out whether the store honours conditions, with one object that is deleted again.

    :raises UnfitStore: it does not.
    """
    key = f"{prefix}{uuid.uuid4()}"

    async def write(body: bytes, **condition: str) -> str | None:
        try:
            reply = await client.put_object(Bucket=bucket, Key=key, Body=body, **condition)
        except Exception as error:
            if _code(error) in _LOST_RACE:
                return None
            raise
        return str(reply["ETag"])

    try:
        first = await write(b"first", IfNoneMatch="*")
        if first is None:
            raise UnfitStore("the store refuses a conditional write of an object that does not exist")
        if await write(b"second", IfNoneMatch="*") is not None:
            raise UnfitStore("the store ignores If-None-Match: two writers could both create an object")
        second = await write(b"third", IfMatch=first)
        if second is None:
            raise UnfitStore("the store refuses If-Match with the right ETag")
        if await write(b"fourth", IfMatch=first) is not None:
            raise UnfitStore("the store ignores If-Match: a stale writer could overwrite a newer one")
    finally:
        await client.delete_object(Bucket=bucket, Key=key)


class _Mark(NamedTuple):
    fence: int
    seq: int
    digest: str
    etag: str | None


def _mark(reply: Any) -> _Mark:
    metadata = {name.lower(): value for name, value in reply.get("Metadata", {}).items()}
    fence, seq = int(metadata.get(_FENCE, 0)), int(metadata.get(_SEQ, -1))
    return _Mark(fence, seq, metadata.get(_DIGEST, ""), reply["ETag"])


def _check_order(key: str, found: _Mark, fence: int, seq: int) -> None:
    if found.fence > fence:
        raise StaleFence(key, seen=found.fence, got=fence)
    if found.fence == fence and found.seq >= seq:
        raise written_before(key, fence, found.seq)


def _code(error: BaseException) -> str:
    """The code of a botocore ClientError, or nothing: aiobotocore is not needed to import this module."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
