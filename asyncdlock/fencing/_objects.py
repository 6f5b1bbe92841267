"""Objects of one bucket that are replaced only if nobody has replaced them meanwhile.

The condition is the ETag, and most stores derive it from the body alone: to whoever compares ETags, two
objects that differ in their metadata only are one. So whatever a decision rests on has to be in the body.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

_LOST_RACE = ("412", "PreconditionFailed", "409", "ConditionalRequestConflict")
_MISSING = ("404", "NoSuchKey", "NotFound")


class StoredObject(NamedTuple):
    """An object as it is now."""

    etag: str
    metadata: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""
    """Empty when only the head was asked for."""


class Objects:
    """`client` is an S3 client of aiobotocore or aioboto3; what it raises comes out as it is."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    async def head(self, key: str) -> StoredObject | None:
        """All but the body; None: there is no such object."""
        return await self._ask(self._client.head_object, key)

    async def get(self, key: str) -> StoredObject | None:
        """None: there is no such object."""
        return await self._ask(self._client.get_object, key)

    async def replace(
        self, key: str, body: bytes, *, etag: str | None, metadata: Mapping[str, str] | None = None
    ) -> str | None:
        """The new ETag, or None when the object is no longer the one with `etag`; no `etag`: create it.

        After an error it may have happened. A client that repeats requests by itself, as the aiohttp below it
        does, may also answer None for a replacement of its own.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            reply = await self._client.put_object(
                Bucket=self._bucket, Key=key, Body=body, Metadata=dict(metadata or {}), **condition
            )
        except Exception as error:
            if _code(error) in _LOST_RACE:
                return None
            raise
        return str(reply["ETag"])

    async def delete(self, key: str) -> None:
        await self._client.delete_object(Bucket=self._bucket, Key=key)

    async def _ask(self, verb: Any, key: str) -> StoredObject | None:
        try:
            reply = await verb(Bucket=self._bucket, Key=key)
        except Exception as error:
            if _code(error) in _MISSING:
                return None
            raise
        body = b""
        if "Body" in reply:
            async with reply["Body"] as stream:
                body = await stream.read()
        metadata = {name.lower(): value for name, value in reply.get("Metadata", {}).items()}
        return StoredObject(reply["ETag"], metadata, body)


def _code(error: BaseException) -> str:
    """The code of a botocore ClientError, or nothing: aiobotocore is not needed to import this module."""
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""
