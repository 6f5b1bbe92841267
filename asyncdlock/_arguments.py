"""What callers may pass as keys and times: everything else is refused before anything is sent."""

from inspect import iscoroutinefunction

from asyncdlock.backend import Backend
from asyncdlock.errors import InvalidKey
from asyncdlock.types import MAX_KEY_BYTES

MAX_LABEL = 200
"""Characters."""


def check_key(key: str) -> str:
    """The key as plain text: a member of an enumeration is formatted by its name, and stored by its value.

    :raises InvalidKey: it cannot be the name of a lock.
    """
    if not isinstance(key, str):
        raise InvalidKey(f"a key is a str, not {type(key).__name__}")
    if not key:
        raise InvalidKey("a key must not be empty", key=key)
    if "\0" in key:
        raise InvalidKey("a key must not contain NUL", key=key)
    if key.isascii():
        size = len(key)
    else:
        try:
            size = len(key.encode())
        except UnicodeEncodeError as error:
            raise InvalidKey(f"a key must be valid Unicode: {error.reason}", key=key) from None
    if size > MAX_KEY_BYTES:
        raise InvalidKey(f"a key has at most {MAX_KEY_BYTES} UTF-8 bytes, this one has {size}", key=key)
    return str.__str__(key)


def check_ttl(ttl: float, backend: Backend) -> None:
    """:raises ValueError: it is not a length of time, or not one that the backend can do."""
    can = backend.capabilities
    if not _is_number(ttl) or not 0 < ttl < 2**31:
        raise ValueError(f"ttl must be a positive number of seconds, not {ttl!r}")
    if ttl < can.min_ttl:
        raise ValueError(f"{backend.name} cannot do a ttl of {ttl:g} s: the shortest is {can.min_ttl:g} s")
    if can.ttl_step and ttl % can.ttl_step:
        raise ValueError(
            f"{backend.name} cannot do a ttl of {ttl:g} s: it takes multiples of {can.ttl_step:g} s"
        )


def check_timeout(timeout: float) -> None:
    """:raises ValueError: it is not a length of time; 0 means one attempt."""
    if not _is_number(timeout) or not timeout >= 0:
        raise ValueError(f"timeout must be a number of seconds, 0 or more, or None, not {timeout!r}")


def check_max_hold(max_hold: float | None) -> None:
    """:raises ValueError: it is neither a length of time nor None."""
    if max_hold is not None and (not _is_number(max_hold) or not max_hold > 0):
        raise ValueError(f"max_hold must be a positive number of seconds or None, not {max_hold!r}")


def check_every(every: float) -> None:
    """:raises ValueError: it is not an interval to poll in."""
    if not _is_number(every) or not 0 < every < 2**31:
        raise ValueError(f"every must be a positive number of seconds, not {every!r}")


def check_label(label: str) -> None:
    """:raises ValueError: it cannot be shown in one line."""
    if not isinstance(label, str) or not 0 < len(label) <= MAX_LABEL or not label.isprintable():
        raise ValueError(f"a label is printable text of 1 to {MAX_LABEL} characters, not {label!r:.100}")


def check_prefix(prefix: str) -> None:
    """:raises ValueError: no key could begin with it."""
    if not isinstance(prefix, str):
        raise ValueError(f"prefix must be text, not {type(prefix).__name__}")
    if prefix:
        try:
            check_key(prefix)
        except InvalidKey as error:
            raise ValueError(f"no key can begin with this prefix: {error}") from None


def check_on_lost(on_lost: object) -> None:
    """:raises ValueError: it cannot be called, or what it returns would have to be awaited."""
    if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
        raise ValueError(
            f"on_lost must be a plain function of one LockLost, not {on_lost!r}: nobody would await anything"
        )


def _is_number(value: object) -> bool:
    """A bool is an int to Python, but nobody means one second by it."""
    return isinstance(value, int | float) and not isinstance(value, bool)
