"""@locked: the lock is named after the call's arguments, and what cannot be filled is refused at once."""

import asyncio
from dataclasses import dataclass

import pytest

import asyncdlock
from tests.contract.fixtures import Claims


async def test_calls_with_equal_arguments_exclude_each_other(locks: asyncdlock.LockClient, key: str) -> None:
    inside: list[str] = []
    together: set[int] = set()

    @locks.locked(f"{key}:{{account_id}}", timeout=60.0)
    async def pay(account_id: str, amount: int = 1) -> int:
        inside.append(account_id)
        assert len(set(inside)) == len(inside), "two calls for one account"
        together.add(len(inside))
        await asyncio.sleep(0.02)
        inside.remove(account_id)
        return amount

    calls = [pay("a"), pay(account_id="a", amount=2), pay("b"), pay("b", 3)]
    assert await asyncio.gather(*calls) == [1, 2, 1, 3]
    assert max(together) == 2, "different accounts do not wait for each other"


async def test_the_handle_is_given_to_who_asks_for_it(
    locks: asyncdlock.LockClient, key: str, claims: Claims
) -> None:
    @locks.locked(key, ttl=20.0)
    async def work(*, handle: asyncdlock.Handle | None = None) -> asyncdlock.Handle:
        """What it does."""
        assert handle is not None
        assert (handle.key, handle.ttl) == (key, 20.0)
        handle.check()
        assert len(await claims()) == 1
        return handle

    first, second = await work(), await work()
    assert second.fence > first.fence
    assert await claims() == []
    assert (work.__name__, work.__doc__) == ("work", "What it does.")
    with pytest.raises(TypeError, match="handle"):
        await work(handle=first)


@dataclass
class Account:
    number: int


async def test_a_key_may_look_into_arguments_and_use_defaults() -> None:
    async with asyncdlock.connect("memory://locked") as locks:

        class Bank:
            @locks.locked("{self.name}:{account.number:04d}:{kind}:{{}}:{names[0]}")
            async def pay(
                self,
                account: Account,
                kind: str = "plain",
                *names: str,
                handle: asyncdlock.Handle | None = None,
            ) -> str:
                assert handle is not None
                return handle.key

            name = "bank"

        assert await Bank().pay(Account(7), "fast", "x") == "bank:0007:fast:{}:x"


async def test_errors_come_when_it_decorates() -> None:
    async with asyncdlock.connect("memory://locked") as locks:

        async def pay(account_id: int, *, handle: asyncdlock.Handle | None = None) -> None: ...

        async def positional(handle: asyncdlock.Handle) -> None: ...

        def plain(account_id: int) -> None: ...

        for key in ("{account}", "{}", "{0}", "{handle.fence}", "{account_id:{width}}"):
            with pytest.raises(ValueError, match=r"is no parameter of .*pay: it takes account_id"):
                locks.locked(key)(pay)
        with pytest.raises(ValueError, match="cannot be read"):
            locks.locked("{account_id")(pay)
        with pytest.raises(ValueError, match="make it keyword-only"):
            locks.locked("key")(positional)
        with pytest.raises(TypeError, match="async def"):
            locks.locked("key")(plain)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="account_id"):
            await locks.locked("{account_id}")(pay)()  # type: ignore[call-arg]
