"""What a gRPC failure means: ask again, sign in again, or give up; and did it certainly not happen?"""

import enum
from typing import Any, NamedTuple

import grpc

from asyncdlock.backends.etcd.transport.conversation import RpcFailed
from asyncdlock.errors import BackendError, BackendUnavailable

# etcd's own refusals before it proposes anything.
_NOT_PROPOSED = ("no leader", "too many requests")
# Any other code is an answer of etcd's, given instead of carrying the request out.
_OUTCOME_UNKNOWN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
    }
)
# etcd applies what was proposed while there was room, and answers this if there is none left by then.
_NO_SPACE = "database space exceeded"
# Not an answer of etcd's, whatever code it is translated to: both transports say so in these words.
_RESET = "RST_STREAM"
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old", "user name is empty")


class Advice(enum.Enum):
    """What the caller does next."""

    ANOTHER_MEMBER = enum.auto()
    SIGN_IN = enum.auto()
    GIVE_UP = enum.auto()


class Failure(NamedTuple):
    """One failed attempt."""

    advice: Advice
    definite: bool
    """The request certainly had no effect."""
    reason: str
    code: Any


def classify(error: RpcFailed) -> Failure:
    """Sort a failed call by status code and, where the code says too little, by its details."""
    code, details = error.code, error.details
    reason = details or code.name
    if any(text in details for text in _STALE_TOKEN):
        return Failure(Advice.SIGN_IN, True, reason, code)
    if error.unsent or any(text in details for text in _NOT_PROPOSED):
        return Failure(Advice.ANOTHER_MEMBER, True, reason, code)
    if code in _OUTCOME_UNKNOWN or _RESET in details:
        return Failure(Advice.ANOTHER_MEMBER, False, reason, code)
    return Failure(Advice.GIVE_UP, _NO_SPACE not in details, reason, code)


class LeaseNotFound(BackendError):
    """The lease that a request names has expired or was revoked. Nothing happened."""


class NoSpace(BackendError):
    """The store is full, or became so as it carried the request out: then that happened."""


def refusal(failure: Failure, endpoint: str, *, definite: bool) -> BackendError:
    """The error for a request that etcd answered with a refusal."""
    kind: type[BackendError] = BackendError
    if failure.code is grpc.StatusCode.NOT_FOUND and "lease" in failure.reason:
        kind = LeaseNotFound
    elif _NO_SPACE in failure.reason:
        kind = NoSpace
    return kind(f"etcd at {endpoint} refused the request: {failure.reason}", definite=definite)


def unavailable(
    failure: Failure, endpoints: tuple[str, ...], seconds: float, *, definite: bool
) -> BackendUnavailable:
    """The error for a request that no member answered in time."""
    members = ", ".join(endpoints)
    return BackendUnavailable(
        f"no etcd member of {members} answered within {seconds:g} s (last: {failure.reason})",
        definite=definite,
    )
