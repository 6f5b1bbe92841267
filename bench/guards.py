"""python -m bench.guards: what each guard costs beside the bare write; writes bench/results/guards.{json,md}.

One writer, one connection, real servers: a bare write, a guarded one, and so on, alternating, each with a
fence above the one before. The figure is the ratio of the medians. About a minute.
"""

import argparse
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aetcd
import aiohttp
import asyncpg
import uvloop
from aiobotocore.session import get_session
from aiohttp import web
from aiohttp.test_utils import TestServer
from botocore import UNSIGNED
from botocore.config import Config
from redis.asyncio import Redis

from asyncdlock.fencing import postgres
from asyncdlock.fencing.aiohttp import fenced
from asyncdlock.fencing.etcd import FencedEtcd
from asyncdlock.fencing.marks import MemoryMarks
from asyncdlock.fencing.redis import FencedRedis
from asyncdlock.fencing.s3 import FencedS3
from bench.save import add_output, show
from bench.surroundings import describe, in_words
from harness import servers
from harness.servers.s3_node import s3

_BODY = b"x" * 100
_WARM_UP = 20
_KEY = "account:42"

Write = Callable[[int], Awaitable[object]]
"""Writes once; the number is the fence."""


class Pair(NamedTuple):
    """A write, and the same under a guard."""

    guard: str
    beside: str
    bare: Write
    guarded: Write


@asynccontextmanager
async def on_postgres() -> AsyncIterator[list[Pair]]:
    async with servers.postgres() as node:
        connection = await asyncpg.connect(node.url)
        await connection.execute(postgres.MIGRATION)
        await connection.execute("CREATE TABLE account (id int PRIMARY KEY, body bytea, fence bigint)")
        await connection.execute("INSERT INTO account VALUES (1, '', 0), (2, '', 0)")

        async def in_transaction(fence: int) -> None:
            async with connection.transaction():
                await connection.execute("UPDATE account SET body = $1 WHERE id = 1", _BODY)

        async def guarded(fence: int) -> None:
            async with connection.transaction():
                await postgres.guard(connection, _KEY, fence)
                await connection.execute("UPDATE account SET body = $1 WHERE id = 1", _BODY)

        async def update(fence: int) -> None:
            await connection.execute("UPDATE account SET body = $1 WHERE id = 2", _BODY)

        async def by_row(fence: int) -> None:
            await postgres.write_row(connection, "account", {"id": 2}, {"body": _BODY}, fence=fence)

        yield [
            Pair("PostgreSQL, guard()", "a transaction with one UPDATE", in_transaction, guarded),
            Pair("PostgreSQL, write_row()", "an UPDATE", update, by_row),
        ]
        await connection.close()


@asynccontextmanager
async def on_redis() -> AsyncIterator[list[Pair]]:
    async with servers.redis() as node, Redis.from_url(node.url) as client:
        store = FencedRedis(client)
        yield [
            Pair(
                "Redis, FencedRedis.put()",
                "HSET",
                lambda fence: client.hset("bare", "value", _BODY),
                lambda fence: store.put(_KEY, _BODY, fence=fence),
            )
        ]


@asynccontextmanager
async def on_etcd() -> AsyncIterator[list[Pair]]:
    async with servers.etcd() as cluster:
        where = urlsplit(cluster.url)
        client = aetcd.Client(host=where.hostname, port=where.port, timeout=30)
        await client.connect()
        store = FencedEtcd(client)
        put = client.transactions.put(b"guarded", _BODY)
        yield [
            Pair(
                "etcd, FencedEtcd.commit()",
                "a put",
                lambda fence: client.put(b"bare", _BODY),
                lambda fence: store.commit(_KEY, [put], fence=fence),
            )
        ]
        await client.close()


@asynccontextmanager
async def on_s3() -> AsyncIterator[list[Pair]]:
    unsigned = Config(signature_version=UNSIGNED, s3={"addressing_style": "path"}, read_timeout=120)
    async with (
        s3() as node,
        get_session().create_client(
            "s3", endpoint_url=node.url, region_name="us-east-1", config=unsigned
        ) as client,
    ):
        await client.create_bucket(Bucket="values")
        store = FencedS3(client, "values")
        yield [
            Pair(
                "S3, FencedS3.put()",
                "PutObject",
                lambda fence: client.put_object(Bucket="values", Key="bare", Body=_BODY),
                lambda fence: store.put(_KEY, _BODY, fence=fence),
            )
        ]


@asynccontextmanager
async def on_http() -> AsyncIterator[list[Pair]]:
    async def endpoint(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def served(*middlewares: Any) -> Write:
            application = web.Application(middlewares=middlewares)
            application.router.add_put("/value", endpoint)
            server = await stack.enter_async_context(TestServer(application))

            async def put(fence: int) -> None:
                token = {"X-Fence-Token": str(fence)}
                async with session.put(server.make_url("/value"), data=_BODY, headers=token) as reply:
                    reply.raise_for_status()

            return put

        bare, guarded = await served(), await served(fenced(MemoryMarks()))
        yield [Pair("aiohttp, fenced(MemoryMarks())", "the same endpoint", bare, guarded)]


async def measure(pair: Pair, seconds: float) -> dict[str, float]:
    """Alternate until the time is over; microseconds by the median."""
    taken: dict[str, list[float]] = {"bare": [], "guarded": []}
    fence = 0
    end = time.perf_counter() + seconds
    while fence < 2 * _WARM_UP or time.perf_counter() < end:
        for name, write in (("bare", pair.bare), ("guarded", pair.guarded)):
            fence += 1
            began = time.perf_counter()
            await write(fence)
            taken[name].append(1e6 * (time.perf_counter() - began))
    bare, guarded = (statistics.median(times[_WARM_UP:]) for times in taken.values())
    return {"bare_us": bare, "guarded_us": guarded, "ratio": guarded / bare, "writes": fence / 2}


async def compare(seconds: float) -> dict[str, Any]:
    """Every guard on its own server."""
    described = describe()
    table: dict[str, Any] = {}
    for started in (on_postgres, on_redis, on_etcd, on_s3, on_http):
        async with started() as pairs:
            for pair in pairs:
                print(pair.guard, file=sys.stderr)
                table[pair.guard] = {"beside": pair.beside, **await measure(pair, seconds)}
    return {
        "command": " ".join(["python -m bench.guards", *sys.argv[1:]]),
        "environment": described,
        "seconds_per_guard": seconds,
        "figures": table,
    }


def markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    where = outcome["environment"]
    yield "# Guards: what the comparison costs"
    yield ""
    yield f"`{outcome['command']}`: one writer, bare and guarded writes alternating, medians."
    yield in_words(where)
    yield from ("", "| guard | beside | bare µs | guarded µs | ratio |", "|---|---|---|---|---|")
    for guard, one in outcome["figures"].items():
        yield (
            f"| {guard} | {one['beside']} | {one['bare_us']:,.0f} | {one['guarded_us']:,.0f} "
            f"| {one['ratio']:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.guards", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each guard")
    add_output(parser)
    options = parser.parse_args()
    outcome = uvloop.run(compare(options.seconds))
    show("guards", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
