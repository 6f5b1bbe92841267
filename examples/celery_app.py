"""Celery: a task that no two workers run for the same account; `celery -A examples.celery_app worker`."""

import os

from celery import Celery, Task

import asyncdlock

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
app = Celery("billing", broker=REDIS_URL, backend=REDIS_URL)
# Made before the pool forks: it starts anew in each child, with a connection of its own.
locks = asyncdlock.blocking.connect(os.environ.get("LOCK_URL", REDIS_URL))


@app.task(bind=True, acks_late=True, max_retries=None)
def bill(self: Task, account: str) -> dict[str, object]:
    try:
        # Wait a little, then give the worker back: the lock's holder may need it for another task.
        with locks.hold(f"bill:{account}", timeout=0.5) as lock:
            lock.check()  # before each step that must not happen without the lock
            return {"account": account, "fence": lock.fence}
    except asyncdlock.AcquireTimeout as busy:
        raise self.retry(exc=busy, countdown=0.5) from busy
