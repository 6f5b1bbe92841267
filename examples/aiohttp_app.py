"""aiohttp: one client for the life of the application; a handler that is cancelled when its lock is lost."""

import os
from collections.abc import AsyncIterator

from aiohttp import web

import asyncdlock

LOCKS = web.AppKey("locks", asyncdlock.LockClient)


async def connected(app: web.Application) -> AsyncIterator[None]:
    async with asyncdlock.connect(os.environ.get("LOCK_URL", "memory://")) as app[LOCKS]:
        yield


async def render(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    try:
        async with request.app[LOCKS].hold(f"report:{name}", timeout=0.5) as lock:
            # Send lock.fence with whatever is written here.
            return web.json_response({"report": name, "fence": lock.fence})
    except asyncdlock.AcquireTimeout:
        raise web.HTTPConflict(text="this report is already being rendered") from None
    except (asyncdlock.BackendError, asyncdlock.LockLost):
        raise web.HTTPServiceUnavailable(text="the lock was lost, or its server is away") from None


def make_app() -> web.Application:
    app = web.Application()
    app.cleanup_ctx.append(connected)
    app.router.add_post("/reports/{name}", render)
    return app


if __name__ == "__main__":
    web.run_app(make_app(), host="127.0.0.1")
