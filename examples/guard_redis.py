"""A value in Redis that no displaced holder overwrites: `python examples/guard_redis.py URL`."""

import asyncio
import sys

from redis.asyncio import Redis

import asyncdlock
from asyncdlock import StaleFence
from asyncdlock.fencing.redis import FencedRedis


async def main(url: str) -> None:
    async with Redis.from_url(url) as redis, asyncdlock.connect(url) as locks:
        store = FencedRedis(redis)
        slow = await locks.acquire("cart:7", ttl=0.5, renew=False)
        before = await store.get(
            "value:cart:7", fence=slow.fence
        )  # a read that leads to a write carries the fence
        print("the slow worker reads", before.body, "and falls asleep; its lease ends")
        async with locks.hold("cart:7") as quick:
            await store.put("value:cart:7", b"two apples", fence=quick.fence)
        try:
            await store.put("value:cart:7", b"one pear", fence=slow.fence)
        except StaleFence as stale:
            print(f"refused: {stale}")
        await slow.release()
        print("stored:", (await store.get("value:cart:7")).body)


asyncio.run(main(sys.argv[1]))
