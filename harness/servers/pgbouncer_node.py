"""PgBouncer in transaction mode in front of a PostgreSQL server."""

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from harness.servers import binaries
from harness.servers.group import Group
from harness.servers.ports import free_port
from harness.servers.postgres_node import PostgresNode, lets_in, other_user
from harness.servers.server import Server, running

_VARIABLE = "ASYNCDLOCK_PGBOUNCER"
_ADVICE = (
    "No PgBouncer found: install it with the system's package manager (Debian: apt-get install pgbouncer), "
    f"or set {_VARIABLE} to the path of the program."
)


def find_pgbouncer() -> Path:
    """The `pgbouncer` program.

    :raises ServerMissing: there is none.
    """
    candidates = (binaries.from_environment(_VARIABLE), binaries.on_path("pgbouncer"), _debian())
    return binaries.first(candidates, _ADVICE)


def _debian() -> Path | None:
    program = Path("/usr/sbin/pgbouncer")  # not on the PATH of everybody
    return program if program.exists() else None


class PgBouncerNode(Server):
    """A pooler that lends a connection for one transaction, and lets everybody in as the superuser."""

    kind = "pgbouncer"

    def __init__(self, behind: PostgresNode) -> None:
        self._program = find_pgbouncer()
        super().__init__()
        self.port = free_port()
        self._behind = behind
        # It does not run as root either.
        self._as_other_user = other_user(self.folder) if os.geteuid() == 0 else []

    @property
    def url(self) -> str:
        return self._behind.url.replace(self._behind.address, self.address)

    def _command(self) -> list[str]:
        file = self.folder / "pgbouncer.ini"
        file.write_text(
            f"""[databases]
* = host={self._behind.host} port={self._behind.port} user=postgres
[pgbouncer]
listen_addr = {self.host}
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = 10
server_login_retry = 0
"""
        )
        return [*self._as_other_user, str(self._program), str(file)]

    async def _answers(self) -> bool:
        return await lets_in(self.host, self.port)


class PooledPostgres(Group[Server]):
    """A PostgreSQL server and the PgBouncer before it."""

    def __init__(self) -> None:
        self.postgres = PostgresNode()
        self.pooler = PgBouncerNode(self.postgres)
        super().__init__([self.postgres, self.pooler])

    @property
    def url(self) -> str:
        """By way of the pooler."""
        return self.pooler.url

    async def start(self) -> None:
        for node in self:  # the pooler passes on what the server says
            await node.start()


def pgbouncer() -> AbstractAsyncContextManager[PooledPostgres]:
    """PostgreSQL behind PgBouncer for the length of an `async with`.

    :raises ServerMissing: one of the two is not installed; the message says how to get it.
    :raises ServerFailed: it did not start.
    """
    return running(PooledPostgres)
