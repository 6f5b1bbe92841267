"""What every guard checks before it sends anything."""

from asyncdlock.errors import LockError

MAX_FENCE = 2**63 - 1


def check_fence(fence: int, seq: int = 0) -> None:
    """:raises ValueError: not a fence, or not the number of a write."""
    for name, number, least in (("fence", fence, 1), ("seq", seq, 0)):
        if type(number) is not int or not least <= number <= MAX_FENCE:
            raise ValueError(f"{name} must be a whole number from {least} to 2^63-1, not {number!r}")


def written_before(key: str, fence: int, seq: int) -> LockError:
    """The error for a holder that does not number its writes upwards; `seq` is its last one."""
    return LockError(
        f"{key!r} has write {seq} of fence {fence} already: number the writes of one holder upwards with seq"
    )
