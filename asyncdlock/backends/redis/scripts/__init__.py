"""The Lua scripts, one file a verb; each opens with its KEYS, its ARGV and what it returns."""

import hashlib
from importlib.resources import files


class Script:
    """A script's text and the name under which Redis caches it."""

    __slots__ = ("sha", "source")

    def __init__(self, *file_names: str) -> None:
        folder = files(__name__)
        self.source = "\n".join((folder / name).read_text("utf-8") for name in file_names)
        # Redis names scripts by SHA-1: an address, not a secret.
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
