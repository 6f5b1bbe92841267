"""What a Redis URL and its options say: where the servers are, and how to open a connection."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redis.asyncio.connection import parse_url

from asyncdlock.backend import redact
from asyncdlock.backends.redis.openers import opener_for, sentinel_opener
from asyncdlock.backends.redis.wire import Opener

_TOPOLOGIES = ("single", "sentinel", "cluster")
_DATABASE = re.compile(r"/?|/[0-9]+")
_INDEPENDENT = "independent"  # several servers that know nothing of each other: redlock://

Converters = Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisURL:
    """A parsed URL. `ours` holds the backend's options, `theirs` those for redis-py's connections."""

    topology: str
    hosts: list[tuple[str, int]]
    service: str
    call_timeout: float
    encrypted: bool
    ours: dict[str, Any]
    theirs: dict[str, Any]
    sentinel_login: dict[str, Any]

    @classmethod
    def parse(cls, url: str, options: Mapping[str, Any], known: Converters) -> "RedisURL":
        """Read `url` and `options`; an option given in both is taken from `options`.

        :raises ValueError: what is wrong, in one sentence; never shows the password.
        """
        parts = urlsplit(url)
        scheme = parts.scheme.removesuffix("-queue")
        query: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
        given = query | dict(options)
        topology = given.pop("topology", "single")
        if topology not in (*_TOPOLOGIES, _INDEPENDENT):
            raise ValueError(f"topology must be one of {', '.join(_TOPOLOGIES)}, not {topology!r}")
        ours = {
            name: _convert(name, given.pop(name), convert) for name, convert in known.items() if name in given
        }
        service = given.pop("service", "mymaster")
        call_timeout = _convert("call_timeout", given.pop("call_timeout", 5.0), float)
        login = {
            name: given.pop(f"sentinel_{name}")
            for name in ("username", "password")
            if f"sentinel_{name}" in given
        }
        hosts = (
            [] if scheme == "unix" else _hosts(parts.netloc, 26379 if topology == "sentinel" else 6379, url)
        )
        if scheme != "unix" and not _DATABASE.fullmatch(parts.path):
            raise ValueError(f"bad database in {redact(url)!r}: it must be a number, as in redis://host/0")
        if not 0 < call_timeout < math.inf:
            raise ValueError("call_timeout must be a positive number of seconds")
        if topology == "single" and len(hosts) > 1:
            raise ValueError(
                f"{redact(url)!r} names {len(hosts)} hosts: say ?topology=cluster or ?topology=sentinel"
            )
        # Options given in Python may be objects; only what stood in the URL goes back into it.
        left_in_url = {name: value for name, value in given.items() if name in query and name not in options}
        plain = urlunsplit((scheme, _authority(parts.netloc, hosts), parts.path, urlencode(left_in_url), ""))
        theirs = {name: value for name, value in given.items() if name not in left_in_url}
        try:
            parsed = dict(parse_url(plain))
        except ValueError as error:
            raise ValueError(f"bad Redis URL {redact(url)!r}: {error}") from None
        return cls(
            topology=topology,
            hosts=hosts,
            service=service,
            call_timeout=call_timeout,
            encrypted=scheme == "rediss",
            ours=ours,
            theirs=parsed | theirs,
            sentinel_login=login,
        )

    def opener_to(self, host: str, port: int) -> Opener:
        """Opens connections to one node, with everything else as the URL says.

        :raises ValueError: redis-py does not know one of the options.
        """
        try:
            return opener_for(self.theirs | {"host": host, "port": port})
        except TypeError as error:
            raise ValueError(f"unknown option for Redis: {error}") from None

    def opener(self) -> Opener:
        """Opens connections to the single server, or to the primary that the sentinels name.

        :raises ValueError: redis-py does not know one of the options.
        """
        try:
            if self.topology == "sentinel":
                options = {name: value for name, value in self.theirs.items() if name not in ("host", "port")}
                options.pop("connection_class", None)
                if self.encrypted:
                    options["ssl"] = True
                return sentinel_opener(
                    self.hosts, self.service, sentinel_options=self.sentinel_login, **options
                )
            return opener_for(self.theirs)
        except TypeError as error:
            raise ValueError(f"unknown option for Redis: {error}") from None


def _convert(name: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    if convert is bool:
        word = str(value).lower()
        if word not in ("true", "false", "1", "0", "on", "off", "yes", "no"):
            raise ValueError(f"{name} must be true or false, not {value!r}")
        return word in ("true", "1", "on", "yes")
    try:
        number = convert(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {value!r}") from None
    if not number >= 0:
        raise ValueError(f"{name} must not be negative")
    return number


def _hosts(netloc: str, default_port: int, url: str) -> list[tuple[str, int]]:
    hosts = []
    for address in netloc.rpartition("@")[2].split(","):
        host, colon, port = address.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = address, str(default_port)
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"bad port in {redact(url)!r}: it must be a number from 1 to 65535")
        hosts.append((host.strip("[]") or "localhost", int(port)))
    return hosts


def _authority(netloc: str, hosts: list[tuple[str, int]]) -> str:
    if not hosts:
        return netloc
    credentials, at, _ = netloc.rpartition("@")
    host, port = hosts[0]
    return f"{credentials}{at}{f'[{host}]' if ':' in host else host}:{port}"
