"""zookeeper://: locks on Apache ZooKeeper, in one queue with kazoo's `Lock`."""

from asyncdlock.backends.zookeeper.backend import FENCE_SCALE, ZooKeeperBackend
from asyncdlock.backends.zookeeper.url import from_url

__all__ = ["FENCE_SCALE", "ZooKeeperBackend", "from_url"]
