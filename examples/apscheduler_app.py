"""APScheduler: every replica has the same schedule, each tick is run by one of them.

`python examples/apscheduler_app.py [URL]`, several times.
"""

import asyncio
import sys
from datetime import UTC, datetime

from apscheduler.schedulers.asyncio import AsyncIOScheduler

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
EVERY = 1  # seconds


async def report(locks: asyncdlock.LockClient) -> None:
    now = datetime.now(UTC)
    # Schedulers are late by some milliseconds, each by its own: name the tick, not the moment.
    due = datetime.fromtimestamp(now.timestamp() // EVERY * EVERY, UTC)
    tick = await locks.once_per("report", due)
    if tick is not None:  # else another replica has begun it
        async with tick:
            print(f"report for {tick.at:%H:%M:%S} with fence {tick.fence}", flush=True)


async def main() -> None:
    async with asyncdlock.connect(URL) as locks:
        scheduler = AsyncIOScheduler(timezone=UTC)
        scheduler.add_job(report, "cron", second=f"*/{EVERY}", args=[locks], misfire_grace_time=None)
        scheduler.start()
        try:
            await asyncio.Event().wait()
        finally:
            scheduler.shutdown()


asyncio.run(main())
