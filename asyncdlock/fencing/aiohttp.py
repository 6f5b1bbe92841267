"""aiohttp middleware: `web.Application(middlewares=[fenced(marks)])` protects the handlers that write.

A handler returns its response, and it leaves once the mark, and whatever the handler wrote through the
connection of `PostgresMarks`, is committed. With those, a response of 400 or more rolls both back.
A handler that streams its response itself has answered before that: do not stream from a fenced handler.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from asyncdlock.errors import StaleFence
from asyncdlock.fencing._header import FAILED, HEADER, READS, Refusal, Unsuccessful, fence_in, stale
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
        key = None if request.method in READS else key_of(request)
        if key is None:
            return await handler(request)
        fence = fence_in(request.headers.getall(HEADER, []), key, signer)
        if isinstance(fence, Refusal):
            return _response(fence)
        raised = None
        try:
            async with marks.admit(key, fence) as admitted:
                ADMITTED.set(admitted)
                try:
                    response = await handler(request)
                except web.HTTPException as answer:  # a redirect, say, which is no failure
                    response = raised = answer
                if response.status >= FAILED:
                    raise Unsuccessful
        except Unsuccessful:
            pass
        except StaleFence as error:
            if error.key != key:
                raise
            return _response(stale(error))
        if raised is not None:
            raise raised
        return response

    return guard


def _response(refusal: Refusal) -> web.Response:
    return web.Response(status=refusal.status, body=refusal.body, content_type="application/json")
