"""aiohttp middleware: `web.Application(middlewares=[fenced(marks)])` protects the handlers that write.

A handler returns its response, and it leaves once the mark is committed. One that streams its response itself
has answered before that: do not stream from a fenced handler.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from asyncdlock.errors import StaleFence
from asyncdlock.fencing._header import HEADER, WRITES, Refusal, fence_in, stale
from asyncdlock.fencing.marks import ADMITTED, Marks
from asyncdlock.fencing.signed import FenceSigner

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def _path(request: web.Request) -> str:
    return request.path


def fenced(
    marks: Marks,
    *,
    key_of: Callable[[web.Request], str | None] = _path,
    signer: FenceSigner | None = None,
) -> Middleware:
    """A middleware that lets a write through only under the highest fence that was seen for its key.

    `key_of(request)` names what the lock protects, by default the path; `None` lets the request pass
    unguarded. With `PostgresMarks` the handler writes through the connection `ADMITTED.get()`. Requests for
    one key run one after the other. With `signer`, fences must be signed.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        key = key_of(request) if request.method in WRITES else None
        if key is None:
            return await handler(request)
        fence = fence_in(request.headers.getall(HEADER, []), key, signer)
        if isinstance(fence, Refusal):
            return _response(fence)
        try:
            async with marks.admit(key, fence) as admitted:
                ADMITTED.set(admitted)
                return await handler(request)
        except StaleFence as error:
            if error.key != key:
                raise
            return _response(stale(error))

    return guard


def _response(refusal: Refusal) -> web.Response:
    return web.Response(status=refusal.status, body=refusal.body, content_type="application/json")
