"""The Lua scripts, one file a verb; each opens with its KEYS, its ARGV and what it returns."""

import hashlib
from importlib.resources import files


class Script:
    """A script's text and the name under which Redis caches it.

    `done` is what to make of an empty reply (0) to a repetition, when the reply to the first request
    was lost: there was nothing left to do because the first request had done it.
    """

    __slots__ = ("done", "sha", "source")

    def __init__(self, *file_names: str, done: int = 0) -> None:
        self.done = done
        folder = files(__name__)
        self.source = "\n".join((folder / name).read_text("utf-8") for name in file_names)
        # Redis names scripts by SHA-1: an address, not a secret.
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
