"""A guard for etcd: the comparison of fences becomes part of the caller's own transaction.

The mark of a key is `/fences/{key}`, the highest fence in twenty digits, so that etcd, which compares
values as bytes, compares numbers. The very transaction that writes the data raises it: there is no step in
between.
"""

from collections.abc import Sequence
from typing import Any

from asyncdlock.errors import StaleFence
from asyncdlock.fencing._check import check_fence

_DIGITS = 20


class FencedEtcd:
    """Transactions under the fence of a lock; `client` is an `aetcd.Client` and stays the caller's.

    Whatever the client raises comes out as it is; after a lost reply the transaction may have happened.
    """

    def __init__(self, client: Any, *, prefix: str = "/fences/") -> None:
        self._client = client
        self._prefix = prefix

    async def commit(
        self, key: str, success: Sequence[Any], *, fence: int, compare: Sequence[Any] = ()
    ) -> tuple[bool, Sequence[Any]]:
        """Carry out `success` if no later holder of `key` has been here and all of `compare` is true.

        `success` and `compare` are what `aetcd.Client.transactions` makes. Returns whether the caller's own
        comparisons held, and the responses to `success`. The same holder may commit any number of times.

        :raises StaleFence: the lock has passed on; nothing was stored.
        :raises ValueError: not a fence.
        """
        check_fence(fence)
        mark = (self._prefix + key).encode()
        make = self._client.transactions
        while True:
            committed, replies = await self._client.transaction(
                compare=[make.value(mark) < _digits(fence + 1), *compare],
                success=[make.put(mark, _digits(fence)), *success],
                failure=[make.get(mark)],
            )
            if committed:
                return True, replies[1:]
            if replies[0]:
                break
            # A mark can be compared only once it exists; one that nobody has raised is the lowest.
            await self._client.transaction(
                compare=[make.create(mark) == 0], success=[make.put(mark, _digits(0))], failure=[]
            )
        seen = int(replies[0][0][0])
        if seen > fence:
            raise StaleFence(key, seen=seen, got=fence)
        return False, []


def _digits(fence: int) -> bytes:
    return b"%0*d" % (_DIGITS, fence)
