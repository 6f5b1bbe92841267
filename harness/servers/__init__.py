"""Real servers as child processes, on free loopback ports, in temporary folders, without Docker.

```python
async with servers.redis() as node:
    print(node.url)
    node.pause()          # SIGSTOP; resume() continues
    node.kill()           # SIGKILL; start() brings it back on the same port and data
```

Nothing outlives the process that started it, whether that ends normally, by Ctrl-C or by kill -9.
"""

from harness.servers.errors import PortTaken, ServerError, ServerFailed, ServerMissing
from harness.servers.etcd_cluster import EtcdCluster, EtcdNode, etcd
from harness.servers.group import Group
from harness.servers.pgbouncer_node import PooledPostgres, pgbouncer
from harness.servers.postgres_node import PostgresNode, postgres
from harness.servers.redis_groups import RedisNodes, ReplicatedRedis, redis_nodes, redis_replicated
from harness.servers.redis_node import RedisNode, redis
from harness.servers.redis_sentinels import RedisWithSentinels, redis_sentinel
from harness.servers.redis_shards import RedisCluster, redis_cluster
from harness.servers.server import Server, running
from harness.servers.zookeeper_ensemble import ZooKeeperEnsemble, ZooKeeperNode, zookeeper

__all__ = [
    "EtcdCluster",
    "EtcdNode",
    "Group",
    "PooledPostgres",
    "PortTaken",
    "PostgresNode",
    "RedisCluster",
    "RedisNode",
    "RedisNodes",
    "RedisWithSentinels",
    "ReplicatedRedis",
    "Server",
    "ServerError",
    "ServerFailed",
    "ServerMissing",
    "ZooKeeperEnsemble",
    "ZooKeeperNode",
    "etcd",
    "pgbouncer",
    "postgres",
    "redis",
    "redis_cluster",
    "redis_nodes",
    "redis_replicated",
    "redis_sentinel",
    "running",
    "zookeeper",
]
