"""The tables and functions of postgres://, and the statements that use them."""

from importlib import resources

SCHEMA = "asyncdlock"
_CREATION = resources.files("asyncdlock.backends.postgres").joinpath("schema.sql").read_text("utf-8")


def creation(schema: str) -> str:
    """The SQL that makes everything in `schema`, out of what an earlier version made, too; safe to repeat."""
    return _CREATION.replace("@schema@", quoted(schema))


def run(schema: str) -> str:
    """The statement that carries out a batch of requests."""
    return f"SELECT * FROM {quoted(schema)}.run_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"  # noqa: S608


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


INSPECTION = """
SELECT
    pg_backend_pid() AS pid,
    (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()) AS began,
    current_setting('server_version_num')::int AS version,
    current_setting('server_encoding') AS encoding,
    current_setting('fsync') AS fsync,
    current_setting('default_transaction_isolation') AS isolation,
    pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool AS read_only,
    (SELECT bool_and(relpersistence = 'p') FROM pg_class
        WHERE oid IN (to_regclass($1 || '.locks'), to_regclass($1 || '.holders'))) AS logged,
    to_regproc($1 || '.run_2') IS NOT NULL AS created,
    extract(epoch FROM clock_timestamp())::float8 AS server_time
"""
"""What a new connection must know of its server; `$1` is the quoted schema."""

TERMINATION = (
    "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"
)
"""Ends the process of a connection that was lost, so that nothing of it is carried out later."""
