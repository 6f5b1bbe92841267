"""Reads `X-Fence-Token` and says no: what the HTTP guards for ASGI and aiohttp share."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from asyncdlock.errors import StaleFence
from asyncdlock.fencing._check import MAX_FENCE
from asyncdlock.fencing.signed import FenceSigner, InvalidSignature

HEADER = "X-Fence-Token"
READS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""The methods that HTTP calls safe. All others may write, also those that nobody has heard of."""

FAILED = 400
"""From this status on, what the endpoint wrote is not to be committed."""


class Unsuccessful(Exception):
    """The endpoint answered with an error: this makes the marks roll back, and goes no further."""


class Refusal(NamedTuple):
    """An answer in the place of the endpoint's."""

    status: int
    body: bytes


def fence_in(values: Sequence[str], key: str, signer: FenceSigner | None) -> int | Refusal:
    """The fence that a request carries, or why there is none."""
    if not values:
        return _refusal(428, f"{HEADER} is missing: send the fence of the lock that protects this")
    if len(values) > 1:
        return _refusal(400, f"{HEADER} stands in the request more than once")
    if signer is not None:
        try:
            return signer.verify(key, values[0])
        except InvalidSignature as invalid:
            return _refusal(403, str(invalid))
    text = values[0]
    # `int` would also take signs, underscores and other scripts' digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 0 < int(text) <= MAX_FENCE):
        return _refusal(400, f"{HEADER} must be a whole number from 1 to 2^63-1")
    return int(text)


def stale(error: StaleFence) -> Refusal:
    """The answer to a holder that was displaced."""
    return _refusal(409, "stale fencing token", seen=error.seen, got=error.got)


def _refusal(status: int, reason: str, **more: int) -> Refusal:
    return Refusal(status, json.dumps({"error": reason, **more}).encode())
