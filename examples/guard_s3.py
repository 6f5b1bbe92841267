"""An object that no displaced holder overwrites: `python examples/guard_s3.py ENDPOINT`."""

import asyncio
import sys

from aiobotocore.session import get_session
from botocore import UNSIGNED
from botocore.config import Config

import asyncdlock
from asyncdlock import StaleFence
from asyncdlock.fencing.s3 import FencedS3

CONFIG = Config(signature_version=UNSIGNED, s3={"addressing_style": "path"})


async def main(endpoint: str) -> None:
    async with (
        get_session().create_client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", config=CONFIG
        ) as client,
        asyncdlock.connect("memory://guards") as locks,
    ):
        await client.create_bucket(Bucket="reports")
        store = FencedS3(client, "reports")  # its first write finds out whether this store honours conditions
        slow = await locks.acquire("report:7", ttl=0.5, renew=False)  # falls asleep, and its lease ends
        async with locks.hold("report:7") as quick:
            await store.put("report/7", b"by the quick worker", fence=quick.fence)
        try:
            await store.put("report/7", b"by the slow worker", fence=slow.fence)
        except StaleFence as stale:
            print(f"refused: {stale}")
        await slow.release()
        print("stored:", (await store.get("report/7")).body)


asyncio.run(main(sys.argv[1]))
