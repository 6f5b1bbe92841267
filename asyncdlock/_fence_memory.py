"""Remembers the last fence of recent keys, to notice a counter that was lost with its server's data."""

_KEYS = 65_536


class FenceMemory:
    """The highest fence seen per key, for the most recently used half of at most 65,536 keys."""

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        # Two generations instead of an ordered map: no bookkeeping per acquisition.
        self._young: dict[str, int] = {}
        self._old: dict[str, int] = {}

    def highest(self, key: str) -> int:
        return self._young.get(key) or self._old.get(key, 0)

    def rises(self, key: str, fence: int) -> bool:
        """Note the fence of a grant; whether it is above what was seen before."""
        young = self._young
        highest = young.get(key)
        if highest is None:
            highest = self._old.get(key, 0)
            if len(young) >= _KEYS // 2:
                self._old = young
                self._young = young = {}
        if fence > highest:
            young[key] = fence
            return True
        # Two grants of one key may reach us out of order only if the first is already over.
        young[key] = highest
        return False
