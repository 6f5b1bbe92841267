"""taskiq: tasks that no two workers run for one account; `taskiq worker examples.taskiq_app:broker`."""

import os

from taskiq import TaskiqEvents, TaskiqState
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

import asyncdlock

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
results: RedisAsyncResultBackend[dict[str, object]] = RedisAsyncResultBackend(REDIS_URL)
broker = ListQueueBroker(REDIS_URL).with_result_backend(results)
locks = asyncdlock.connect(os.environ.get("LOCK_URL", REDIS_URL))  # sends nothing before its first use


@broker.on_event(TaskiqEvents.WORKER_SHUTDOWN)
async def close(_: TaskiqState) -> None:
    await locks.aclose()


@broker.task
async def bill(account: str) -> dict[str, object]:
    """Cancelled, with LockLost, should its lease be lost meanwhile."""
    async with locks.hold(f"bill:{account}", timeout=30.0) as lock:
        return {"account": account, "fence": lock.fence}
