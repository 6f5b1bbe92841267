"""A comparison in your own transaction on etcd: `python examples/guard_etcd.py URL`."""

import asyncio
import sys
from urllib.parse import urlsplit

import aetcd

import asyncdlock
from asyncdlock import StaleFence
from asyncdlock.fencing.etcd import FencedEtcd


async def main(url: str) -> None:
    where = urlsplit(url)
    async with (
        aetcd.Client(host=where.hostname or "localhost", port=where.port or 2379) as client,
        asyncdlock.connect(url) as locks,
    ):
        store = FencedEtcd(client)
        put = client.transactions.put
        slow = await locks.acquire("config:web", ttl=2.0, renew=False)  # falls asleep, and its lease ends
        async with locks.hold("config:web") as quick:
            await store.commit("config:web", [put(b"config/web", b"new")], fence=quick.fence)
        try:
            await store.commit("config:web", [put(b"config/web", b"old")], fence=slow.fence)
        except StaleFence as stale:
            print(f"refused: {stale}")
        await slow.release()
        print("stored:", (await client.get(b"config/web")).value)


asyncio.run(main(sys.argv[1]))
