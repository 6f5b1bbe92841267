"""What clients say they were granted, compared with what the server granted."""

from collections import defaultdict
from collections.abc import Iterable

from harness.history.rows import Row
from harness.trace.redis_queue import Block

_SESSION = 23


def strangers(rows: Iterable[Row], blocks: Iterable[Block]) -> list[str]:
    """A sentence for each grant that the server did not make.

    A fence is one of a block that went to its owner's session: tasks of one process pass the lock on.
    """
    made: dict[tuple[str, str], list[Block]] = defaultdict(list)
    for block in blocks:
        made[block.lock, block.session].append(block)
    return [
        f"{row.owner!r} holds {row.key!r} with fence {row.fence}, which the server never gave to its process"
        for row in rows
        if row.fence is not None
        and row.owner is not None
        and not any(one.before < row.fence <= one.last for one in made[row.key, row.owner[:_SESSION]])
    ]
