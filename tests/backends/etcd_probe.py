"""What tests of the etcd backend need: the server's own view, and a lossy proxy."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp

from harness.servers import EtcdNode
from tests.backends.support import until


class Entry(NamedTuple):
    """One key on the server."""

    key: str
    value: str
    lease: int
    create_revision: int
    mod_revision: int


class Probe:
    """Reads a member directly, past the backend."""

    def __init__(self, node: EtcdNode) -> None:
        self.node = node

    async def queue(self, key: str) -> list[Entry]:
        """The places of a lock, oldest first."""
        start = f"/locks/{key}/"
        answer = await self.node.call(
            "kv/range", {"key": _pack(start), "range_end": _pack(start[:-1] + "0"), "sort_target": "CREATE"}
        )
        found = [
            Entry(
                _unpack(kv["key"]),
                _unpack(kv.get("value", "")),
                int(kv.get("lease", 0)),
                int(kv["create_revision"]),
                int(kv["mod_revision"]),
            )
            for kv in answer.get("kvs", [])
        ]
        return sorted(found, key=lambda entry: entry.create_revision)

    async def waits(self, key: str, places: int) -> None:
        """Wait until the lock's queue has this length, the holder included."""

        async def reached() -> bool:
            return len(await self.queue(key)) == places

        await until(reached, f"{places} places for {key!r}")

    async def leases(self) -> set[int]:
        answer = await self.node.call("lease/leases")
        return {int(lease["ID"]) for lease in answer.get("leases", [])}

    async def revision(self) -> int:
        """How many writes the store has seen."""
        return int((await self.node.call("maintenance/status"))["header"]["revision"])

    async def watchers(self) -> int:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{self.node.client_url}/metrics") as reply:
                for line in (await reply.text()).splitlines():
                    if line.startswith("etcd_debugging_mvcc_watcher_total "):
                        return int(float(line.split()[1]))
        raise AssertionError("etcd reports no number of watchers")

    async def put(self, key: str, value: str, lease: int) -> None:
        await self.node.call("kv/put", {"key": _pack(key), "value": _pack(value), "lease": str(lease)})

    async def delete(self, key: str) -> None:
        await self.node.call("kv/deleterange", {"key": _pack(key)})

    async def revoke(self, lease: int) -> None:
        await self.node.call("lease/revoke", {"ID": str(lease)})


def _pack(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _unpack(text: str) -> str:
    return base64.b64decode(text).decode()


class Proxy:
    """A TCP relay that can hold back what either side says, and cut connections."""

    def __init__(self, node: EtcdNode) -> None:
        self._target = node.host, node.port
        self._writers: set[asyncio.StreamWriter] = set()
        self._answering = asyncio.Event()
        self._answering.set()
        self._asking = asyncio.Event()
        self._asking.set()
        self._awaited: bytes | None = None
        self._seen = asyncio.Event()
        self.refusing = False
        """Drop every new connection."""
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.cut()
            server.close()
            await server.wait_closed()

    def hold_answers(self) -> None:
        """From now on requests arrive and are carried out, but no answer comes back."""
        self._answering.clear()

    def let_answers_pass(self) -> None:
        """Deliver the answers that were held."""
        self._answering.set()

    def hold_requests(self, up_to: str) -> None:
        """Keep back what is sent, up to the request that contains these words; lose what is sent after it."""
        self._awaited = up_to.encode()
        self._seen.clear()
        self._asking.clear()

    async def request_held(self) -> None:
        """Wait until that request was sent."""
        await self._seen.wait()

    def deliver_held(self) -> None:
        """Let what was held arrive after all."""
        self._asking.set()

    def cut(self) -> None:
        """Drop every connection with what was held on it; new ones work normally."""
        for writer in self._writers:
            writer.transport.abort()
        self._awaited = None
        self._answering.set()
        self._asking.set()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        to_server_reader, to_server = await asyncio.open_connection(*self._target)
        both = {writer, to_server}
        self._writers |= both
        try:
            await asyncio.gather(
                self._pump_requests(reader, to_server), self._pump_answers(to_server_reader, writer)
            )
        except ConnectionError:
            pass
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pump_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._answering.wait()
            await self._write(writer, data)
        raise ConnectionResetError

    async def _pump_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = b""
        while data := await reader.read(65536):
            if self._awaited is None:
                await self._write(writer, data)
                continue
            held += data
            if self._awaited in held:
                self._seen.set()
                await self._asking.wait()
                await self._write(writer, held)
                while await reader.read(65536):
                    pass  # too late
        raise ConnectionResetError

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if writer.transport.is_closing():
            raise ConnectionResetError
        writer.write(data)
        await writer.drain()
