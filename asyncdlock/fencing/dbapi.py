"""The guard for PostgreSQL on drivers that block: psycopg, Django, SQLAlchemy's `Session`, other DB-API.

```python
with transaction.atomic():
    guard(connection, "account:42", handle.fence)
    Account.objects.filter(pk=42).update(balance=F("balance") - 10)
```

The tables and functions are those of `asyncdlock.fencing.postgres`, and so are its promises.
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from asyncdlock.errors import LockError
from asyncdlock.fencing._check import check_fence
from asyncdlock.fencing.postgres import NO_TRANSACTION, is_for_asyncio, refusal

__all__ = ["guard", "refusal"]

_GUARD = "SELECT asyncdlock_guard(%s, %s)"
# What the guard noted for its transaction is gone if it was one by itself: no driver has to be asked.
_GUARDED = "SELECT 1 WHERE jsonb_exists(nullif(current_setting('asyncdlock.guards', true), '')::jsonb, %s)"


def guard(connection: Any, key: str, fence: int) -> None:
    """Let this transaction write under `fence`: it cannot commit behind a newer holder of the lock `key`.

    Call it first. `connection` is of a DB-API driver whose parameters are written `%s`, Django's, or
    SQLAlchemy's `Session` or `Connection`.

    :raises StaleFence: the lock has passed on. The transaction is aborted; nothing of it will be stored.
    :raises LockError: there is no transaction: a guard by itself would guard nothing.
    :raises ValueError: not a fence.
    :raises TypeError: the connection is one for asyncio.
    """
    check_fence(fence)
    if is_for_asyncio(connection):
        raise TypeError(f"{type(connection).__name__} does not block: asyncdlock.fencing.postgres.guard()")
    try:
        _first_row(connection, _GUARD, (key, fence))
        guarded = _first_row(connection, _GUARDED, (key,))
    except Exception as error:
        raise refusal(error, key, fence) or error from None
    if guarded is None:
        raise LockError(NO_TRANSACTION)


def _first_row(connection: Any, statement: str, values: Sequence[Any]) -> Any:
    if hasattr(connection, "get_bind"):
        connection = connection.connection()  # of a session
    if hasattr(connection, "exec_driver_sql"):
        return connection.exec_driver_sql(statement, tuple(values)).first()
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement, tuple(values))
        return cursor.fetchone()
