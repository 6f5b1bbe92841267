"""The fenced resource: an HTTP service that refuses to run backwards on a fencing token.

The lock is a hint; this is the part that decides. It runs in a process of its own and knows no
lock server: a token is all that it is told.

    decision.py   the safety argument, pure
    store.py      what keeps marks and values; memory.py, sqlite.py, postgres.py, s3.py
    service.py    HTTP; requests.py reads it, answers.py writes it, connections.py and limits.py bound it
    client.py     the one client, on wire.py: contenders write with it, judges read; reply.py is what it hears
    command.py    `python -m harness resource`
    process.py    the same as a child process

```python
async with resource.spawn(fence="on") as node:
    print(node.url)
```
"""

from harness.resource.process import ResourceProcess, spawn

__all__ = ["ResourceProcess", "spawn"]
