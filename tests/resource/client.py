"""Single bytes, for what no client would send."""

import asyncio

from harness.resource import ResourceProcess


async def exchange(node: ResourceProcess, request: bytes, *, within: float = 60.0) -> bytes:
    """Send these bytes on a connection of their own; all that comes back until it is closed."""
    reader, writer = await asyncio.open_connection(node.host, node.port)
    try:
        writer.write(request)
        async with asyncio.timeout(within):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
