"""One line protects the endpoints of a service; fences are signed: `python examples/guard_service.py`."""

import asyncio
import secrets

import httpx
from fastapi import FastAPI, Request

import asyncdlock
from asyncdlock.fencing.asgi import FencedEndpoints
from asyncdlock.fencing.marks import MemoryMarks
from asyncdlock.fencing.signed import FenceSigner

signer = FenceSigner(
    {"2026-11": secrets.token_bytes(32)}
)  # known to the service and to whoever hands out locks
values: dict[str, bytes] = {}
app = FastAPI()
app.add_middleware(FencedEndpoints, marks=MemoryMarks(), signer=signer)


@app.put("/reports/{name}")
async def store(name: str, request: Request) -> dict[str, str]:
    values[name] = await request.body()
    return {"stored": name}


async def main() -> None:
    path = "/reports/7"
    async with (
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://reports") as client,
        asyncdlock.connect("memory://service") as locks,
    ):

        async def put(body: str, token: str) -> None:
            answer = await client.put(path, content=body, headers={"X-Fence-Token": token})
            print(f"{body}: {answer.status_code} {answer.text}")

        slow = await locks.acquire(path, ttl=0.5, renew=False)  # falls asleep, and its lease ends
        async with locks.hold(path) as quick:
            await put("by the quick worker", signer.sign(path, quick.fence))
        await put("by the slow worker", signer.sign(path, slow.fence))
        await put("by somebody who makes up a fence", str(2**63 - 1))
        await slow.release()
    print("stored:", values["7"])


asyncio.run(main())
