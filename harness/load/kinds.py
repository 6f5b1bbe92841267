"""Which kind of lock the contenders take: alone, as a share of readers, or one of N permits."""

import math
from collections.abc import Coroutine
from typing import Any, NamedTuple

from asyncdlock.client import LockClient
from asyncdlock.handle import Handle

EXCLUSIVE = "exclusive"
# Multiples of the golden ratio fall evenly between 0 and 1, however few there are.
_GOLDEN = (math.sqrt(5) - 1) / 2


class Kind(NamedTuple):
    """What `--kind` says."""

    share: float = 0.0
    """The share of arrivals that take the lock together with others."""
    permits: int = 0
    """How many may hold it at once; 0: any number of readers."""

    @classmethod
    def parse(cls, text: str) -> "Kind":
        """:raises ValueError: it is none of the three."""
        name, _, number = text.partition(":")
        try:
            if text == EXCLUSIVE:
                return cls()
            if name == "shared" and 0 < float(number) <= 1:
                return cls(share=float(number))
            if name == "semaphore" and int(number) > 0:
                return cls(share=1.0, permits=int(number))
        except ValueError:
            pass
        raise ValueError(f"{text!r} is no kind of lock: write exclusive, shared:0.9 or semaphore:8")

    def beside_others(self, arrival: int) -> bool:
        """Whether this arrival takes the lock together with others."""
        return (arrival * _GOLDEN) % 1.0 < self.share

    @property
    def writes(self) -> bool:
        """Whether those who hold it together write to the resource; readers do not."""
        return self.permits > 0

    def acquire(
        self, client: LockClient, key: str, *, ttl: float, timeout: float | None, renew: bool
    ) -> Coroutine[Any, Any, Handle]:
        """Take the lock together with others."""
        if self.permits:
            return client.semaphore(key, permits=self.permits).acquire(ttl=ttl, timeout=timeout, renew=renew)
        return client.acquire(key, ttl=ttl, timeout=timeout, renew=renew, shared=True)

    def refusal(self, client: LockClient) -> str:
        """Why this client cannot; empty when it can."""
        can = client.capabilities
        if self.permits and not can.semaphore:
            return "this backend has no semaphores"
        if self.share and not self.permits and not can.shared:
            return "this backend has no shared locks"
        return ""
