"""A failover that forgets: the primary dies, and the replica that takes over has missed the last writes.

Redis replicates asynchronously, so this needs nothing but bad luck. Here it is arranged: the replica
follows the primary through a `Link`, which is cut before the write that is to be forgotten.
"""

from harness.faults.journal import FaultJournal
from harness.servers import RedisNode, ReplicatedRedis


async def promote_behind(journal: FaultJournal, group: ReplicatedRedis, replica: RedisNode) -> None:
    """Kill the primary with kill -9 and make `replica` the primary, whatever it has missed.

    Returns when the replica accepts writes.

    :raises ServerFailed: one of them was not running.
    """
    with journal.fault("failover", who=f"primary {group.primary.address}", promoted=replica.address):
        group.primary.kill()
        await group.promote(replica)
