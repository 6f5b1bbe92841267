"""What a store promises, what it says, and the URL that picks one."""

import importlib
from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from asyncdlock.backend import redact
from harness.load.clock import now
from harness.resource.decision import Fencing, Mark, Outcome, Write


class StoreError(Exception):
    """The store cannot be opened or used: one sentence for a person."""


class Written(NamedTuple):
    """The answer to a write."""

    outcome: Outcome
    mark: Mark
    """As it was before the write."""
    version: int
    """As it is after the write."""
    certain: bool = True
    """Of a stale write: it was certainly never accepted. Else that was too many writes ago to be known."""


class Retention(NamedTuple):
    """How much of the log is kept. Marks and values are never dropped, and neither is the newest row."""

    rows: int | None = None
    """None: as many as suit the store."""
    age: float = 7 * 86_400.0
    """Seconds."""


class Found(NamedTuple):
    """The answer to a read."""

    stale: bool
    """The read carried a token below the mark; nothing else is to be told."""
    mark: Mark
    token: int = 0
    seq: int = 0
    version: int = 0
    body: bytes | None = None
    """None: never written."""


class LogRow(NamedTuple):
    """One decided write. Rows of one key are in the order in which they were decided."""

    seq: int
    """The resource's own order, over all keys."""
    key: str
    token: int
    fence_seq: int
    outcome: str
    seen: int
    """The highest token seen before this write."""
    version: int
    """The key's version after it."""
    started: int
    decided: int
    owner: str | None
    digest: str


def log_row(seq: int, write: Write, written: Written) -> LogRow:
    """The row for a write that was decided just now."""
    return LogRow(
        seq,
        write.key,
        write.token,
        write.seq,
        written.outcome.value,
        written.mark.token,
        written.version,
        write.started,
        now(),
        write.owner,
        write.digest,
    )


LOG_ROWS = 1_000_000
"""Kept unless told otherwise: about 200 MB on disk, and a run of a hundred seconds at full speed."""

LOG_PAGE = 256
"""Rows of the log that are handled at a time, so that a long log neither fills memory nor the loop."""


class Store(Protocol):
    """Keeps marks and values. What it has answered holds after a kill -9, except in `memory`.

    That also goes for refusals and reads: an answer that rests on another operation is given
    after that one is durable. Cancelling a call leaves open whether it happens.

    Every verb may raise `StoreError`. A write or fenced read that raised may have happened.
    """

    async def write(self, write: Write) -> Written:
        """Decide the write and, if accepted, apply it, in one atomic step."""
        ...

    async def read(self, key: str, token: int) -> Found:
        """The value. With a `token` other than 0, raise the mark first or find it stale."""
        ...

    async def lower(self, key: str, token: int) -> Mark:
        """Let the holder of `token` in again, by an operator's decision; the mark as it was before."""
        ...

    def log(self, after: int) -> AsyncIterator[list[LogRow]]:
        """The rows with a larger `seq`, in order, in pages of `LOG_PAGE`."""
        ...

    async def log_from(self) -> int:
        """The smallest `seq` that has not been dropped: rows below it are missing, if there were any."""
        ...

    async def check(self) -> None:
        """Return if the store takes writes, having made one."""
        ...

    async def aclose(self) -> None: ...


_KINDS = ("memory", "sqlite", "postgres", "s3")


async def open_store(url: str, fencing: Fencing, *, log: bool, retention: Retention | None = None) -> Store:
    """The store for `memory`, `sqlite:PATH[?sync=full]`, `postgres:DSN` or `s3:URL`, keeping a `log` or none.

    :raises StoreError: no such store, or it cannot be opened.
    """
    kind, _, rest = url.partition(":")
    if kind not in _KINDS:
        raise StoreError(f"{redact(url)!r} is no store: use memory, sqlite:PATH, postgres:DSN or s3:URL")
    try:
        # Loaded on demand: some need a client library.
        module = importlib.import_module(f"harness.resource.{kind}")
    except ModuleNotFoundError as missing:
        raise StoreError(
            f"the store {kind} needs the package {missing.name}: pip install 'asyncdlock[{kind}]'"
        ) from missing
    store: Store = await module.open_store(rest, fencing, log=log, retention=retention or Retention())
    return store
