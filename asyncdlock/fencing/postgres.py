"""Guards for PostgreSQL: the comparison of fences is part of the transaction that writes.

```python
async with connection.transaction():
    await guard(connection, "account:42", handle.fence)
    await connection.execute("UPDATE account SET balance = balance - 10 WHERE id = 42")
```

`connection` is asyncpg's, psycopg's `AsyncConnection`, or SQLAlchemy's `AsyncSession` or `AsyncConnection`.
The tables and functions come from `python -m asyncdlock.fencing.postgres | psql`; with `--protect TABLE` a
trigger refuses every write to that table without a guard, whoever writes.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

from asyncdlock.errors import LockError, StaleFence
from asyncdlock.fencing._check import check_fence

MIGRATION = resources.files("asyncdlock.fencing").joinpath("postgres.sql").read_text("utf-8")
"""The SQL that the guards need; safe to run again."""


async def guard(connection: Any, key: str, fence: int) -> None:
    """Let this transaction write under `fence`: it cannot commit behind a newer holder of the lock `key`.

    Call it first. Newer holders wait until the transaction ends; older ones are refused from now on. The same
    holder may call it in as many transactions as it likes.

    :raises StaleFence: the lock has passed on. The transaction is aborted; nothing of it will be stored.
    :raises LockError: there is no transaction: a guard by itself would guard nothing.
    :raises ValueError: not a fence.
    """
    check_fence(fence)
    driver = _driver_of(connection)
    if not await driver.in_transaction():
        raise LockError(NO_TRANSACTION)
    await _run(driver, key, fence, "SELECT asyncdlock_guard({}, {})", (key, fence))
    if not await driver.in_transaction():  # one that was to begin with that statement has ended with it
        raise LockError(NO_TRANSACTION)


async def write_row(
    connection: Any,
    table: str,
    row: Mapping[str, Any],
    values: Mapping[str, Any],
    *,
    fence: int,
    column: str = "fence",
) -> None:
    """Update the row that `row` identifies, which carries its own fence in `column`.

    It is one statement, `UPDATE … SET …, fence = n WHERE … AND fence < n`, and needs no transaction: a holder
    writes a row once.

    :raises StaleFence: a holder with this fence or a later one has written it; nothing was stored.
    :raises LookupError: there is no such row.
    :raises ValueError: not a fence.
    """
    check_fence(fence)
    driver = _driver_of(connection)
    # Names are quoted, values are parameters: nothing that a caller passes is read as SQL.
    sets = ", ".join(f"{_quoted(name)} = {{}}" for name in (*values, column))
    where = " AND ".join(f"{_quoted(name)} = {{}}" for name in row)
    mark = _quoted(column)
    label = f"{table} {dict(row)}"
    target = _table(table)
    written = await _run(
        driver,
        label,
        fence,
        f"UPDATE {target} SET {sets} WHERE {where} AND ({mark} IS NULL OR {mark} < {{}}) RETURNING {mark}",  # noqa: S608
        (*values.values(), fence, *row.values(), fence),
    )
    if written is None:
        look = f"SELECT {mark} FROM {target} WHERE {where}"  # noqa: S608
        seen = await driver.value(look, tuple(row.values()))
        if seen is None:
            raise LookupError(f"there is no row {label}")
        raise StaleFence(label, seen=seen, got=fence)


def protection(table: str, lock: str | None = None) -> str:
    """The SQL that puts `table`, which gets a column `fence bigint`, under the guard of a trigger.

    `lock` is an SQL expression over the columns of a row, such as `'account:' || id`: the key of the lock
    that the row belongs to. Without one, any lock will do, and a transaction can be guarded by one lock only.
    Run it again after adding a partition; otherwise that partition can be truncated on its own.
    """
    target = _table(table).format()
    literal = target.replace("'", "''")
    argument = "" if lock is None else "'" + lock.replace("'", "''") + "'"
    return f"""ALTER TABLE {target} ADD COLUMN IF NOT EXISTS fence bigint NOT NULL DEFAULT 0;
CREATE OR REPLACE TRIGGER asyncdlock_protect_rows BEFORE INSERT OR UPDATE OR DELETE ON {target}
    FOR EACH ROW EXECUTE FUNCTION asyncdlock_protect({argument});
DO $protect$
DECLARE
    part regclass;
BEGIN
    -- Unlike triggers for rows, one for statements is not passed on to the partitions.
    FOR part IN SELECT '{literal}'::regclass UNION SELECT relid FROM pg_partition_tree('{literal}') LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER asyncdlock_protect_table BEFORE TRUNCATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION asyncdlock_protect()', part);
    END LOOP;
END $protect$;
"""  # noqa: S608


async def _run(driver: "_Driver", key: str, fence: int, statement: str, values: tuple[Any, ...]) -> Any:
    try:
        return await driver.value(statement, values)
    except Exception as error:
        raise refusal(error, key, fence) or error from None


def refusal(error: BaseException, key: str, fence: int) -> LockError | None:
    """What a driver's error says about fences, if anything: a trigger refuses the caller's own statement.

    ```python
    except asyncpg.PostgresError as error:
        raise refusal(error, "account:42", handle.fence) or error
    ```
    """
    cause: BaseException | None = error
    while cause is not None:  # SQLAlchemy wraps what the driver raised, more than once
        match getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None):  # the latter is psycopg2's
            case "AF001" if seen := _detail(cause):
                return StaleFence(key, seen=int(seen), got=fence)
            case "AF002":
                return LockError(str(cause).splitlines()[0])
            case "42883" if "asyncdlock_guard" in str(cause):
                return LockError(_NOT_THERE)
        cause = getattr(cause, "orig", None) or cause.__cause__
    return None


def _detail(error: Any) -> str:
    diagnosis = getattr(error, "diag", None)  # psycopg's
    return str(diagnosis.message_detail if diagnosis is not None else getattr(error, "detail", ""))


def _quoted(name: str) -> str:
    """An identifier inside a statement whose parameters stand as `{}`."""
    return '"' + name.replace('"', '""').replace("{", "{{").replace("}", "}}") + '"'


def _table(name: str) -> str:
    return ".".join(map(_quoted, name.split(".")))


NO_TRANSACTION = "guard() belongs in a transaction: without one it would end before the write"
_NOT_THERE = (
    "the database has no asyncdlock_guard(), or it is not on the search path: "
    "python -m asyncdlock.fencing.postgres | psql"
)


class _Driver(Protocol):
    """One way to run a statement whose parameters stand as `{}`."""

    async def in_transaction(self) -> bool:
        """Whether the next statement is part of one."""
        ...

    async def value(self, statement: str, values: Sequence[Any]) -> Any:
        """The first column of the first row, or `None`."""
        ...


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def in_transaction(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def value(self, statement: str, values: Sequence[Any]) -> Any:
        marks = (f"${number}" for number in range(1, len(values) + 1))
        return await self._connection.fetchval(statement.format(*marks), *values)


class _Psycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def in_transaction(self) -> bool:
        # Without autocommit the next statement begins one.
        return not self._connection.autocommit or self._connection.info.transaction_status != 0

    async def value(self, statement: str, values: Sequence[Any]) -> Any:
        from psycopg.rows import tuple_row

        text = statement.replace("%", "%%").format(*["%s"] * len(values))
        # Whatever the connection makes of its rows: an error behind the statement would deny what was done.
        cursor = await self._connection.cursor(row_factory=tuple_row).execute(text, values)
        row = await cursor.fetchone()
        return None if row is None else row[0]


class _SQLAlchemy:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._began = False

    async def in_transaction(self) -> bool:
        # The next statement begins one, unless the isolation level is AUTOCOMMIT: only the driver knows that.
        if not self._began:
            return True
        core = self._connection
        if not hasattr(core, "get_raw_connection"):  # a session
            core = await core.connection()
        inner = (await core.get_raw_connection()).driver_connection
        return await _driver_of(inner).in_transaction()

    async def value(self, statement: str, values: Sequence[Any]) -> Any:
        from sqlalchemy import text

        named = {f"p{number}": value for number, value in enumerate(values)}
        marks = (f":{name}" for name in named)
        escaped = statement.replace(":", "\\:")
        row = (await self._connection.execute(text(escaped.format(*marks)), named)).first()
        self._began = True
        return None if row is None else row[0]


_DRIVERS: Mapping[str, Callable[[Any], _Driver]] = {
    "asyncpg.Connection": _Asyncpg,
    "asyncpg.PoolConnectionProxy": _Asyncpg,
    "psycopg.AsyncConnection": _Psycopg,
    "sqlalchemy.AsyncConnection": _SQLAlchemy,
    "sqlalchemy.AsyncSession": _SQLAlchemy,
    "sqlalchemy.async_scoped_session": _SQLAlchemy,
}


def is_for_asyncio(connection: Any) -> bool:
    """Whether `guard` knows its kind."""
    return _kind_of(connection) is not None


def _kind_of(connection: Any) -> Callable[[Any], _Driver] | None:
    for ancestor in type(connection).__mro__:  # SQLModel's session, say, is one of SQLAlchemy's
        kind = _DRIVERS.get(f"{ancestor.__module__.partition('.')[0]}.{ancestor.__name__}")
        if kind is not None:
            return kind
    return None


def _driver_of(connection: Any) -> _Driver:
    kind = _kind_of(connection)
    if kind is not None:
        return kind(connection)
    raise TypeError(
        f"{type(connection).__name__} is no connection of asyncpg, psycopg (AsyncConnection) or "
        f"SQLAlchemy (AsyncSession, AsyncConnection); for those that block there is asyncdlock.fencing.dbapi"
    )


def main() -> None:
    """Print the SQL."""
    parser = argparse.ArgumentParser(
        prog="python -m asyncdlock.fencing.postgres", description="Prints the SQL that the guards need."
    )
    parser.add_argument(
        "--protect",
        metavar="TABLE[=LOCK]",
        action="append",
        default=[],
        help="add a trigger to TABLE; LOCK: the key of a row's lock in SQL, such as \"'account:' || id\"",
    )
    given = parser.parse_args()
    tables = (target.partition("=") for target in given.protect)
    sys.stdout.write("\n".join((MIGRATION, *(protection(table, lock or None) for table, _, lock in tables))))


if __name__ == "__main__":
    main()
