"""What tests of the ZooKeeper backend need: a client that is closed, and what kazoo sees on the server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from kazoo.client import KazooClient

from asyncdlock.backend import open_backend
from asyncdlock.backends.zookeeper import ZooKeeperBackend


@asynccontextmanager
async def opened(url: str, **options: object) -> AsyncIterator[ZooKeeperBackend]:
    """A backend for the length of an `async with`."""
    backend = open_backend(url, options)
    assert isinstance(backend, ZooKeeperBackend)
    try:
        yield backend
    finally:
        await backend.aclose()


@contextmanager
def kazoo_client(url: str) -> Iterator[KazooClient]:
    """kazoo's own client, connected."""
    client = KazooClient(url.removeprefix("zookeeper://"))
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def queue_of(kazoo: KazooClient, key: str) -> list[str]:
    """The nodes that stand in a lock's queue."""
    path = f"/locks/{key}"
    children: list[str] = kazoo.get_children(path) if kazoo.exists(path) else []
    return children


def watched_paths(kazoo: KazooClient) -> str:
    """What the server answers to `wchp`: every watched path."""
    answer: str = kazoo.command(b"wchp")
    return answer


def watches_of(backend: ZooKeeperBackend) -> int:
    """How many watches a client has open, over all its sessions."""
    return sum(
        len(watchers)
        for session in backend._sessions.open.values()
        for watchers in session._watchers.values()
    )
