"""Names of the keys in Redis: a lock's companions live in the same Cluster slot as the lock."""

from asyncdlock.errors import InvalidKey


def companion(prefix: str, key: str) -> str:
    """The key `prefix:{key}`; a key that brings its own hash tag keeps it."""
    start = key.find("{")
    if start >= 0 and key.find("}", start) > start + 1:
        return f"{prefix}:{key}"
    return f"{prefix}:{{{key}}}"


def fence_key(key: str) -> str:
    """Where the fence counter of `key` is stored."""
    return companion("fence", key)


def check_cluster_key(key: str) -> None:
    """A lone brace can make it impossible to name a companion key in the same slot.

    :raises InvalidKey: this key has no companion in its slot.
    """
    from redis.crc import key_slot

    if key_slot(key.encode()) != key_slot(fence_key(key).encode()):
        raise InvalidKey(f"{key!r} cannot be locked in a Redis Cluster: its braces do not form a hash tag")
