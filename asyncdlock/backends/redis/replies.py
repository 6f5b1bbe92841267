"""Errors of Redis and of redis-py, as errors of this library."""

import redis.exceptions as redis_py

from asyncdlock.errors import BackendError, BackendUnavailable

# Terminal: the same request fails again. Transient: the server cannot serve now, and did not.
_TRANSIENT = frozenset(("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS"))


class ScriptMissing(BackendError):
    """NOSCRIPT: the server was restarted or failed over and forgot our scripts."""


class Moved(BackendError):
    """MOVED or ASK: the slot is served, or about to be, by another node of the cluster."""

    def __init__(self, message: str, *, host: str, port: int, ask: bool) -> None:
        super().__init__(message, definite=True)
        self.host = host
        self.port = port
        self.ask = ask


class NotNow(BackendUnavailable):
    """The server is there, but cannot serve yet: it loads its data, or is busy."""


class ReadOnly(BackendUnavailable):
    """READONLY: this server became a replica; the primary is elsewhere."""


class ForeignData(BackendError):
    """A key of ours holds what somebody else stored there."""


class OutcomeUnknown(BackendError):
    """A request was repeated, and the reply does not tell whether the first one had been carried out."""


def foreign_data(key: str, error: str, *, definite: bool) -> BackendError:
    """What the user reads who would lock a key that is somebody else's."""
    return BackendError(
        f"{key!r} cannot be locked: one of its keys holds data of another program ({error}); "
        "choose another key, or set the locks apart with connect(url, prefix=…)",
        definite=definite,
    )


def indefinite(error: BackendError) -> BackendError:
    """The same failure, of a request that may have been carried out by an earlier try."""
    kind = BackendUnavailable if isinstance(error, BackendUnavailable) else BackendError
    return kind(str(error), definite=False)


def error_from_reply(reply: Exception) -> BackendError:
    """What an error reply means; the server did not do what was asked."""
    text = str(reply)
    code, _, rest = text.partition(" ")
    if code == "NOSCRIPT":
        return ScriptMissing(text, definite=True)
    if code in ("MOVED", "ASK"):
        _, _, address = rest.partition(" ")
        host, _, port = address.rpartition(":")
        return Moved(text, host=host, port=int(port), ask=code == "ASK")
    # Redis 6 wraps the error of a command in that of the script: "ERR Error running script … -READONLY …".
    if code == "READONLY" or "-READONLY " in text:
        return ReadOnly(f"Redis: {text}", definite=True)
    if code in _TRANSIENT:
        return NotNow(f"Redis: {text}", definite=True)
    if code == "FOREIGN":
        return ForeignData(rest, definite=True)
    if "WRONGTYPE " in text:
        return ForeignData("it is of another type", definite=True)
    if "value is not an integer" in text:
        return ForeignData("its fence counter is not an integer", definite=True)
    return BackendError(f"Redis: {text}", definite=True)


def error_from_redis_py(error: Exception) -> BackendError:
    """What it means that redis-py could not open a connection; nothing was sent."""
    if isinstance(
        error, redis_py.AuthenticationError | redis_py.NoPermissionError | redis_py.AuthorizationError
    ):
        return BackendError(f"Redis refused the credentials: {error}", definite=True)
    if isinstance(error, OSError | TimeoutError | redis_py.ConnectionError | redis_py.TimeoutError):
        return BackendUnavailable(f"Redis cannot be reached: {error}", definite=True)
    if isinstance(error, redis_py.ResponseError):
        return BackendError(f"Redis refused the connection: {error}", definite=True)
    return BackendUnavailable(f"Redis cannot be reached: {type(error).__name__}: {error}", definite=True)
