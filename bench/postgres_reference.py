"""python -m bench.postgres_reference: the PostgreSQL backend beside sqlalchemy-dlock and an advisory lock.

Two hundred at a time, on keys of their own and on one hot key; interleaved rounds, each in its own process on
a fresh server. Writes bench/results/postgres.json and postgres.md, in about two minutes. The peers have a
connection for each contender; ours has one. An advisory lock is no lease: nothing of it is written to disk.
A grant by our server is a commit that is: a hot key cannot have more of them than the limit in its table.
"""

from bench.postgres_subjects import CONTENDERS, LIMITS, LOCKS, SqlalchemyDlock
from bench.reference import Reference
from harness import servers

if __name__ == "__main__":
    Reference(
        name="postgres",
        title="PostgreSQL: ours, sqlalchemy-dlock and advisory locks",
        server=lambda: servers.postgres(settings={"max_connections": str(CONTENDERS + 50)}),
        subjects=LOCKS,
        peer=SqlalchemyDlock,
        limits=LIMITS,
        packages=("asyncpg", "sqlalchemy-dlock"),
        contenders=CONTENDERS,
    ).main(__doc__.splitlines()[0])
