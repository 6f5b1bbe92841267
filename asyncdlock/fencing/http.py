"""A client for resources that speak `X-Fence-Token`, such as `python -m harness resource`."""

import json
import re
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from asyncdlock.errors import InvalidKey, LockError, StaleFence

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_VERSION = re.compile(r'(?:W/)?"([0-9]{1,19})"', re.ASCII)  # a proxy that compresses makes tags weak


class ResourceError(LockError):
    """The resource answered neither yes nor stale, or it was not the resource that answered.

    `definite` tells whether the write certainly did not happen: so after a refusal (a `status` of 400 to
    499), not after a failure, a redirect, or an answer that no fenced resource gives.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
        self.definite = 400 <= status < 500


class UnknownOutcome(LockError):
    """The lock has passed on, and whether the write was stored before that cannot be known any more.

    It was sent, its reply was lost, and by the time it was sent again the resource no longer remembered.
    """

    def __init__(self, key: str, *, seen: int, got: int) -> None:
        super().__init__(
            f"the write to {key!r} with fence {got} may have been stored: its reply was lost, and since then "
            f"the resource has seen {seen}"
        )
        self.key = key
        self.seen = seen
        self.got = got

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_unknown_outcome, (self.key, self.seen, self.got)


def _rebuild_unknown_outcome(key: str, seen: int, got: int) -> UnknownOutcome:
    return UnknownOutcome(key, seen=seen, got=got)


class Value(NamedTuple):
    """What a read found."""

    body: bytes | None
    """None: never written."""
    fence: int
    """The fence that the value was written with."""
    max_fence: int
    """The highest fence that the resource has seen."""
    version: int


class OneShotBody(aiohttp.BytesPayload):
    """A body that is sent once.

    aiohttp sends a PUT again by itself when a kept connection turns out to be closed, though the first one
    may have been carried out. Nobody could then tell which of the two an answer belongs to.
    """

    @property
    def consumed(self) -> bool:
        return self._sent

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._sent = False

    async def write(self, writer: AbstractStreamWriter) -> None:
        self._send()
        await super().write(writer)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._send()
        await super().write_with_length(writer, content_length)

    def _send(self) -> None:
        if self._sent:
            raise aiohttp.ClientConnectionError("the body was sent before, on a connection that was lost")
        self._sent = True


class FencedHttp:
    """Reads and writes values under the fence of a lock.

    `session` stays the caller's: this neither opens nor closes connections of its own. A failed
    connection raises what the session raises (`aiohttp.ClientError`, `TimeoutError`).
    """

    def __init__(self, base_url: str, session: aiohttp.ClientSession) -> None:
        self._base = base_url.rstrip("/") + "/r/"
        self._session = session

    async def put(self, key: str, body: bytes, *, fence: int, seq: int = 0, repeat: bool = False) -> None:
        """Store `body`, unless a later holder of the lock has been here.

        A holder that writes more than once numbers its writes upwards with `seq`. A call whose reply was
        lost may be repeated, with `repeat`: the resource recognises what it has accepted, also when others
        have written since. A kept connection that turns out to be closed is such a case, and is
        repeated here, once.

        :raises StaleFence: the lock has passed on; nothing was stored.
        :raises UnknownOutcome: the lock has passed on; a repeated write may have been stored before that.
        :raises ResourceError: the request was refused for another reason, or the resource failed.
        :raises aiohttp.ClientError: no reply. Then, and when cancelled, the write may have happened.
        """
        try:
            await self._put(key, body, fence, seq, repeat=repeat)
        except aiohttp.ClientConnectorError:
            raise  # no connection, hence nothing that was lost with one
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            await self._put(key, body, fence, seq, repeat=True)

    async def _put(self, key: str, body: bytes, fence: int, seq: int, *, repeat: bool) -> None:
        headers = {"X-Fence-Token": str(fence), "X-Fence-Seq": str(seq)}
        if repeat:
            headers["X-Fence-Repeat"] = "1"
        async with self._session.put(
            _url(self._base, key), data=OneShotBody(body), headers=headers, allow_redirects=False
        ) as response:
            status, answer = response.status, _parsed(await response.read())
        if status == 200 and isinstance(answer.get("version"), int):
            return
        if status == 409 and isinstance(answer.get("seen"), int):
            yours = answer.get("yours")
            if yours is True:
                return
            # A resource that keeps no memory of its writes says nothing of `yours`.
            if repeat and yours is not False:
                raise UnknownOutcome(key, seen=answer["seen"], got=fence)
        raise _error(key, fence, status, answer)

    async def get(self, key: str, *, fence: int | None = None) -> Value:
        """The value. With a `fence`, older holders can no longer write once this returns.

        A read-modify-write is only safe if its read carries the fence as well: otherwise an older
        holder may write between that read and the write that is based on it.

        :raises StaleFence: the lock has passed on.
        :raises ResourceError: the request was refused for another reason, the resource failed, or it
            does not fence reads.
        :raises aiohttp.ClientError: no reply.
        """
        headers = {} if fence is None else {"X-Fence-Token": str(fence)}
        async with self._session.get(
            _url(self._base, key), headers=headers, allow_redirects=False
        ) as response:
            body = await response.read()
            status, found = response.status, response.headers
        if status not in (200, 404):
            raise _error(key, fence or 0, status, _parsed(body))
        written = _number(found.get("X-Fence-Token", "0"))
        max_fence = _number(found.get("X-Max-Fence"))
        tag = _VERSION.fullmatch(found.get("ETag", '"0"'))
        if written is None or max_fence is None or tag is None or (status == 200 and "ETag" not in found):
            raise ResourceError(
                f"what answered {status} for {key!r} is no fenced resource: X-Max-Fence or ETag is missing "
                "or malformed",
                status=status,
            )
        if fence is not None and max_fence < fence:
            raise ResourceError(
                f"the resource has not noted the fence {fence} of a read of {key!r}: it does not fence reads",
                status=status,
            )
        return Value(body if status == 200 else None, written, max_fence, int(tag[1]))


def _url(base: str, key: str) -> URL:
    try:
        # `encoded`: a key such as `..` must reach the resource as it is, not as a path to walk.
        return URL(base + quote(key, safe="").replace(".", "%2E"), encoded=True)
    except UnicodeEncodeError:
        raise InvalidKey(f"the key {key!r} is not text") from None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"error": body[:200].decode(errors="replace")}


def _error(key: str, fence: int, status: int, answer: dict[str, Any]) -> LockError:
    if status == 409 and isinstance(answer.get("seen"), int):
        return StaleFence(key, seen=answer["seen"], got=fence)
    what = "as no fenced resource does " if status < 400 else ""
    reason = answer.get("error") or "no reason given"
    return ResourceError(f"the resource answered {status} {what}for {key!r}: {reason}", status=status)
