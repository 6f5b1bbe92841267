"""What the resource answered, and what that means for a write."""

import json
from typing import Any, NamedTuple

from multidict import CIMultiDict

from harness.history.rows import WriteOutcome


class Meaning(NamedTuple):
    """What a reply says about the write that it answers."""

    write: WriteOutcome
    seen: int | None = None
    """The highest fence that the resource has accepted, when it refused ours."""
    error: str | None = None


_ACCEPTED = Meaning("accepted")


class Reply:
    """One reply as it came; of a write without one, the reason why there is none.

    It is read when somebody asks: of nearly all writes only the status is ever looked at.
    """

    __slots__ = ("_head", "body", "missing", "status")

    def __init__(
        self, status: int, body: bytes = b"", head: bytes = b"", *, missing: Meaning | None = None
    ) -> None:
        """`head` are the header lines, behind remarks like `100 Continue` if there were any."""
        self.status = status
        """0: there was no reply, `missing` says why."""
        self.body = body
        self.missing = missing
        self._head = head

    @property
    def meaning(self) -> Meaning:
        """Of a reply to a write. It has `failed` only where it certainly did not happen: a refusal that the
        resource promises to be one, or a request that never left."""
        if self.status == 200:
            return _ACCEPTED
        if self.missing is not None:
            return self.missing
        text = self.body[:200].decode(errors="replace")
        if self.status == 409:
            try:
                told = json.loads(self.body)
                # Sent again because its first reply was lost, and found to be what is stored.
                return _ACCEPTED if told.get("yours") else Meaning("stale", int(told["seen"]))
            except (ValueError, TypeError, KeyError, AttributeError):
                return Meaning("unknown", error=f"the resource answered 409 without a mark: {text}")
        definite = 400 <= self.status < 500
        error = f"the resource answered {self.status}: {text}"
        return Meaning("failed" if definite else "unknown", error=error)

    @property
    def write(self) -> WriteOutcome:
        return self.meaning.write

    @property
    def seen(self) -> int | None:
        return self.meaning.seen

    @property
    def error(self) -> str | None:
        return self.meaning.error

    @property
    def conflict(self) -> bool:
        """Nothing was stored: the value is not the one that the write was made for."""
        return self.status == 412

    @property
    def headers(self) -> CIMultiDict[str]:
        """All of them, in their order."""
        head = self._head.decode("utf-8", "surrogateescape")
        while head.startswith("HTTP/1.1 1"):  # a remark on the way to the reply
            head = head.partition("\r\n\r\n")[2]
        pairs = (line.partition(":") for line in head.partition("\r\n\r\n")[0].split("\r\n")[1:])
        return CIMultiDict((name, value.strip()) for name, _, value in pairs)

    @property
    def json(self) -> Any:
        """The document in the body.

        :raises ValueError: it holds none.
        """
        if not self.headers.get("Content-Type", "").startswith("application/json"):
            raise ValueError(f"the reply is no JSON: {self.status} {self.body[:200]!r}")
        return json.loads(self.body)

    @property
    def fence(self) -> int:
        """The fence that the value was written with; 0 if none."""
        return int(self.headers.get("X-Fence-Token", "0"))

    @property
    def max_fence(self) -> int:
        """The highest fence that the resource has seen for the key."""
        return int(self.headers.get("X-Max-Fence", "0"))

    def __repr__(self) -> str:
        return f"Reply({self.status}, {self.body[:200]!r})" if self.status else f"Reply({self.missing})"
