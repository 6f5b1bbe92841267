"""What the SQLite store does within one transaction: operations in, answers out, no event loop.

Decisions are made from the rows themselves, in the order of arrival. When a transaction begins and ends
is `sqlite.py`'s affair.
"""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from harness.load.clock import now
from harness.resource import sqlite_sql as sql
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
from harness.resource.store import LOG_ROWS, Found, Retention, Written, log_row

_DROP_EVERY = 1024
_DROP_AT_MOST = 4 * _DROP_EVERY
_NEVER_WRITTEN = State()


class FencedRead(NamedTuple):
    key: str
    token: int


class Lowering(NamedTuple):
    key: str
    token: int


class Check(NamedTuple):
    """Nothing but a write."""


Operation: TypeAlias = Write | FencedRead | Lowering | Check
Answer: TypeAlias = Written | Found | Mark | None


def found(connection: sqlite3.Connection, key: str) -> Found:
    """What is stored under `key`."""
    row = connection.execute(sql.VALUE, (key,)).fetchone()
    return Found(False, Mark()) if row is None else Found(False, Mark(row[0], row[1]), *row[2:])


class Decisions:
    """Decides on a connection that has begun a transaction, and keeps the log."""

    def __init__(
        self, connection: sqlite3.Connection, fencing: Fencing, *, log: bool, retention: Retention
    ) -> None:
        self._connection = connection
        self._fencing = fencing
        self._keep_log = log
        self._most_rows = retention.rows or LOG_ROWS
        self._most_age = int(retention.age * 1e9)
        self._since_drop = _DROP_EVERY

    def decide(self, operations: Iterable[Operation]) -> list[Answer]:
        """Carry them out, in their order.

        :raises sqlite3.Error: the transaction is to be rolled back.
        """
        answers: list[Answer] = []
        rows: list[tuple[object, ...]] = []
        execute = self._connection.execute
        for operation in operations:
            if isinstance(operation, FencedRead):
                answers.append(self._read(operation))
                continue
            if isinstance(operation, Lowering):
                answers.append(self._lower(operation))
                continue
            if isinstance(operation, Check):
                execute(sql.CHECK)
                answers.append(None)
                continue
            row = execute(sql.STATE, (operation.key,)).fetchone()
            before = _NEVER_WRITTEN if row is None else State(Mark(row[0], row[1]), *row[2:])
            outcome, after = judge(self._fencing, before, operation)
            if outcome is Outcome.ACCEPTED:
                execute(sql.PUT, (operation.key, *after.mark, *after[1:], operation.body))
            certain = outcome is not Outcome.STALE or is_remembered(before, operation)
            written = Written(outcome, before.mark, after.version, certain)
            answers.append(written)
            if self._keep_log:
                rows.append(log_row(0, operation, written)[1:])
        if rows:
            self._append(rows)
        return answers

    def _append(self, rows: list[tuple[object, ...]]) -> None:
        self._connection.executemany(sql.APPEND, rows)
        self._since_drop += len(rows)
        if self._since_drop >= _DROP_EVERY:
            self._since_drop = 0
            self._drop_old_rows()

    def _drop_old_rows(self) -> None:
        (newest,) = self._connection.execute(sql.NEWEST).fetchone()
        oldest_wanted = now() - self._most_age
        (too_old,) = self._connection.execute(sql.LAST_TOO_OLD, (_DROP_AT_MOST, oldest_wanted)).fetchone()
        last = min(max(newest - self._most_rows, too_old or 0), newest - 1)
        self._connection.execute(sql.DROP, (last, _DROP_AT_MOST))

    def _read(self, read: FencedRead) -> Found:
        stored = found(self._connection, read.key)
        mark = raised(stored.mark, read.token, READ)
        if mark is None:
            return Found(stale=True, mark=stored.mark)
        if mark != stored.mark:
            self._connection.execute(sql.RAISE, (read.key, *mark))
        return stored._replace(mark=mark)

    def _lower(self, lowering: Lowering) -> Mark:
        before = found(self._connection, lowering.key).mark
        self._connection.execute(sql.RAISE, (lowering.key, *lowered(before, lowering.token)))
        return before
