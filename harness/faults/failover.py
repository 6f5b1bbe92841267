"""A failover: the server that leads dies, another takes its place, and the dead one comes back.

In a quorum nothing is lost by it. Redis replicates asynchronously: what the replica had not received is
forgotten, once when it is promoted and once more on the way back.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from harness.faults.journal import FaultJournal
from harness.faults.tcp_link import Link
from harness.servers import RedisNode, ReplicatedRedis
from harness.servers.group import Peer, Quorum


@contextlib.asynccontextmanager
async def killed_leader(journal: FaultJournal, members: Sequence[Peer]) -> AsyncIterator[None]:
    """The leader is killed with kill -9. The body runs once another leads, and then it starts again.

    When the body raises or is cancelled, it stays down.

    :raises ServerFailed: nobody leads, or it does not start again.
    """
    quorum = Quorum(members)
    leader = await quorum.leader()
    with journal.fault("failover", who=f"{leader.kind} {leader.address}"):
        leader.kill()
        await quorum.leader()
        yield
        await leader.start()


@contextlib.asynccontextmanager
async def promoted_replica(
    journal: FaultJournal, nodes: Sequence[RedisNode], links: Sequence[Link], *, trusted_after: float
) -> AsyncIterator[None]:
    """The primary is killed with kill -9, and for as long as the body runs the replica is in its place.

    Those who come by `links` are led to whoever is the primary, as by an address that moves. Then the dead
    one starts, follows, and is promoted again. A lock that was lost on either way may be relied on by two:
    the fault is noted as going on until `trusted_after` seconds later, which should be a TTL.

    :raises ServerFailed: a server was not running, or does not start again or follow.
    """
    group = ReplicatedRedis(nodes)
    primary, (replica,) = group.primary, group.replicas
    with journal.fault("failover", who=f"primary {primary.address}", frees=True, forgets=True):
        primary.kill()
        await group.promote(replica)
        _lead(links, replica)
        yield
        await primary.start()
        await group.follow(primary, replica.address)
        await group.promote(primary)
        _lead(links, primary)
        await group.follow(replica)
        await asyncio.sleep(trusted_after)


def _lead(links: Sequence[Link], node: RedisNode) -> None:
    for link in links:
        link.lead_to(node.address)
