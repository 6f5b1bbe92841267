"""FastAPI: one client for the life of the application, and a lock as a dependency: 409 instead of a wait."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request

import asyncdlock


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncdlock.connect(os.environ.get("LOCK_URL", "memory://")) as app.state.locks:
        yield


async def report_lock(name: str, request: Request) -> AsyncIterator[asyncdlock.Handle]:
    """Held for as long as the endpoint runs."""
    try:
        handle = await request.app.state.locks.acquire(f"report:{name}", timeout=0.5)
    except asyncdlock.AcquireTimeout:
        raise HTTPException(409, "this report is already being rendered") from None
    except asyncdlock.BackendError:
        raise HTTPException(503, "the lock server does not answer") from None
    try:
        yield handle
    finally:
        await handle.release()


app = FastAPI(lifespan=lifespan)


@app.post("/reports/{name}")
async def render(name: str, lock: Annotated[asyncdlock.Handle, Depends(report_lock)]) -> dict[str, object]:
    lock.check()  # and send lock.fence with whatever is written
    return {"report": name, "fence": lock.fence}
