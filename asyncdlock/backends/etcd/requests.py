"""What is said to etcd about a lock, and how its answers read. Pure: no I/O, no state.

The queue of a lock is the set of keys `{prefix}/{lock}/{lease id in hex}`, oldest create revision
first, as Go's `concurrency.Mutex` and `etcdctl lock` keep it. A claim to hold the lock together with others
says so in its key, `…/{lease id in hex}~{permits}~{owner}`; to those two it is one more of their own.

Messages are filled in where they are: to build their parts apart and put them together takes three times as
long. Every comparison asks for equality, which is what a new one asks for.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from aetcd import rpc

from asyncdlock.backends.etcd.transactions import TxnOutcome
from asyncdlock.errors import BackendError
from asyncdlock.types import Claim, SharedClaim

_BY_CREATION = rpc.RangeRequest.CREATE
_NEWEST_FIRST = rpc.RangeRequest.DESCEND
_OLDEST_FIRST = rpc.RangeRequest.ASCEND
_CREATION = rpc.Compare.CREATE
_VALUE = rpc.Compare.VALUE


class QueueKeys:
    """The keys of one lock."""

    __slots__ = ("_end", "_start")

    def __init__(self, prefix: str, key: str) -> None:
        self._start = f"{prefix}/{key}/".encode()
        # "0" follows "/" in ASCII: the range ends right after everything that starts with the prefix.
        self._end = self._start[:-1] + b"0"

    def place(self, lease_id: int, claim: Claim) -> bytes:
        """The key of the claim's place in the queue, under this lease."""
        place = self._start + b"%x" % lease_id
        if isinstance(claim, SharedClaim):
            # With the owner: any number of them may share a lease.
            place += f"~{claim.permits}~{claim.owner}".encode()
        return place

    def owns(self, key: bytes) -> bool:
        """Is this a place in this queue, and not in that of a lock further down (`a` and `a/b`)?"""
        return b"/" not in key[len(self._start) :]

    def has(self, kv: Any) -> bool:
        """Is this somebody in this queue?

        :raises BackendError: it is a key without a lease, which nobody who queues has: it would never go.
        """
        if not self.owns(kv.key):
            return False
        if not kv.lease:
            raise BackendError(
                f"{kv.key.decode(errors='replace')!r} in etcd is data of another program, in a lock's way: "
                "choose another key, or set the locks apart with connect(url, prefix=…)"
            )
        return True

    def beside(self, key: bytes) -> int | None:
        """How many may hold the lock at once by this place, 0 any number; `None`: it is wanted alone."""
        _, shared, rest = key[len(self._start) :].partition(b"~")
        return int(rest.partition(b"~")[0]) if shared else None

    def alone(self, key: bytes) -> bool:
        """Whether who has this place wants the lock for itself."""
        return b"~" not in key[len(self._start) :]

    def in_order(self) -> Any:
        """Read the queue with its contents, oldest first."""
        return _read_range(self._start, self._end, sort_target=_BY_CREATION, sort_order=_OLDEST_FIRST)

    def join(self, place: bytes, owner: bytes, lease_id: int, *, limit: int = 2) -> Any:
        """Take a place at the end and see who stands in front; sent twice it does not queue twice.

        Two keys tell that, one's own and the one in front, unless locks further down are in between.
        """
        request = rpc.TxnRequest()
        _if_absent(request, place)
        _put(request.success, place, owner, lease_id)
        self._newest_first(request.success, limit)
        _get(request.failure, place)
        return request

    def look(self, *, limit: int = 0, up_to: int = 0) -> Any:
        """Read the queue; or, up to one's own revision and limited to 2, oneself and the one in front."""
        request = rpc.TxnRequest()
        self._newest_first(request.success, limit, up_to)
        return request

    def join_if_empty(self, place: bytes, owner: bytes, lease_id: int) -> Any:
        """Take the first place, or none at all."""
        request = rpc.TxnRequest()
        _if_absent(request, self._start).range_end = self._end
        _put(request.success, place, owner, lease_id)
        _get(request.failure, place)
        self._newest_first(request.failure, 2)
        return request

    def _newest_first(self, operations: Any, limit: int, up_to: int = 0) -> None:
        """Read the newest places first, those created after revision `up_to` left out."""
        question = operations.add().request_range
        question.key = self._start
        question.range_end = self._end
        question.limit = limit
        question.sort_order = _NEWEST_FIRST
        question.sort_target = _BY_CREATION
        question.max_create_revision = up_to
        question.keys_only = True


def leave(place: bytes, owner: bytes) -> Any:
    """Give up a place if it is the owner's still."""
    request = rpc.TxnRequest()
    owned = request.compare.add()
    owned.target = _VALUE
    owned.key = place
    owned.value = owner
    _delete(request.success, place)
    return request


def read(places: Sequence[bytes]) -> Any:
    """Read many places at once."""
    request = rpc.TxnRequest()
    for place in places:
        _get(request.success, place)
    return request


def found(outcome: TxnOutcome) -> list[bytes | None]:
    """The value of each place that `read` asked for; `None` where there is none."""
    answers = (response.response_range.kvs for response in outcome.reply.responses)
    return [kvs[0].value if kvs else None for kvs in answers]


def label_key(prefix: str, lease_id: int) -> bytes:
    """Where a client says what it is called: no lock's key is empty, so this is a place in no queue."""
    return f"{prefix}//{lease_id:x}".encode()


def tell(prefix: str, lease_id: int, label: str) -> Any:
    """Say what the client is called that has this lease; it goes with the lease."""
    request = rpc.TxnRequest()
    _put(request.success, label_key(prefix, lease_id), label.encode(), lease_id)
    return request


def evict(place: bytes, revision: int) -> Any:
    """Delete a place, whoever's it is, if it is still the one that was created at `revision`."""
    request = rpc.TxnRequest()
    same = request.compare.add()
    same.target = _CREATION
    same.key = place
    same.create_revision = revision
    _delete(request.success, place)
    return request


def everything_below(start: bytes) -> Any:
    """Read the names of all keys that begin with `start`."""
    return _read_range(start, start[:-1] + bytes([start[-1] + 1]), keys_only=True)


class Position(NamedTuple):
    """Where a place stands in its queue."""

    revision: int
    """When the place was taken; 0 when it does not exist (any more)."""
    ahead: Sequence[bytes]
    """Places in front, to be watched until one of them goes; none: the lock may be held."""
    read_at: int
    """The store's revision of this reading: a watch from here on misses nothing."""
    ahead_since: int = 0
    """When the one place in front was taken, if both want the lock alone."""
    complete: bool = True
    """If not, places of locks further down filled the answer, and only all of it tells."""


def position(
    queue: QueueKeys, place: bytes, found: Any, read_at: int, permits: int | None = None
) -> Position:
    """Read the answer to `QueueKeys.range`: one's own place, and who must go before it has the lock.

    `permits`: how many may hold it beside each other, 0 for any number; `None` for who wants it alone, and
    needs no more than the next older place of the same lock.
    """
    revision = 0
    older: list[bytes] = []
    for kv in found.kvs:
        if kv.key == place:
            revision = kv.create_revision
        elif revision and kv.create_revision < revision and queue.has(kv):
            if permits is None:
                since = kv.create_revision if queue.alone(kv.key) else 0
                return Position(revision, (kv.key,), read_at, since)
            older.append(kv.key)
    return Position(revision, in_front(queue, older, permits or 0), read_at, complete=not found.more)


def in_front(queue: QueueKeys, older: Sequence[bytes], permits: int) -> Sequence[bytes]:
    """Of the `older` places, newest first, those one of which must go before one more is let in.

    First the newest that wants the lock alone; then any of the newest, while so many permits are taken.
    """
    alone = next((key for key in older if queue.alone(key)), None)
    if alone is not None:
        return (alone,)
    return older[:permits] if len(older) >= permits else ()


def _read_range(start: bytes, end: bytes, **how: Any) -> Any:
    question = rpc.RangeRequest(key=start, range_end=end, **how)
    return rpc.TxnRequest(success=[rpc.RequestOp(request_range=question)])


def _if_absent(request: Any, key: bytes) -> Any:
    compare = request.compare.add()
    compare.target = _CREATION
    compare.key = key
    compare.create_revision = 0
    return compare


def _put(operations: Any, key: bytes, value: bytes, lease_id: int) -> None:
    put = operations.add().request_put
    put.key = key
    put.value = value
    put.lease = lease_id


def _get(operations: Any, key: bytes) -> None:
    operations.add().request_range.key = key


def _delete(operations: Any, key: bytes) -> None:
    operations.add().request_delete_range.key = key
