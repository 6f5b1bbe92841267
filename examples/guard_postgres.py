"""A transaction that cannot commit behind a newer holder: `python examples/guard_postgres.py DSN`."""

import asyncio
import sys

import asyncpg

import asyncdlock
from asyncdlock import StaleFence
from asyncdlock.fencing.postgres import MIGRATION, guard


async def withdraw(connection: asyncpg.Connection, amount: int, fence: int) -> None:
    async with connection.transaction():
        await guard(connection, "account:42", fence)  # first: a newer holder waits until we have committed
        await connection.execute("UPDATE account SET balance = balance - $1 WHERE id = 42", amount)


async def main(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(MIGRATION)  # once, by whoever sets up the database
    await connection.execute("CREATE TEMPORARY TABLE account (id int, balance int)")
    await connection.execute("INSERT INTO account VALUES (42, 100)")
    async with asyncdlock.connect(dsn) as locks:
        slow = await locks.acquire("account:42", ttl=1.0, renew=False)  # falls asleep, and its lease ends
        async with locks.hold("account:42") as quick:
            await withdraw(connection, 10, quick.fence)
        try:
            await withdraw(connection, 50, slow.fence)
        except StaleFence as stale:
            print(f"refused: {stale}")
        await slow.release()
    print("balance:", await connection.fetchval("SELECT balance FROM account WHERE id = 42"))
    await connection.close()


asyncio.run(main(sys.argv[1]))
