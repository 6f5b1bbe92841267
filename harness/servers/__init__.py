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
from harness.servers.redis_node import RedisNode, redis
from harness.servers.server import Server, running

__all__ = [
    "PortTaken",
    "RedisNode",
    "Server",
    "ServerError",
    "ServerFailed",
    "ServerMissing",
    "redis",
    "running",
]
