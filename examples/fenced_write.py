"""The resource decides who may write: `python examples/fenced_write.py [URL]`."""

import asyncio
import sqlite3
import sys

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
TTL = 2.0


class Account:
    """A row that never lets a fence run backwards: the comparison and the write are one statement."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect(":memory:", isolation_level=None)
        self._rows.execute("CREATE TABLE account (balance TEXT, fence INTEGER)")
        self._rows.execute("INSERT INTO account VALUES ('nothing', 0)")

    def write(self, balance: str, fence: int) -> bool:
        done = self._rows.execute(
            "UPDATE account SET balance = ?, fence = ? WHERE fence < ?", (balance, fence, fence)
        )
        return done.rowcount == 1

    def read(self) -> str:
        return str(self._rows.execute("SELECT balance FROM account").fetchone()[0])

    def close(self) -> None:
        self._rows.close()


def outcome(accepted: bool) -> str:
    return "accepted" if accepted else "refused"


async def main() -> None:
    account = Account()
    async with asyncdlock.connect(URL) as locks:
        slow = await locks.acquire("account:42", ttl=TTL, renew=False)
        print(f"the slow worker holds the lock with fence {slow.fence}, and falls asleep")
        # Its lease runs out, and the next worker gets the lock.
        async with locks.hold("account:42", ttl=TTL) as quick:
            accepted = account.write("written by the quick worker", quick.fence)
            print(f"the quick worker writes with fence {quick.fence}: {outcome(accepted)}")
        accepted = account.write("written by the slow worker", slow.fence)
        print(f"the slow worker wakes and writes with fence {slow.fence}: {outcome(accepted)}")
        await slow.release()
    print(f"the account says: {account.read()}")
    account.close()


asyncio.run(main())
