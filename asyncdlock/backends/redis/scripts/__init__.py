"""The Lua scripts, one file a verb; each opens with its KEYS, its ARGV and what it returns."""

import hashlib
from importlib.resources import files

from asyncdlock.backends.redis.requests import Arguments, octets


class Script:
    """A script's text and the name under which Redis caches it.

    `done` is what to make of an empty reply (0) to a repetition, when the reply to the first request
    was lost: there was nothing left to do because the first request had done it.
    """

    __slots__ = ("_by_name", "_in_full", "done", "source")

    def __init__(self, *file_names: str, done: int = 0) -> None:
        self.done = done
        folder = files(__name__)
        self.source = "\n".join((folder / name).read_text("utf-8") for name in file_names)
        # Redis names scripts by SHA-1: an address, not a secret.
        name = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        text = octets(self.source)
        self._by_name = f"$7\r\nEVALSHA\r\n${len(name)}\r\n{name}\r\n"
        self._in_full = f"$4\r\nEVAL\r\n${len(text)}\r\n{text}\r\n"

    def by_name(self, arguments: Arguments) -> bytes:
        """The request that Redis understands once it has seen the text."""
        count, text = arguments
        return f"*{count + 2}\r\n{self._by_name}{text}".encode("latin-1")

    def in_full(self, arguments: Arguments) -> bytes:
        """The request that brings the text along."""
        count, text = arguments
        return f"*{count + 2}\r\n{self._in_full}{text}".encode("latin-1")
