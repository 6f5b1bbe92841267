"""What a fragment of the docs leaves out because its reader has it: the lines before it, and perhaps after.

A complete program, one that calls `asyncio.run`, and a test need none. Every other block runs behind
`USUAL`, and where that is not enough behind the lines of its page as well. A URL stands for a real server.
"""

from typing import NamedTuple

USUAL = """
import asyncio
import redis.asyncio
import asyncdlock
from asyncdlock.fencing.redis import FencedRedis

locks = asyncdlock.connect("redis-queue://localhost")
database = redis.asyncio.Redis.from_url("redis://localhost", db=9)
await database.flushdb()  # fences of another block's lock server
store = FencedRedis(database)
body = b"100"
"""
AT_THE_END = """
await locks.aclose()
await database.aclose()
"""


class Surroundings(NamedTuple):
    """Of blocks of `page` with `word` in them."""

    page: str
    word: str
    before: str
    after: str = AT_THE_END
    usual: str = USUAL
    instead: tuple[str, str] = ("", "")
    """What the block says, and what it must say to end within a test."""


_HANDLE = 'handle = await locks.acquire("account:42")\n'

_RESOURCE = """
from harness.resource.process import spawn
resource = spawn(fence="on")
url = (await resource.__aenter__()).url
"""
_RESOURCE_ENDS = """
await resource.__aexit__(None, None, None)
"""
_LEAVES = "    raise SystemExit(0)  # it came so far; the loop around it has no end\n"
_BILLS = "async def bill_everybody(until, fence):\n    assert fence > 0\n"

SURROUNDINGS = (
    Surroundings(
        "docs/blocking.md",
        "blocking.connect",
        """
import threading
body = b"100"
class store:
    put = staticmethod(lambda key, body, fence: print(key, body, fence))
""",
        "locks.close()\n",
        usual="",
    ),
    Surroundings(
        "docs/blocking.md",
        'renew_in="thread"',
        """
import time
url = "redis-queue://localhost"
def crunch(): time.sleep(6)  # longer than the TTL
""",
    ),
    Surroundings("docs/operating.md", "redis=client", "client = database\n"),
    Surroundings(
        "docs/leadership.md",
        "run_the_scheduler",
        "async def run_the_scheduler(fence):\n    assert fence > 0\n" + _LEAVES,
        "raise AssertionError('nobody was elected')\n",
    ),
    Surroundings("docs/leadership.md", "locks.observe", "", _LEAVES),
    Surroundings(
        "docs/once.md",
        'every="1h"',
        _BILLS + _LEAVES,
        "raise AssertionError('no tick was run')\n",
        instead=('"1h"', '"1s"'),
    ),
    Surroundings("docs/once.md", "once_per", "from datetime import UTC, datetime\n" + _BILLS),
    Surroundings(
        "docs/several-keys.md",
        "store.move",
        """
amount = 10
class store:
    @staticmethod
    async def move(giver, taker, amount, fences): assert set(fences) == {"account:7", "account:42"}
""",
    ),
    Surroundings(
        "docs/guards.md",
        "FencedHttp(",
        """
import aiohttp
from asyncdlock.fencing.http import FencedHttp
session = aiohttp.ClientSession()
"""
        + _RESOURCE
        + _HANDLE,
        """
await session.close()
"""
        + _RESOURCE_ENDS
        + AT_THE_END,
    ),
    Surroundings(
        "docs/guards.md",
        "FencedHttpx(",
        """
import httpx
from asyncdlock.fencing.httpx import FencedHttpx
client = httpx.AsyncClient()
"""
        + _RESOURCE
        + _HANDLE,
        """
await client.aclose()
"""
        + _RESOURCE_ENDS
        + AT_THE_END,
    ),
    Surroundings(
        "docs/tutorials/fastapi.md",
        "Depends(",
        "",
        """
import httpx
async with asyncdlock.connect("redis-queue://localhost") as app.state.locks:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://app") as client:
        assert (await client.post("/reports/q3")).status_code == 200
        async with app.state.locks.hold("report:q3"):
            assert (await client.post("/reports/q3")).status_code == 409
"""
        + AT_THE_END,
        instead=("timeout=0.5", "timeout=5.0"),  # a busy machine may need as long to connect
    ),
    Surroundings(
        "docs/tutorials/fastapi.md",
        "lifespan",
        "",
        """
async with lifespan(app):
    await (await app.state.locks.acquire("report:q3")).release()
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/tutorials/celery-or-taskiq.md",
        "Celery(",
        "",
        """
assert bill.apply(args=["7"]).get()["fence"] > 0
locks.close()
""",
        usual="",
    ),
    Surroundings(
        "docs/tutorials/celery-or-taskiq.md",
        "InMemoryBroker",
        "",
        """
await broker.startup()
billed = await (await bill.kiq("7")).wait_result(timeout=30)
assert billed.return_value["fence"] > 0
await broker.shutdown()
await locks.aclose()
""",
        usual="",
    ),
    Surroundings("docs/index.md", "render", "async def render(): await asyncio.sleep(0)\n"),
    Surroundings(
        "docs/kinds.md",
        "catalogue",
        """
async def read(fence): return ["row"]
async def write(rows, fence): assert rows == ["row"]
""",
    ),
    Surroundings("docs/kinds.md", "permits", "async def render(fence): assert fence > 0\n"),
    Surroundings(
        "docs/guards.md",
        "connection.transaction",
        """
import asyncpg
from asyncdlock.fencing.postgres import MIGRATION, guard
connection = await asyncpg.connect("postgres://localhost")
await connection.execute(MIGRATION)
await connection.execute("CREATE TEMPORARY TABLE account (id int, balance int)")
await connection.execute("INSERT INTO account VALUES (42, 100)")
""",
        """
assert await connection.fetchval("SELECT balance FROM account WHERE id = 42") == 90
await connection.close()
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/guards.md",
        "fencing.dbapi",
        """
import psycopg
from asyncdlock.fencing.postgres import MIGRATION
dsn = "postgres://localhost"
with psycopg.connect(dsn) as connection:
    connection.execute(MIGRATION)
    connection.execute("CREATE TABLE account (id int, balance int)")
    connection.execute("INSERT INTO account VALUES (42, 100)")
"""
        + _HANDLE,
        """
with psycopg.connect(dsn) as connection:
    assert connection.execute("SELECT balance FROM account WHERE id = 42").fetchone() == (90,)
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/guards.md",
        "FencedS3",
        """
from aiobotocore.session import get_session
from botocore import UNSIGNED
from botocore.config import Config
from asyncdlock.fencing.s3 import FencedS3
config = Config(signature_version=UNSIGNED, s3={"addressing_style": "path"})
client = await get_session().create_client(
    "s3", endpoint_url="s3://localhost", region_name="us-east-1", config=config
).__aenter__()
await client.create_bucket(Bucket="ledger")
"""
        + _HANDLE,
        """
assert (await store.get("account/42")).body == body
await client.close()
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/guards.md",
        "FencedEtcd",
        """
from urllib.parse import urlsplit
import aetcd
from asyncdlock.fencing.etcd import FencedEtcd
where = urlsplit("etcd://localhost")
client = aetcd.Client(host=where.hostname, port=where.port, timeout=30)
"""
        + _HANDLE,
        """
assert (await client.get(b"account/42")).value == body
await client.close()
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/guards.md",
        "FencedEndpoints",
        """
import asyncpg
from aiohttp import web
from fastapi import FastAPI
from asyncdlock.fencing.aiohttp import fenced
from asyncdlock.fencing.asgi import FencedEndpoints
from asyncdlock.fencing.marks import MemoryMarks, PostgresMarks
app = FastAPI()
pool = await asyncpg.create_pool("postgres://localhost")
""",
        """
await pool.close()
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/guards.md",
        "FenceSigner",
        """
import secrets
from asyncdlock.fencing.signed import FenceSigner
secret = secrets.token_bytes(32)
"""
        + _HANDLE,
        """
assert fence == handle.fence
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/adding-a-backend.md",
        "_options",
        """
from urllib.parse import urlsplit
from asyncdlock import _options
url, options = "consul://localhost?retries=3", {"timeout": 5}
""",
        """
assert values == {"retries": 3, "timeout": 5.0}
"""
        + AT_THE_END,
    ),
    Surroundings(
        "docs/adding-a-backend.md",
        "Installation(",
        """
from harness.servers.catalogue import Installation
def consul(**options): ...
""",
    ),
)

EXPERIMENT_RUNS = """
import sys
from harness.cli.main import main
sys.exit(main(["experiment", "killed-worker", "--quick"]))
"""


def surround(page: str, text: str) -> str:
    """The block as a program of its own."""
    if "asyncio.run(" in text or "def test_" in text:
        return text
    if "@experiment(" in text:
        return text + EXPERIMENT_RUNS
    for one in SURROUNDINGS:
        if one.page == page and one.word in text:
            return one.usual + one.before + text.replace(*one.instead) + one.after
    return USUAL + text + AT_THE_END
