"""redlock://: a majority of independent Redis nodes, and fences from a counter that the quorum keeps."""

from asyncdlock.backends.redlock.backend import FENCE_SCALE, RedlockBackend
from asyncdlock.backends.redlock.url import from_url

__all__ = ["FENCE_SCALE", "RedlockBackend", "from_url"]
