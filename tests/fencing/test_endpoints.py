"""FencedEndpoints (ASGI) and `fenced` (aiohttp): one line protects the endpoints that write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from asyncdlock.errors import StaleFence
from asyncdlock.fencing.aiohttp import fenced
from asyncdlock.fencing.asgi import FencedEndpoints
from asyncdlock.fencing.marks import MemoryMarks
from asyncdlock.fencing.signed import FenceSigner

WRITES = {"PUT", "POST", "PATCH", "DELETE", "MOVE", "PROPPATCH"}
SIGNER = FenceSigner({"1": b"a secret of sixteen"})


class Ledger:
    """Marks in a store of one's own choice: it commits or rolls back."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @asynccontextmanager
    async def admit(self, key: str, fence: int) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            self.said.append("rolled back")
            raise
        self.said.append("committed")


class Service:
    """Endpoints that write down who wrote, and can be made to wait in the middle."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.entered = asyncio.Event()
        self.inside = 0

    async def write(self, body: str) -> None:
        self.inside += 1
        self.entered.set()
        await self.go_on.wait()
        self.written.append(body)
        self.inside -= 1

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] in WRITES:
            await self.write((await receive())["body"].decode())
        status = int(scope["query_string"] or 200)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def aiohttp(self, request: web.Request) -> web.StreamResponse:
        if request.method in WRITES:
            await self.write(await request.text())
        if request.query_string == "303":
            raise web.HTTPSeeOther("/")
        if request.query_string == "404":
            raise web.HTTPNotFound
        return web.Response(body=b"done", status=int(request.query_string or 200))


Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture(params=["asgi", "aiohttp"])
async def make(request: pytest.FixtureRequest, service: Service) -> Any:
    """`await make(**options)` gives a function that sends a request and returns status and body."""
    closing: list[Callable[[], Awaitable[None]]] = []

    async def make(**options: Any) -> Ask:
        if request.param == "asgi":
            app = FencedEndpoints(service.asgi, marks=options.pop("marks", None) or MemoryMarks(), **options)
            asgi = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")
            closing.append(asgi.aclose)

            async def ask(method: str, path: str, body: str = "", *fences: str) -> tuple[int, Any]:
                headers = [("X-Fence-Token", fence) for fence in fences]
                reply = await asgi.request(method, path, content=body, headers=headers)
                is_json = reply.headers.get("content-type") == "application/json"
                return reply.status_code, reply.json() if is_json else reply.text

            return ask
        marks = options.pop("marks", None) or MemoryMarks()
        application = web.Application(middlewares=[fenced(marks, **options)])
        application.router.add_route("*", "/{tail:.*}", service.aiohttp)
        client = TestClient(TestServer(application))
        await client.start_server()
        closing.append(client.close)

        async def ask_aiohttp(method: str, path: str, body: str = "", *fences: str) -> tuple[int, Any]:
            headers = [("X-Fence-Token", fence) for fence in fences]
            async with client.request(
                method, path, data=body, headers=headers, allow_redirects=False
            ) as reply:
                is_json = reply.content_type == "application/json"
                return reply.status, await (reply.json() if is_json else reply.text())

        return ask_aiohttp

    yield make
    for close in closing:
        await close()


async def test_a_stale_write_never_reaches_the_endpoint(make: Any, service: Service) -> None:
    ask = await make()
    assert await ask("PUT", "/a", "33", "33") == (200, "done")
    assert await ask("PUT", "/a", "34", "34") == (200, "done")
    assert await ask("PUT", "/a", "late", "33") == (
        409,
        {"error": "stale fencing token", "seen": 34, "got": 33},
    )
    assert await ask("PUT", "/b", "another key", "1") == (200, "done")
    assert service.written == ["33", "34", "another key"]


async def test_the_same_holder_may_write_again(make: Any, service: Service) -> None:
    ask = await make()
    for body in ("one", "two"):
        assert (await ask("PUT", "/a", body, "7"))[0] == 200
    assert service.written == ["one", "two"]


@pytest.mark.parametrize(
    ("fences", "status"),
    [((), 428), (("x",), 400), (("0",), 400), (("-1",), 400), (("9" * 19,), 400), (("1", "2"), 400)],
)
async def test_a_write_without_a_proper_fence_is_refused(
    make: Any, service: Service, fences: tuple[str, ...], status: int
) -> None:
    ask = await make()
    assert (await ask("PUT", "/a", "body", *fences))[0] == status
    assert service.written == []


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "committed"),
        (303, "committed"),
        (404, "rolled back"),
        (422, "rolled back"),
        (500, "rolled back"),
    ],
)
async def test_what_the_endpoint_wrote_stays_if_it_says_so(
    make: Any, service: Service, status: int, outcome: str
) -> None:
    """Also where a redirect is raised, and an error is an answer."""
    marks = Ledger()
    ask = await make(marks=marks)
    assert (await ask("PUT", f"/a?{status}", "body", "7"))[0] == status
    assert marks.said == [outcome]


async def test_whatever_is_not_known_to_be_a_read_is_a_write(make: Any, service: Service) -> None:
    ask = await make()
    for method in sorted(WRITES):
        assert (await ask(method, "/a", "body"))[0] == 428
        assert (await ask(method, "/a", method, "7"))[0] == 200
    assert service.written == sorted(WRITES)
    for method in ("GET", "OPTIONS"):
        assert (await ask(method, "/a"))[0] == 200


async def test_reads_and_what_has_no_key_pass(make: Any, service: Service) -> None:
    ask = await make(key_of=lambda _: None)
    assert await ask("GET", "/a") == (200, "done")
    assert await ask("PUT", "/a", "unguarded") == (200, "done")


async def test_a_newer_holder_waits_for_the_one_that_is_inside(make: Any, service: Service) -> None:
    """A check before the write would let 34 write in the middle of 33, and 33 overwrite it."""
    ask = await make()
    service.go_on.clear()
    old = asyncio.create_task(ask("PUT", "/a", "33", "33"))
    await service.entered.wait()
    new = asyncio.create_task(ask("PUT", "/a", "34", "34"))
    done, _ = await asyncio.wait({old, new}, timeout=0.2)
    assert not done
    assert service.inside == 1
    service.go_on.set()
    assert [(await old)[0], (await new)[0]] == [200, 200]
    assert service.written == ["33", "34"]


async def test_signed_fences(make: Any, service: Service) -> None:
    ask = await make(signer=SIGNER)
    assert (await ask("PUT", "/a", "burn it", str(2**63 - 1)))[0] == 403
    assert (await ask("PUT", "/a", "for another key", SIGNER.sign("/b", 9)))[0] == 403
    assert (await ask("PUT", "/a", "fine", SIGNER.sign("/a", 9)))[0] == 200
    assert service.written == ["fine"]


async def test_marks_keep_nothing_for_requests_that_are_over() -> None:
    marks = MemoryMarks()
    async with marks.admit("a", 7):
        pass
    with pytest.raises(StaleFence):
        async with marks.admit("a", 6):
            pass
    assert marks._turns == {}
