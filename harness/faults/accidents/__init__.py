"""What administrators do to lock servers by mistake, and what a lock can still promise after it.

One file for each kind of server. An accident that takes a lock from its holder `frees` it: for as long as the
fault is noted, two may believe that they hold it. One that makes the server forget what it has counted
`forgets`: fences may run backwards once, and the resource refuses them. All others excuse nothing.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping

from harness.faults.accidents import etcd, every, postgres, redis
from harness.faults.accidents.accident import Accident, AccidentFailed, Site
from harness.faults.journal import FaultJournal

__all__ = ["ACCIDENTS", "OF_BACKEND", "Accident", "AccidentFailed", "Site", "accident"]

OF_BACKEND: Mapping[str, tuple[Accident, ...]] = {
    "redis": (*redis.ALL, *every.ALL),
    "redis-queue": (*redis.ALL, *redis.WITH_A_QUEUE, *every.ALL),
    "redlock": (*redis.ALL, *every.ALL),
    "etcd": (*etcd.ALL, *every.ALL),
    "zookeeper": every.ALL,
    "postgres": (*postgres.ALL, *every.ALL),
}
"""Those that make sense for each backend."""

ACCIDENTS: Mapping[str, Accident] = {one.name: one for some in OF_BACKEND.values() for one in some}


@contextlib.asynccontextmanager
async def accident(journal: FaultJournal, what: Accident, site: Site) -> AsyncIterator[None]:
    """It happens on entry, and counts as going on for as long as the body runs.

    Whoever held a lock that it freed may rely on it until a TTL later: keep the body that long.

    :raises AccidentFailed: the server did not do it, or did not say so.
    """
    effects = {"frees": what.frees, "forgets": what.forgets}
    scope = {name: True if reach == "all" else site.key for name, reach in effects.items() if reach}
    with journal.fault(what.name, who=f"{site.node.kind} {site.node.address}", key=site.key, **scope):
        try:
            await what.cause(site)
        except Exception as error:  # whatever the tool of this server raises
            raise AccidentFailed(f"{what.name}: {type(error).__name__}: {error}") from error
        yield
