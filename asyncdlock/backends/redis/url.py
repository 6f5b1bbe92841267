"""What a Redis URL and its options say: where the servers are, and how to open a connection."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from redis.asyncio.connection import parse_url

from asyncdlock import _options
from asyncdlock.backend import redact
from asyncdlock.backends.redis.openers import opener_for, sentinel_opener
from asyncdlock.backends.redis.wire import Opener, WireOptions

_TOPOLOGIES = ("single", "sentinel", "cluster")
_DATABASE = re.compile(r"/?|/[0-9]+")
_INDEPENDENT = "independent"  # several servers that know nothing of each other: redlock://

_READERS: dict[type, _options.Reader] = {
    bool: _options.flag,
    int: _options.count(),
    float: _options.seconds(),
    str: _options.text,
}
_EVERYWHERE: dict[str, type] = {
    "topology": str,
    "service": str,
    "call_timeout": float,
    "stay_awake": bool,
    "sentinel_username": str,
    "sentinel_password": str,
}
_REFUSED = re.compile(r"unexpected keyword argument '(\w+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisURL:
    """A parsed URL. `ours` holds the backend's options, `theirs` those for redis-py's connections."""

    scheme: str
    known: list[str]
    topology: str
    hosts: list[tuple[str, int]]
    service: str
    wire: WireOptions
    encrypted: bool
    ours: dict[str, Any]
    theirs: dict[str, Any]
    sentinel_login: dict[str, Any]

    @classmethod
    def parse(cls, url: str, options: Mapping[str, Any], known: Mapping[str, type]) -> "RedisURL":
        """Read `url` and `options`; an option given in both is taken from `options`.

        `known` are the options of one backend: `bool`, a whole number (`int`), seconds (`float`) or text.
        What is neither there nor common to all is redis-py's.

        :raises ValueError: what is wrong, in one sentence; never shows the password.
        """
        parts = urlsplit(url)
        scheme = parts.scheme.removesuffix("-queue")
        given = _options.gather(parts.query, options)
        named_in_url = _options.gather(parts.query, {}).keys() - options.keys()
        common = _options.take(given, {name: _READERS[kind] for name, kind in _EVERYWHERE.items()})
        ours = _options.take(given, {name: _READERS[kind] for name, kind in known.items()})
        topology = common.get("topology", "single")
        if topology not in (*_TOPOLOGIES, _INDEPENDENT):
            raise ValueError(f"topology must be one of {', '.join(_TOPOLOGIES)}, not {topology!r}")
        login = {
            name: common[f"sentinel_{name}"]
            for name in ("username", "password")
            if f"sentinel_{name}" in common
        }
        hosts = (
            [] if scheme == "unix" else _hosts(parts.netloc, 26379 if topology == "sentinel" else 6379, url)
        )
        if scheme != "unix" and not _DATABASE.fullmatch(parts.path):
            raise ValueError(f"bad database in {redact(url)!r}: it must be a number, as in redis://host/0")
        if topology == "single" and len(hosts) > 1:
            raise ValueError(
                f"{redact(url)!r} names {len(hosts)} hosts: say ?topology=cluster or ?topology=sentinel"
            )
        # Options given in Python may be objects; only what stood in the URL goes back into it.
        left_in_url = {name: value for name, value in given.items() if name in named_in_url}
        plain = urlunsplit((scheme, _authority(parts.netloc, hosts), parts.path, urlencode(left_in_url), ""))
        theirs = {name: value for name, value in given.items() if name not in left_in_url}
        try:
            parsed = dict(parse_url(plain))
        except ValueError as error:
            raise ValueError(f"bad Redis URL {redact(url)!r}: {error}") from None
        return cls(
            scheme=parts.scheme,
            known=sorted({**_EVERYWHERE, **known}),
            topology=topology,
            hosts=hosts,
            service=common.get("service", "mymaster"),
            wire={
                "call_timeout": common.get("call_timeout", 5.0),
                "stay_awake": common.get("stay_awake", True),
            },
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
            raise self._unknown(error) from None

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
            raise self._unknown(error) from None

    def _unknown(self, error: TypeError) -> ValueError:
        """redis-py refused what none of ours took."""
        refused = _REFUSED.search(str(error))
        if refused is None:
            return ValueError(f"unknown option for Redis: {error}")
        return _options.unknown(
            refused[1], self.scheme, [*self.known, "and what redis-py's connections take"]
        )


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
