"""An object per key that is replaced only as long as it is what the decision was made on.

Any number of resources may share a prefix of a bucket: none of them decides, the condition of the PUT does.
The ETag covers all of a key's state, since that is a line in front of the value: an object that looks the
same is the same.

The log is this process's own and in its memory: S3 cannot add a row and replace an object in one step. It
tells what it misses: its numbers leap with every start, and with every write that was decided elsewhere.
"""

import asyncio
import contextlib
import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
from aiobotocore.session import get_session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from asyncdlock.backend import redact
from asyncdlock.fencing._objects import Objects
from asyncdlock.fencing.s3 import UnfitStore, probe
from harness.resource.decision import (
    READ,
    Fencing,
    Mark,
    Outcome,
    State,
    Write,
    is_remembered,
    judge,
    lowered,
    raised,
)
from harness.resource.recent_log import RecentLog
from harness.resource.s3_place import Place
from harness.resource.store import Found, LogRow, Retention, StoreError, Written

_WITHIN = 30.0
"""The most that an operation takes, waiting for others on its key included."""
_TURNS = 1024
_LOG_OF_A_START = 1 << 40
"""More rows than one process decides: the numbers of two starts never meet."""
_FAILURES = (BotoCoreError, ClientError, aiohttp.ClientError, OSError, UnfitStore)


class _Kept(NamedTuple):
    """A key as it stands in the store."""

    state: State = State()
    attempt: str = ""
    """Names the accepted write that the value is from, so that it is known again after a lost reply."""
    body: bytes = b""
    etag: str | None = None

    def encoded(self, key: str) -> bytes:
        state = self.state
        head = {
            "key": key,
            "mark": state.mark,
            "token": state.token,
            "seq": state.seq,
            "version": state.version,
            "digest": state.digest,
            "recent": state.recent.hex(),
            "attempt": self.attempt,
        }
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def decoded(cls, stored: bytes, etag: str) -> "_Kept":
        """:raises StoreError: somebody else has written there."""
        line, _, body = stored.partition(b"\n")
        try:
            head = json.loads(line)
            recent = bytes.fromhex(head["recent"])
            mark, token, seq, version = Mark(*head["mark"]), head["token"], head["seq"], head["version"]
            return cls(State(mark, token, seq, version, head["digest"], recent), head["attempt"], body, etag)
        except (ValueError, KeyError, TypeError):
            raise StoreError("the S3 store failed: an object of it was replaced by something else") from None


class S3Store:
    """Operations on one key take turns in this process, which spares them conflicts and orders their rows."""

    def __init__(
        self, client: Any, place: Place, fencing: Fencing, log: RecentLog | None, *, late: bool
    ) -> None:
        self._client = client
        self._place = place
        self._objects = Objects(client, place.bucket)
        self._fencing = fencing
        self._log = log
        self._began_late = late
        self._versions: dict[str, int] = {}
        self._turns = [asyncio.Lock() for _ in range(_TURNS)]
        self.closing = contextlib.AsyncExitStack()

    async def write(self, write: Write) -> Written:
        attempt = uuid.uuid4().hex
        async with _failures(), self._turns[hash(write.key) % _TURNS]:
            before: State | None = None
            while True:
                kept = await self._look(write.key)
                if before is not None and kept.attempt == attempt:
                    written = Written(Outcome.ACCEPTED, before.mark, before.version + 1)
                    break
                before = kept.state
                self._notice(write.key, before.version)
                outcome, after = judge(self._fencing, before, write)
                certain = outcome is not Outcome.STALE or is_remembered(before, write)
                written = Written(outcome, before.mark, after.version, certain)
                wanted = _Kept(after, attempt, write.body, kept.etag)
                if outcome is not Outcome.ACCEPTED or await self._replace(write.key, wanted):
                    break
            if self._log is not None:
                self._versions[write.key] = written.version
                self._log.append(write, written)
            return written

    async def read(self, key: str, token: int) -> Found:
        async with _failures():
            if not token or self._fencing is not Fencing.ON:
                return _found(await self._look(key))
            async with self._turns[hash(key) % _TURNS]:
                while True:
                    kept = await self._look(key)
                    mark = raised(kept.state.mark, token, READ)
                    if mark is None:
                        return Found(stale=True, mark=kept.state.mark)
                    wanted = kept._replace(state=kept.state._replace(mark=mark))
                    if mark == kept.state.mark or await self._replace(key, wanted):
                        return _found(wanted)

    async def lower(self, key: str, token: int) -> Mark:
        async with _failures():
            while True:
                kept = await self._look(key)
                mark = lowered(kept.state.mark, token)
                wanted = kept._replace(state=kept.state._replace(mark=mark))
                if mark == kept.state.mark or await self._replace(key, wanted):
                    return kept.state.mark

    async def log(self, after: int) -> AsyncIterator[list[LogRow]]:
        if self._log is not None:
            for page in self._log.pages(after):
                yield page

    async def log_from(self) -> int:
        return 1 if self._log is None else self._log.begins

    async def check(self) -> None:
        async with _failures():
            await probe(self._client, self._place.bucket, prefix=f"{self._place.prefix}probe/")

    async def aclose(self) -> None:
        await self.closing.aclose()

    async def _look(self, key: str) -> _Kept:
        found = await self._objects.get(self._name(key))
        return _Kept() if found is None else _Kept.decoded(found.body, found.etag)

    async def _replace(self, key: str, wanted: _Kept) -> bool:
        return bool(await self._objects.replace(self._name(key), wanted.encoded(key), etag=wanted.etag))

    def _name(self, key: str) -> str:
        # A key may be longer than a name in S3, and hold what some stores take for a path.
        return f"{self._place.prefix}values/{hashlib.sha256(key.encode()).hexdigest()}"

    def _notice(self, key: str, version: int) -> None:
        """A version that this process did not make was made by a write that is not in its log."""
        if self._log is None:
            return
        if version != self._versions.setdefault(key, version if self._began_late else 0):
            self._log.forget()


def _found(kept: _Kept) -> Found:
    state = kept.state
    return Found(
        False, state.mark, state.token, state.seq, state.version, kept.body if state.version else None
    )


@contextlib.asynccontextmanager
async def _failures() -> AsyncIterator[None]:
    """:raises StoreError: whatever went wrong inside, or it took too long."""
    try:
        async with asyncio.timeout(_WITHIN):
            yield
    except TimeoutError as error:
        raise StoreError("the S3 store failed: it does not answer in time") from error
    except _FAILURES as error:
        raise StoreError(f"the S3 store failed: {error}") from error


async def _count_start(objects: Objects, name: str) -> int:
    """How many resources with a log were started here before."""
    while True:
        found = await objects.get(name)
        before = 0 if found is None else _number(found.body)
        if await objects.replace(name, b"%d" % (before + 1), etag=found and found.etag):
            return before


def _number(text: bytes) -> int:
    if not text.isdigit():
        raise StoreError("the object that counts starts was replaced by something else")
    return int(text)


async def open_store(rest: str, fencing: Fencing, *, log: bool, retention: Retention) -> S3Store:
    """:raises StoreError: `rest` is no place, or the bucket cannot be used or ignores conditions."""
    try:
        place = Place.parse(rest)
    except ValueError as error:
        raise StoreError(f"cannot open the S3 store {redact(f's3:{rest}')!r}: {error}") from None
    config = Config(
        s3={"addressing_style": "path" if place.endpoint else "auto"},
        connect_timeout=5,
        read_timeout=10,
        max_pool_connections=64,
        # Once more, since a kept connection may turn out to be closed.
        retries={"total_max_attempts": 2, "mode": "standard"},
        # Stores other than Amazon's do not all know the newer ones.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with _failures():
                making = get_session().create_client("s3", config=config, **place.arguments())
                client = await stack.enter_async_context(making)
                store = S3Store(client, place, fencing, None, late=False)
                await store.check()
                if log:
                    starts = await _count_start(Objects(client, place.bucket), f"{place.prefix}starts")
                    recent = RecentLog(retention, after=starts * _LOG_OF_A_START)
                    store = S3Store(client, place, fencing, recent, late=starts > 0)
        except StoreError as error:
            reason = str(error).removeprefix("the S3 store failed: ")
            raise StoreError(f"cannot open the S3 store {redact(f's3:{rest}')!r}: {reason}") from error
        store.closing = stack.pop_all()
    return store
