"""Distributed locks for asyncio with fencing tokens: the lock is a hint, the resource decides."""
