"""Names of the keys in Redis: a lock's companions live in the same Cluster slot as the lock."""

from redis.crc import key_slot

from asyncdlock.errors import InvalidKey


def tagged(key: str) -> str:
    """`{key}`, for the names of companions; a key that brings its own hash tag keeps it."""
    if "{" in key:
        start = key.find("{")
        if key.find("}", start) > start + 1:
            return key
    return f"{{{key}}}"


def companion(prefix: str, key: str) -> str:
    """The key `prefix:{key}`."""
    return f"{prefix}:{tagged(key)}"


def fence_key(key: str) -> str:
    """Where the fence counter of `key` is stored."""
    return companion("fence", key)


def slot_of(key: str) -> int:
    """The Cluster slot of a lock and of its companions.

    :raises InvalidKey: a lone brace makes it impossible to name companions in the lock's slot.
    """
    slot: int = key_slot(key.encode())
    if ("{" in key or "}" in key) and key_slot(fence_key(key).encode()) != slot:
        raise InvalidKey(f"{key!r} cannot be locked in a Redis Cluster: its braces do not form a hash tag")
    return slot
