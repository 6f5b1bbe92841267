"""An aiohttp service whose marks and data share a transaction: `python examples/guard_aiohttp.py DSN`."""

import asyncio
import sys

import aiohttp
import asyncpg
from aiohttp import web

import asyncdlock
from asyncdlock.fencing.aiohttp import fenced
from asyncdlock.fencing.marks import ADMITTED, PostgresMarks
from asyncdlock.fencing.postgres import MIGRATION


async def store(request: web.Request) -> web.Response:
    connection = ADMITTED.get()  # inside the transaction that the guard began
    await connection.execute("INSERT INTO report VALUES ($1)", await request.text())
    return web.Response()


async def main(dsn: str) -> None:
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=4)
    await pool.execute(MIGRATION)
    await pool.execute("CREATE TABLE IF NOT EXISTS report (body text)")
    service = web.Application(middlewares=[fenced(PostgresMarks(pool))])
    service.router.add_put("/reports/7", store)
    runner = web.AppRunner(service)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/reports/7"
    async with aiohttp.ClientSession() as session, asyncdlock.connect(dsn) as locks:

        async def put(body: str, fence: int) -> None:
            async with session.put(url, data=body, headers={"X-Fence-Token": str(fence)}) as answer:
                print(f"{body}: {answer.status} {await answer.text()}")

        slow = await locks.acquire("/reports/7", ttl=1.0, renew=False)  # falls asleep, and its lease ends
        async with locks.hold("/reports/7") as quick:
            await put("by the quick worker", quick.fence)
        await put("by the slow worker", slow.fence)
        await slow.release()
    print("stored:", [row["body"] for row in await pool.fetch("SELECT body FROM report")])
    await runner.cleanup()
    await pool.close()


asyncio.run(main(sys.argv[1]))
