"""What clients of a fenced resource have in common: the requests, and what its answers mean."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from asyncdlock.errors import InvalidKey, LockError, StaleFence

Sign = Callable[[str, int], str]
"""From a key and a fence to the token that a resource with `--fence-key` believes: `FenceSigner.sign`."""

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
_VERSION = re.compile(r'(?:W/)?"([0-9]{1,19})"', re.ASCII)  # a proxy that compresses makes tags weak


class ResourceError(LockError):
    """The resource answered neither yes nor stale, or it was not the resource that answered.

    `definite` tells whether the write certainly did not happen: true after a refusal (a `status` of 400 to
    499), but not after a failure, a redirect, or an answer that no fenced resource gives.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
        self.definite: bool = 400 <= status < 500


class UnknownOutcome(LockError):
    """The lock has passed on, and whether the write was stored before that cannot be known any more.

    It was sent, its reply was lost, and by the time it was sent again the resource no longer remembered.
    """

    def __init__(self, key: str, *, seen: int, got: int) -> None:
        super().__init__(
            f"the write to {key!r} with fence {got} may have been stored: its reply was lost, and since then "
            f"the resource has seen {seen}"
        )
        self.key: str | None = key
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


def unsigned(key: str, fence: int) -> str:
    """The token of a fence where nobody signs."""
    return str(fence)


def path_of(key: str) -> str:
    """The path of a key, with nothing in it that is resolved on the way: even `..` is a key.

    :raises InvalidKey: it is not text.
    """
    try:
        return "/r/" + quote(key, safe="").replace(".", "%2E")
    except UnicodeEncodeError:
        raise InvalidKey(f"the key {key!r} is not text") from None


def write_headers(token: str, seq: int, *, repeat: bool) -> dict[str, str]:
    headers = {"X-Fence-Token": token, "X-Fence-Seq": str(seq)}
    if repeat:
        headers["X-Fence-Repeat"] = "1"
    return headers


def check_written(key: str, fence: int, status: int, body: bytes, *, repeat: bool) -> None:
    """Return if the write was stored, now or by an earlier try whose reply was lost.

    :raises StaleFence, UnknownOutcome, ResourceError: it was not, or that cannot be known.
    """
    answer = _parsed(body)
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


def value_of(key: str, fence: int | None, status: int, headers: Mapping[str, str], body: bytes) -> Value:
    """What a read found.

    :raises StaleFence, ResourceError: nothing that may be used.
    """
    if status not in (200, 404):
        raise _error(key, fence or 0, status, _parsed(body))
    written = _number(headers.get("X-Fence-Token", "0"))
    max_fence = _number(headers.get("X-Max-Fence"))
    tag = _VERSION.fullmatch(headers.get("ETag", '"0"'))
    if written is None or max_fence is None or tag is None or (status == 200 and "ETag" not in headers):
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
