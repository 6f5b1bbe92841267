"""One connection to PostgreSQL, checked when it opens: requests go out and wake-ups come in on it."""

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import asyncpg

from asyncdlock import _process
from asyncdlock.backends.postgres import schema
from asyncdlock.errors import BackendError, BackendUnavailable

if TYPE_CHECKING:
    from asyncdlock.backends.postgres.settings import Settings

_log = logging.getLogger("asyncdlock")

_OLDEST = 140_000
# Classes of SQLSTATE after which another try may succeed: connection, resources, operator's intervention
# (a server that starts or stops), system error; and a server that cannot be written to for now.
_PASSING = ("08", "53", "57", "58", "25006", "40")

# What asyncpg raises when a connection fails; the second, when it breaks between two requests.
_BROKEN = (TimeoutError, OSError, asyncpg.InterfaceError, asyncpg.InternalClientError)

Told = Callable[[str], None]


class Session:
    """An open connection; `server_time` and `noted` tell one moment by the server's clock and by ours."""

    def __init__(self, connection: Any, settings: "Settings", found: Any, noted: float) -> None:
        self._connection = connection
        self._settings = settings
        self.noted = noted
        self.server_time: float = found["server_time"]
        self.identity: tuple[Any, Any] = found["pid"], found["began"]
        # A pooler makes up the number of a process of its own.
        self.pooled = settings.pooler or found["pid"] != connection.get_server_pid()
        self.listener: int | None = None
        self.channel: str | None = None
        self._fetch: Callable[..., Any] | None = None
        _process.cut_in_child(self)

    @property
    def transport(self) -> Any:
        return self._connection._transport

    @classmethod
    async def open(
        cls, settings: "Settings", told: Told, lost: Callable[[], None], before: "Session | None"
    ) -> "Session":
        """Connect, and see to it that our tables exist. What `before` may have left running is ended.

        :raises BackendUnavailable: the server cannot be reached.
        :raises BackendError: it cannot be used.
        """
        connection = await _connect(settings)
        try:
            async with asyncio.timeout(settings.connect_timeout):
                noted = time.monotonic()
                found = await connection.fetchrow(schema.INSPECTION, schema.quoted(settings.schema))
                session = cls(connection, settings, found, noted)
                _check(found, pooled=session.pooled)
                if not found["created"]:
                    await connection.execute(schema.creation(settings.schema))
                if not session.pooled:
                    await session._settle(told, before)
        except BaseException as error:
            connection.terminate()
            if isinstance(error, (asyncpg.PostgresError, *_BROKEN)):
                raise failure(error, settings.schema, definite=True) from None
            raise
        connection.add_termination_listener(lambda _: lost())
        return session

    async def _settle(self, told: Told, before: "Session | None") -> None:
        """What a connection of our own keeps: a setting, a channel, the sign that it stands, a statement."""
        connection = self._connection
        if before is not None and not before.pooled:
            await connection.fetch(schema.TERMINATION, *before.identity)
        self.listener = secrets.randbits(62) + 1
        # Nobody can speak on it who cannot read the table of those who wait.
        self.channel = f"asyncdlock_{secrets.token_hex(12)}"
        await connection.execute("SET default_transaction_isolation = 'read committed'")
        await connection.add_listener(self.channel, lambda _, __, ___, payload: told(payload))
        await connection.execute(f"SELECT pg_advisory_lock({self.listener})")
        statement = await connection.prepare(schema.run(self._settings.schema))
        self._fetch = statement.fetch

    @property
    def usable(self) -> bool:
        return not self._connection.is_closed()

    async def run(self, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Carry out a batch of requests, given as columns; a row for each, in any order.

        :raises BackendError: it failed; definite if nothing of it was carried out.
        """
        arguments = (*columns, self._settings.patience, self.listener, self.channel)
        if self._fetch is not None:
            request = self._fetch(*arguments)
        else:
            # Unnamed, and in one transaction: all that a pooler promises to keep together.
            request = self._connection.fetch(schema.run(self._settings.schema), *arguments)
        # Not cancelled when it is late: asyncpg would open another connection to say so.
        task = asyncio.ensure_future(request)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._settings.request_timeout)
        finally:
            if not task.done():
                self.abort()
                with contextlib.suppress(BaseException):
                    await task
        try:
            rows: Sequence[Any] = task.result()
        except asyncpg.PostgresError as error:
            # The server says that the statement failed, unless it says that the connection ends; the driver
            # says that, too, of one that we have cut.
            definite = not (error.sqlstate or "").startswith(("08", "57P"))
            said = error if done else TimeoutError()
            raise failure(said, self._settings.schema, definite=definite) from None
        except _BROKEN as error:
            self.abort()
            raise failure(error if done else TimeoutError(), self._settings.schema, definite=False) from None
        return rows

    def abort(self) -> None:
        self._connection.terminate()

    async def aclose(self) -> None:
        try:
            await self._connection.close(timeout=1.0)
        except (asyncpg.PostgresError, *_BROKEN):
            self.abort()


async def _connect(settings: "Settings") -> Any:
    addresses = settings.addresses
    several = {"target_session_attrs": "primary"} if len(addresses) > 1 else {}
    encryption = {} if settings.tls is None else {"ssl": settings.tls}
    try:
        return await asyncpg.connect(
            host=[address.host for address in addresses],
            port=[address.port for address in addresses],
            database=settings.database,
            user=settings.user,
            password=settings.password,
            timeout=settings.connect_timeout,
            statement_cache_size=0,
            server_settings={"application_name": "asyncdlock"},
            **several,
            **encryption,
        )
    except (asyncpg.PostgresError, *_BROKEN) as error:
        raise failure(error, settings.schema, definite=True) from None


def _check(found: Any, *, pooled: bool) -> None:
    """:raises BackendError: the promises of a lock could not be kept there."""
    if found["version"] < _OLDEST:
        raise BackendError("postgres:// needs PostgreSQL 14 or later", definite=True)
    if found["encoding"] != "UTF8":
        raise BackendError(f"the database has the encoding {found['encoding']}, not UTF8", definite=True)
    if found["fsync"] != "on":
        raise BackendError(
            "the server runs with fsync=off: after a crash it would forget who holds a lock", definite=True
        )
    if found["logged"] is False:
        raise BackendError("the table of locks is unlogged: a crash would empty it", definite=True)
    if found["read_only"]:
        raise BackendUnavailable("the server is a standby, or read-only", definite=True)
    if pooled and found["isolation"] != "read committed":
        raise BackendError(
            f"behind a pooler, transactions must be 'read committed' by default, not '{found['isolation']}'",
            definite=True,
        )


def failure(error: BaseException, name: str, *, definite: bool) -> BackendError:
    """What a driver's error means for us."""
    state: str = getattr(error, "sqlstate", None) or ""
    late = isinstance(error, TimeoutError)
    words = "no answer in time" if late else str(error).partition("\n")[0] or type(error).__name__
    if state == "42501":
        return BackendError(
            f"{words}. An administrator can make what is needed: "
            f"python -m asyncdlock.backends.postgres --schema {name} | psql",
            definite=definite,
        )
    if state and not state.startswith(_PASSING):
        return BackendError(f"PostgreSQL refused it: {words}", definite=definite)
    return BackendUnavailable(f"PostgreSQL cannot be reached: {words}", definite=definite)
