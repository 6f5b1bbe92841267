"""The Lua scripts, one file a verb; each opens with its KEYS, its ARGV and what it returns."""

import hashlib
from importlib.resources import files

from asyncdlock.backends.redis.stream import pack


def octets(text: str) -> str:
    """The UTF-8 bytes of `text`, a character each, so that its length is the one that Redis wants."""
    return text if text.isascii() else text.encode().decode("latin-1")


def words(*values: str | int) -> str:
    """Each value as Redis takes it: its length in bytes, and the bytes."""
    texts = [octets(str(value)) for value in values]
    return "".join([f"${len(text)}\r\n{text}\r\n" for text in texts])


class Script:
    """A script's text and the name under which Redis caches it.

    A request names the script (EVALSHA); `in_full` makes it one that brings the text along (EVAL).

    `first`: a line of Lua that precedes its files.

    `once`: what it does can be done once only. An empty reply (0) to a repetition, when the reply to the
    first request was lost, may mean that the first had done it or that there was nothing to do.
    """

    __slots__ = ("_by_name", "_in_full", "_name", "once", "source")

    def __init__(self, *file_names: str, first: str = "", once: bool = False) -> None:
        self.once: bool = once
        folder = files(__name__)
        self.source: str = "\n".join([first, *((folder / name).read_text("utf-8") for name in file_names)])
        # Redis names scripts by SHA-1: an address, not a secret.
        self._name = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        self._by_name = words("EVALSHA", self._name)
        self._in_full = words("EVAL", self.source)

    def start(self, count: int) -> str:
        """How a request begins that has `count` words more: the number of keys, the keys and the ARGV."""
        return f"*{count + 2}\r\n{self._by_name}"

    def request(self, *values: str | int) -> bytes:
        """A request with these words."""
        return pack(("EVALSHA", self._name, *values))

    def in_full(self, request: bytes) -> bytes:
        """The same request with the script's text in the place of its name."""
        return request.replace(self._by_name.encode(), self._in_full.encode("latin-1"), 1)
