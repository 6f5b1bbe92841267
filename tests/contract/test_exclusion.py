"""One holder at a time, each with a larger fence than the one before; in order where promised."""

import asyncio

import asyncdlock
from tests.contract.cases import Case, backends
from tests.contract.fixtures import Claims, Connect, until


class Ledger:
    """A read-modify-write that loses updates as soon as two holders overlap."""

    def __init__(self) -> None:
        self.inside = 0
        self.balance = 0
        self.fences: list[int] = []

    async def deposit(self, handle: asyncdlock.Handle) -> None:
        assert self.inside == 0, "two holders at once"
        self.inside += 1
        seen = self.balance
        await asyncio.sleep(0)
        self.balance = seen + 1
        self.fences.append(handle.fence)
        self.inside -= 1

    def check(self, deposits: int) -> None:
        assert self.balance == deposits
        assert all(a < b for a, b in zip(self.fences, self.fences[1:], strict=False))
        assert self.fences[0] >= 1
        assert self.fences[-1] < 2**63


async def test_many_tasks_of_several_clients_exclude_each_other(
    case: Case, connect: Connect, key: str
) -> None:
    ledger = Ledger()

    async def work(client: asyncdlock.LockClient) -> None:
        for _ in range(4):
            async with client.hold(key) as handle:
                await ledger.deposit(handle)

    clients = [connect() for _ in range(3)]
    tasks = min(24, case.crowd)
    await asyncio.gather(*(work(clients[number % 3]) for number in range(tasks)))
    ledger.check(4 * tasks)


async def test_waiters_with_places_of_their_own_exclude_each_other(
    case: Case, connect: Connect, key: str
) -> None:
    ledger = Ledger()

    async def work(client: asyncdlock.LockClient) -> None:
        for _ in range(3):
            async with client.hold(key) as handle:
                await ledger.deposit(handle)

    clients = [connect(**case.own_place) for _ in range(2)]
    await asyncio.gather(*(work(client) for client in clients for _ in range(6)))
    ledger.check(36)


async def test_a_thousand_waiters_are_all_served(
    case: Case, locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    ledger = Ledger()

    async def work() -> None:
        async with locks.hold(key) as handle:
            await ledger.deposit(handle)

    # Debug mode makes every task many times as expensive.
    waiters = min(case.crowd, 100 if asyncio.get_running_loop().get_debug() else 1000)
    async with asyncio.TaskGroup() as group:
        for _ in range(waiters):
            group.create_task(work())
    ledger.check(waiters)
    assert await claims() == []


async def test_fences_of_one_key_do_not_depend_on_the_client(connect: Connect, key: str) -> None:
    fences = []
    for _ in range(5):
        client = connect()
        for _ in range(3):
            handle = await client.acquire(key)
            fences.append(handle.fence)
            await handle.release()
    assert fences == sorted(set(fences))


async def test_keys_do_not_exclude_each_other(locks: asyncdlock.LockClient, key: str) -> None:
    async with locks.hold(key):
        for other in (f"{key}-2", key[:-1], f"{key}/x"):
            async with locks.hold(other, timeout=10.0):
                pass


@backends(that=lambda can: can.fifo)
async def test_waiters_are_served_in_the_order_in_which_the_server_saw_them(
    case: Case, connect: Connect, key: str, claims: Claims
) -> None:
    clients = [connect(**case.own_place) for _ in range(3)]
    order: list[int] = []

    async def wait(number: int) -> None:
        async with clients[number % 3].hold(key):
            order.append(number)

    first = await clients[0].acquire(key)
    async with asyncio.TaskGroup() as group:
        for number in range(7):
            group.create_task(wait(number))

            async def joined(known: int = number + 2) -> bool:
                return len(await claims()) == known

            await until(joined)
        await first.release()
    assert order == list(range(7))


@backends(that=lambda can: can.fifo)
async def test_waiters_of_one_client_are_served_in_order(locks: asyncdlock.LockClient, key: str) -> None:
    order: list[int] = []

    async def wait(number: int) -> None:
        async with locks.hold(key):
            order.append(number)

    async with locks.hold(key):
        tasks = [asyncio.create_task(wait(number)) for number in range(50)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == list(range(50))
