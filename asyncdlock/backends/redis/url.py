"""What a Redis URL and its options say: where the servers are, and how to open a connection."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from redis.asyncio.connection import parse_url

from asyncdlock import _options
from asyncdlock._url import TLS, TLS_OPTIONS, Address, LockURL
from asyncdlock.backends.redis.openers import opener_for, sentinel_opener
from asyncdlock.backends.redis.reuse import reused
from asyncdlock.backends.redis.wire import Opener, WireOptions

_TOPOLOGIES = ("single", "sentinel", "cluster")
_DATABASE = re.compile(r"/?|/[0-9]+")
_INDEPENDENT = "independent"  # several servers that know nothing of each other: redlock://
_ENCRYPTED = {"redis": "rediss", "redis-queue": "rediss-queue", "redlock": "redlocks"}
_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")  # in the order of TLS

_READERS: dict[type, _options.Reader] = {
    bool: _options.flag,
    int: _options.count(),
    float: _options.seconds(),
    str: _options.text,
}
_EVERYWHERE: dict[str, _options.Reader] = {
    "topology": _options.text,
    "service": _options.text,
    "connect_timeout": _options.seconds(),
    "request_timeout": _options.seconds(),
    "call_timeout": _options.seconds(),
    "stay_awake": _options.flag,
    "sentinel_username": _options.text,
    "sentinel_password": _options.text,
    **TLS_OPTIONS,
}
_REUSING = ("redis", "redis-queue")
_BROUGHT_ALONG = {"topology", "service", "sentinel_username", "sentinel_password", *TLS_OPTIONS}
_REFUSED = re.compile(r"unexpected keyword argument '(\w+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisURL:
    """A parsed URL. `ours` holds the backend's options, `theirs` those for redis-py's connections."""

    scheme: str
    known: list[str]
    topology: str
    hosts: list[tuple[str, int]]
    logins: list[dict[str, str]]
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
        where = LockURL.split(url)
        given = _options.gather(where.query, options)
        common = _options.take(given, _EVERYWHERE)
        _options.merge(common, "request_timeout", "call_timeout")
        ours = _options.take(given, {name: _READERS[kind] for name, kind in known.items()})
        if given.get("redis") is not None:
            client = given.pop("redis")
            return cls._like(client, where, common, ours, given, sorted({**_EVERYWHERE, **known}))
        topology = _topology(where, common)
        tls = _tls(where, common)
        addresses = _addresses(where, topology)
        # Options given in Python may be objects; those of the URL are text, which redis-py reads.
        objects = {name: given.pop(name) for name in options if name in given}
        theirs = _read_by_redis_py(where, given, encrypted=tls is not None)
        if addresses:
            theirs |= {"host": addresses[0].host, "port": addresses[0].port, **_login(addresses[0])}
        if tls:
            theirs |= {name: file for name, file in zip(_TLS_FILES, tls, strict=True) if file is not None}
        if "connect_timeout" in common:
            theirs["socket_connect_timeout"] = common["connect_timeout"]
        given_login = {name: objects[name] for name in ("username", "password") if name in objects}
        return cls(
            scheme=where.scheme,
            known=sorted({**_EVERYWHERE, **known}),
            topology=topology,
            hosts=[(address.host, address.port) for address in addresses],
            logins=[_login(address) | given_login for address in addresses],
            service=common.get("service", "mymaster"),
            wire=_wire(common),
            encrypted=tls is not None,
            ours=ours,
            theirs=theirs | objects,
            sentinel_login={
                name: common[f"sentinel_{name}"]
                for name in ("username", "password")
                if f"sentinel_{name}" in common
            },
        )

    @classmethod
    def _like(
        cls,
        client: Any,
        where: LockURL,
        common: dict[str, Any],
        ours: dict[str, Any],
        others: dict[str, Any],
        known: list[str],
    ) -> "RedisURL":
        """What a client of redis-py says in the place of the URL."""
        if where.authority or where.path.strip("/") or where.scheme not in _REUSING:
            raise ValueError(
                f"redis= brings the address along: write {' or '.join(_REUSING)}:// and no more, "
                f"not {where.shown!r}"
            )
        for name in common.keys() & _BROUGHT_ALONG:
            raise ValueError(f"redis= brings {name} along: leave it out")
        if "connect_timeout" in common:
            others = {"socket_connect_timeout": common["connect_timeout"], **others}
        found = reused(client)
        return cls(
            scheme=where.scheme,
            known=known,
            topology=found.topology,
            hosts=found.hosts,
            logins=[{} for _ in found.hosts],
            service=found.service,
            wire=_wire(common),
            encrypted=found.encrypted,
            ours=ours,
            theirs=found.theirs | others,
            sentinel_login=found.sentinel_login,
        )

    def opener_to(self, host: str, port: int, **login: str) -> Opener:
        """Opens connections to one node, with everything else as the URL says.

        :raises ValueError: redis-py does not know one of the options.
        """
        try:
            return opener_for(self.theirs | login | {"host": host, "port": port})
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


def _wire(common: Mapping[str, Any]) -> WireOptions:
    return {
        "call_timeout": common.get("request_timeout", 5.0),
        "stay_awake": common.get("stay_awake", True),
    }


def _topology(where: LockURL, common: Mapping[str, Any]) -> str:
    if where.scheme.startswith("redlock"):
        return _INDEPENDENT
    topology: str = common.get("topology", "single")
    if topology not in _TOPOLOGIES:
        raise ValueError(f"topology must be one of {', '.join(_TOPOLOGIES)}, not {topology!r}")
    return topology


def _tls(where: LockURL, common: dict[str, Any]) -> TLS | None:
    if where.scheme.startswith("unix"):
        if TLS_OPTIONS.keys() & common.keys():
            raise ValueError(f"{where.scheme}:// does not leave the machine, and takes no certificates")
        return None
    return where.tls(_ENCRYPTED.get(where.scheme, where.scheme), common)


def _addresses(where: LockURL, topology: str) -> list[Address]:
    if where.scheme.startswith("unix"):
        return []
    addresses = where.addresses(26379 if topology == "sentinel" else 6379, "localhost")
    if not _DATABASE.fullmatch(where.path):
        raise ValueError(f"bad database in {where.shown!r}: it must be a number, as in redis://host/0")
    if topology == "single" and len(addresses) > 1:
        raise ValueError(
            f"{where.shown!r} names {len(addresses)} hosts: say ?topology=cluster or ?topology=sentinel"
        )
    if topology != _INDEPENDENT:
        where.one_login(addresses)
    return addresses


def _login(address: Address) -> dict[str, str]:
    login = {"username": address.user, "password": address.password}
    return {name: value for name, value in login.items() if value}


def _read_by_redis_py(where: LockURL, options: Mapping[str, str], *, encrypted: bool) -> dict[str, Any]:
    """What redis-py makes of the path and of the options that are not ours; a socket's path is its own."""
    unix = where.scheme.startswith("unix")
    start = f"unix://{where.authority}" if unix else "rediss://" if encrypted else "redis://"
    try:
        return dict(parse_url(f"{start}{where.path}?{urlencode(options)}"))
    except ValueError as error:
        raise ValueError(f"bad Redis URL {where.shown!r}: {error}") from None
