"""The one catalogue of installations: how each is started, and what a run or an experiment must know of it.

A new backend is one entry here: `--backend`, `servers up`, the experiments and the contract tests find it.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from harness.servers.etcd_cluster import etcd
from harness.servers.pgbouncer_node import pgbouncer
from harness.servers.postgres_node import postgres
from harness.servers.redis_groups import redis_nodes, redis_replicated
from harness.servers.redis_node import redis
from harness.servers.redis_sentinels import redis_sentinel
from harness.servers.redis_shards import redis_cluster
from harness.servers.server import Server
from harness.servers.zookeeper_ensemble import zookeeper


class Started(Protocol):
    """A server or group of them, running."""

    @property
    def url(self) -> str: ...
    @property
    def nodes(self) -> Sequence[Server]: ...


@dataclass(frozen=True, slots=True)
class LockServer:
    """A running installation, seen by those who take locks there."""

    url: str
    nodes: Sequence[Server] = ()

    async def product(self) -> str:
        """What its nodes say that they are: `5 × Valkey 9.1.0`; of one that was there before, the address.

        :raises OSError: a node does not answer.
        """
        if not self.nodes:
            return self.url
        product = await self.nodes[0].product()
        return product if len(self.nodes) == 1 else f"{len(self.nodes)} × {product}"

    def dead(self) -> list[Server]:
        """Its processes that have ended."""
        return [node for node in self.nodes if not node.running]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One way to run a lock server."""

    name: str
    about: str
    build: Callable[..., AbstractAsyncContextManager[Started]] | None
    """Starts it; `None`: there is no process, the locks live in the client's."""
    replicated: Callable[..., AbstractAsyncContextManager[Started]] | None = None
    """Starts it with somebody to take over when its leader dies; understands what `build` does."""
    backend: bool = True
    """Whether `--backend NAME` means it; else it is another topology of a backend, for `servers up`."""
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """What `build` is told for leases as short as `shortest_ttl`."""
    durable: Mapping[str, Any] = field(default_factory=dict)
    """What `build` is told when servers are to be killed and the outcome judged."""
    shortest_ttl: float = 0.3
    """Seconds of a lease that a loaded machine can be trusted to keep, when tuned."""
    polls: bool = False
    """Waiters ask again and again: they take a core, and many of them take the server."""
    ranked: bool = False
    """The fence is the number of the waiter's place on the server."""
    votes: int = 1
    """Independent nodes, of which a majority has to grant."""
    impatience: tuple[str, ...] = ()
    """URL options that cut short the patience with a server that is gone."""

    @asynccontextmanager
    async def start(
        self, *, tuned: bool = False, durable: bool = False, replicated: bool = False, **more: Any
    ) -> AsyncIterator[LockServer]:
        """It runs for the length of an `async with`; `more` goes to `build` as it is.

        :raises ServerMissing: it is not installed; the message says how to get it.
        :raises ServerFailed: it did not start.
        """
        build = self.replicated if replicated else self.build
        if build is None:
            yield LockServer(f"{self.name}://")
            return
        options = {**(self.tuned if tuned else {}), **(self.durable if durable else {}), **more}
        async with build(**options) as started:
            scheme, _, rest = started.url.partition("://")
            yield LockServer(f"{self.name if self.backend else scheme}://{rest}", started.nodes)


_REDIS: Mapping[str, Any] = {
    "build": redis,
    "replicated": redis_replicated,
    "durable": {"persistent": True},
    "impatience": ("call_timeout=1",),
}

_ALL = (
    Installation(name="redis", about="one Redis", polls=True, **_REDIS),
    Installation(name="redis-queue", about="one Redis, with a queue of waiters", **_REDIS),
    Installation(
        name="redlock",
        about="five independent Redis nodes",
        build=redis_nodes,
        durable={"persistent": True},
        shortest_ttl=0.6,  # a node has a tenth of it to answer in
        polls=True,
        votes=5,
        impatience=("call_timeout=1",),
    ),
    Installation(
        name="etcd",
        about="one etcd member",
        build=etcd,
        replicated=partial(etcd, 3),
        # As it comes, etcd does no leases shorter than two seconds.
        tuned={"heartbeat_ms": 50, "election_ms": 500},
        # The wheel's 3.5.1 must not be killed and trusted (etcd #13766).
        durable={"flavour": "system"},
        shortest_ttl=1.0,
        ranked=True,
        impatience=("min_ttl=1", "timeout=2", "attempt_timeout=1"),
    ),
    Installation(
        name="zookeeper",
        about="one ZooKeeper",
        build=zookeeper,
        replicated=partial(zookeeper, 3),
        shortest_ttl=0.4,
        ranked=True,
        impatience=("connect_timeout=1",),
    ),
    Installation(
        name="postgres",
        about="one PostgreSQL",
        build=postgres,
        impatience=("request_timeout=1", "connect_timeout=1"),
    ),
    Installation(name="memory", about="no server: locks within one process", build=None),
    Installation(
        name="replicated", about="a Redis primary and a replica", build=redis_replicated, backend=False
    ),
    Installation(
        name="sentinel",
        about="a Redis primary, two replicas, three sentinels",
        build=redis_sentinel,
        backend=False,
    ),
    Installation(name="cluster", about="a Redis Cluster of three shards", build=redis_cluster, backend=False),
    Installation(name="pgbouncer", about="PostgreSQL behind PgBouncer", build=pgbouncer, backend=False),
    Installation(name="etcd3", about="three etcd members", build=partial(etcd, 3), backend=False),
    Installation(name="zookeeper3", about="three ZooKeepers", build=partial(zookeeper, 3), backend=False),
)

INSTALLATIONS: Mapping[str, Installation] = {one.name: one for one in _ALL}
BACKENDS: tuple[str, ...] = tuple(one.name for one in _ALL if one.backend)
"""What `--backend` may name."""
SHARED: tuple[str, ...] = tuple(one.name for one in _ALL if one.backend and one.build is not None)
"""The backends that more than one process can share, which is what experiments are about."""
