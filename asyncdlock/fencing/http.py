"""A client for resources that speak `X-Fence-Token`, such as `python -m harness resource`."""

import json
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from asyncdlock.errors import LockError, StaleFence

if TYPE_CHECKING:
    import aiohttp
    import yarl


class ResourceError(LockError):
    """The resource answered neither yes nor stale.

    With a `status` of 500 or more the write may have happened, as after a lost connection; with a
    smaller one it did not.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Value(NamedTuple):
    """What a read found."""

    body: bytes | None
    """None: never written."""
    fence: int
    """The fence that the value was written with."""
    max_fence: int
    """The highest fence that the resource has seen."""
    version: int


class FencedHttp:
    """Reads and writes values under the fence of a lock.

    `session` stays the caller's: this neither opens nor closes connections of its own. A failed
    connection raises what the session raises (`aiohttp.ClientError`, `TimeoutError`).
    """

    def __init__(self, base_url: str, session: "aiohttp.ClientSession") -> None:
        self._base = base_url.rstrip("/") + "/r/"
        self._session = session

    async def put(self, key: str, body: bytes, *, fence: int, seq: int = 0) -> None:
        """Store `body`, unless a later holder of the lock has been here.

        A holder that writes more than once numbers its writes upwards with `seq`. Repeating a
        call whose reply was lost is safe: the resource recognises what it has already accepted.

        :raises StaleFence: the lock has passed on; nothing was stored.
        :raises ResourceError: the request was refused for another reason, or the resource failed.
        :raises aiohttp.ClientError: no reply. Then, and when cancelled, the write may have happened.
        """
        headers = {"X-Fence-Token": str(fence), "X-Fence-Seq": str(seq)}
        async with self._session.put(self._url(key), data=body, headers=headers) as response:
            if response.status == 200:
                return
            answer = _parsed(await response.read())
            if response.status == 409 and answer.get("yours") is True:
                return
            raise _error(key, fence, response.status, answer)

    async def get(self, key: str, *, fence: int | None = None) -> Value:
        """The value. With a `fence`, older holders can no longer write once this returns.

        A read-modify-write is only safe if its read carries the fence as well: otherwise an older
        holder may write between that read and the write that is based on it.

        :raises StaleFence: the lock has passed on.
        :raises ResourceError: the request was refused for another reason, or the resource failed.
        :raises aiohttp.ClientError: no reply.
        """
        headers = {} if fence is None else {"X-Fence-Token": str(fence)}
        async with self._session.get(self._url(key), headers=headers) as response:
            body = await response.read()
            if response.status not in (200, 404):
                raise _error(key, fence or 0, response.status, _parsed(body))
            found = response.headers
            return Value(
                body if response.status == 200 else None,
                fence=int(found.get("X-Fence-Token", "0")),
                max_fence=int(found.get("X-Max-Fence", "0")),
                version=int(found.get("ETag", "0").strip('"')),
            )

    def _url(self, key: str) -> "yarl.URL":
        # Comes with aiohttp, which asyncdlock itself does without.
        from yarl import URL

        # `encoded`: a key such as `..` must reach the resource as it is, not as a path to walk.
        return URL(self._base + quote(key, safe="").replace(".", "%2E"), encoded=True)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"error": body[:200].decode(errors="replace")}


def _error(key: str, fence: int, status: int, answer: dict[str, Any]) -> LockError:
    if status == 409 and "seen" in answer:
        return StaleFence(key, seen=answer["seen"], got=fence)
    return ResourceError(
        f"the resource answered {status} for {key!r}: {answer.get('error', 'no reason given')}", status=status
    )
