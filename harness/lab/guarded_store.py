"""A row in PostgreSQL and an object in S3, written through the library's guards: with no resource in between.

What refuses a stale write here is the store: the row's own transaction, or the condition of the object's PUT.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal, Protocol

import uvloop

import asyncdlock
from asyncdlock import StaleFence
from asyncdlock.fencing import postgres
from asyncdlock.fencing.s3 import FencedS3, UnfitStore
from harness.lab.actor import Actor, warm
from harness.lab.forkserver import Channel
from harness.lab.resource_view import Stored
from harness.resource.reply import Meaning, Reply
from harness.servers.errors import ServerFailed

Kind = Literal["postgres row", "s3 object"]
KINDS: tuple[Kind, ...] = ("postgres row", "s3 object")

Depth = Literal["none", "writes only", "every operation"]
"""What goes through the guard. S3 cannot note a read: there is no `every operation` for objects."""

BeforeWrite = Callable[[], Awaitable[None]]
"""Called when a write is decided on and about to leave: of an object, after its mark was read."""

BUCKET = "results"
_TABLE = "CREATE TABLE results (key text PRIMARY KEY, body bytea NOT NULL)"
_UPSERT = "INSERT INTO results VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET body = excluded.body"


class GuardedStore(Protocol):
    """Values under the guard of one kind of store."""

    async def get(self, key: str, fence: int | None = None) -> Stored:
        """The value; without `fence` as it lies in the store.

        :raises StaleFence: the store has seen a later holder.
        :raises ServerFailed: the store did not answer.
        """
        ...

    async def put(
        self, key: str, body: bytes, *, fence: int | None, owner: str | None, found: Stored | None = None
    ) -> Reply:
        """Write; what the store said to it. The owner and what was found mean nothing to a guard.

        :raises ServerFailed: the store did not answer.
        """
        ...


class _GuardedRows:
    def __init__(self, connections: Any, depth: Depth, before_write: BeforeWrite) -> None:
        self._connections = connections
        self._depth = depth
        self._before_write = before_write

    async def get(self, key: str, fence: int | None = None) -> Stored:
        with _failures():
            async with self._connections.acquire() as connection, connection.transaction():
                if fence is not None and self._depth == "every operation":
                    await postgres.guard(connection, key, fence)
                return Stored(await connection.fetchval("SELECT body FROM results WHERE key = $1", key))

    async def put(
        self, key: str, body: bytes, *, fence: int | None, owner: str | None, found: Stored | None = None
    ) -> Reply:
        await self._before_write()
        with _failures():
            try:
                async with self._connections.acquire() as connection, connection.transaction():
                    if fence is not None and self._depth != "none":
                        await postgres.guard(connection, key, fence)
                    await connection.execute(_UPSERT, key, body)
            except StaleFence as stale:
                return _refused(stale)
        return Reply(200)


class _GuardedObjects:
    def __init__(self, client: Any, depth: Depth, before_write: BeforeWrite) -> None:
        self._client = client
        self._fenced = FencedS3(client, BUCKET)
        self._depth = depth
        self._before_write = before_write
        self._writing: str | None = None
        client.meta.events.register("before-call.s3.PutObject", self._about_to_put)

    async def get(self, key: str, fence: int | None = None) -> Stored:
        with _failures():
            return Stored((await self._fenced.get(key)).body)

    async def put(
        self, key: str, body: bytes, *, fence: int | None, owner: str | None, found: Stored | None = None
    ) -> Reply:
        self._writing = key
        with _failures():
            try:
                if fence is None or self._depth == "none":
                    await self._client.put_object(Bucket=BUCKET, Key=key, Body=body)
                else:
                    await self._fenced.put(key, body, fence=fence)
            except StaleFence as stale:
                return _refused(stale)
        return Reply(200)

    async def _about_to_put(self, *, context: Mapping[str, Any], **_: object) -> None:
        # The guard's probe of the store writes objects of its own.
        if context["input_params"]["Key"] == self._writing:
            await self._before_write()


def _refused(stale: StaleFence) -> Reply:
    return Reply(0, missing=Meaning("stale", stale.seen))


@contextmanager
def _failures() -> Iterator[None]:
    """What drivers raise comes out as the failure of a server."""
    import asyncpg
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, BotoCoreError, ClientError, UnfitStore) as error:
        raise ServerFailed(f"the store failed: {error}") from error


async def _at_once() -> None:
    pass


def open_guarded_store(
    kind: Kind, url: str, depth: Depth, before_write: BeforeWrite = _at_once
) -> AbstractAsyncContextManager[GuardedStore]:
    """A client of the store at `url`, where table or bucket are."""
    return (_open_rows if kind == "postgres row" else _open_objects)(url, depth, before_write)


@asynccontextmanager
async def _open_rows(url: str, depth: Depth, before_write: BeforeWrite) -> AsyncIterator[GuardedStore]:
    import asyncpg

    async with asyncpg.create_pool(url, min_size=1, max_size=2) as connections:
        yield _GuardedRows(connections, depth, before_write)


@asynccontextmanager
async def _open_objects(url: str, depth: Depth, before_write: BeforeWrite) -> AsyncIterator[GuardedStore]:
    from aiobotocore.session import get_session
    from botocore import UNSIGNED
    from botocore.config import Config

    config = Config(signature_version=UNSIGNED, s3={"addressing_style": "path"})
    making = get_session().create_client("s3", endpoint_url=url, region_name="us-east-1", config=config)
    async with making as client:
        yield _GuardedObjects(client, depth, before_write)


async def make_table(url: str) -> None:
    """What rows need, with the migration that a user would run."""
    import asyncpg

    with _failures():
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(postgres.MIGRATION)
            await connection.execute(_TABLE)
        finally:
            await connection.close()


def guarded_worker(spec: Mapping[str, Any], channel: Channel) -> None:
    """The role of a participant that takes the lock, writes through the guard and releases.

    It says `sending` and works for a while when its write is about to leave: then it can be frozen.
    """
    uvloop.run(_wait_and_write(spec, channel))


async def _wait_and_write(spec: Mapping[str, Any], channel: Channel) -> None:
    async def before_write() -> None:
        channel.say("sending")
        await asyncio.sleep(spec["work"])

    async with (
        asyncdlock.connect(spec["url"]) as client,
        open_guarded_store(spec["kind"], spec["store"], spec["depth"], before_write) as store,
    ):
        await warm(client, spec["key"])
        await store.get(spec["key"])  # connected, so that the first write is not slower than the second
        channel.say("ready")
        if channel.hear() is not None:
            actor = Actor(spec["key"], client, store, channel.say)
            await actor.acquire(ttl=spec["ttl"], renew=True)
            await actor.finish(spec["body"])
