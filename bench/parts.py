"""What the parts of the harness do alone: the resource under wrk, the lock's raw scripts."""

import asyncio
import shutil
from pathlib import Path

from bench.raw import RawConnection
from harness import resource, servers

_WRK = """
local key = 0
local token = 0
request = function()
  key = (key + 1) % 10000
  token = token + 1
  wrk.headers["X-Fence-Token"] = token
  return wrk.format("PUT", "/r/key-" .. key, nil, "12345 0123456789abcdef0123456789abcdef")
end
"""


async def resource_alone(seconds: float, folder: Path) -> float | None:
    """PUTs per second that wrk gets through to the resource; `None` without wrk."""
    wrk = shutil.which("wrk")
    if wrk is None:
        return None
    script = folder / "put.lua"
    script.write_text(_WRK)
    async with resource.spawn() as node:
        process = await asyncio.create_subprocess_exec(
            *(wrk, "-t1", "-c64", f"-d{max(round(seconds), 1)}s", "-s", str(script), node.url),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
    for line in out.decode().splitlines():
        if line.startswith("Requests/sec:"):
            return float(line.split()[1])
    return None


async def lock_alone(seconds: float) -> float:
    """Lock cycles per second that the raw scripts do on one connection."""
    async with servers.redis() as node:
        connection = RawConnection(node.url)
        await connection.open()
        done, took = await connection.cycles(100, seconds)
        connection.close()
    return done / took
