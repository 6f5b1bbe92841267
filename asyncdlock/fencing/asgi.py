"""ASGI middleware (Starlette, FastAPI, Litestar …): one line protects the endpoints that write.

```python
app.add_middleware(FencedEndpoints, marks=MemoryMarks())
```

The answer is held back until the mark, and whatever the endpoint wrote through the connection of
`PostgresMarks`, is committed. With those, an answer of 400 or more rolls both back.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from asyncdlock.errors import StaleFence
from asyncdlock.fencing._header import FAILED, HEADER, READS, Refusal, Unsuccessful, fence_in, stale
from asyncdlock.fencing.marks import ADMITTED, Marks
from asyncdlock.fencing.signed import FenceSigner

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def _path(scope: Scope) -> str:
    return str(scope["path"])


class FencedEndpoints:
    """Lets a write through only under the highest fence that was seen for its key.

    `key_of(scope)` names what the lock protects, by default the path; `None` lets the request pass
    unguarded. With `PostgresMarks` the endpoint writes through the connection `ADMITTED.get()`. Requests for
    one key run one after the other. With `signer`, fences must be signed.
    """

    def __init__(
        self,
        app: App,
        *,
        marks: Marks,
        key_of: Callable[[Scope], str | None] = _path,
        signer: FenceSigner | None = None,
    ) -> None:
        self._app = app
        self._marks = marks
        self._key_of = key_of
        self._signer = signer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 409 to a stale fence, and 428, 403 or 400 to one that is missing, forged or malformed."""
        if scope["type"] != "http" or scope["method"] in READS:
            await self._app(scope, receive, send)
            return
        key = self._key_of(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        name = HEADER.lower().encode()
        values = [value.decode("latin-1") for header, value in scope["headers"] if header == name]
        fence = fence_in(values, key, self._signer)
        if isinstance(fence, Refusal):
            await _answer(send, fence)
            return
        held_back: list[Message] = []

        async def hold_back(message: Message) -> None:
            held_back.append(message)

        try:
            async with self._marks.admit(key, fence) as admitted:
                ADMITTED.set(admitted)
                await self._app(scope, receive, hold_back)
                if not held_back or held_back[0].get("status", FAILED) >= FAILED:
                    raise Unsuccessful
        except Unsuccessful:
            pass
        except StaleFence as error:
            if error.key != key:
                raise
            await _answer(send, stale(error))
            return
        for message in held_back:
            await send(message)


async def _answer(send: Send, refusal: Refusal) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(refusal.body))]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})
