"""Reads `zookeeper://[user:password@]host[:port],…[/chroot][?option=value…]`."""

import re
import ssl
from typing import Any
from urllib.parse import unquote, urlsplit

from asyncdlock import _options
from asyncdlock.backend import redact
from asyncdlock.backends.zookeeper.backend import FENCE_SCALE, ZooKeeperBackend
from asyncdlock.backends.zookeeper.session import Ensemble

_DEFAULT_PORT = 2181
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]\s]+))(?::(?P<port>\d{1,5}))?")


def from_url(url: str, **options: Any) -> ZooKeeperBackend:
    """The backend for `url`, unconnected. Options may stand in the URL's query or be given by name.

    `user`, `password`: digest credentials; nodes are then made for this user alone.
    `tls`: encrypt, and check the servers' certificates, by `ca_file` if given; `cert_file` and `key_file`
    are shown to servers that ask for a certificate of ours.
    `connect_timeout`: how long to look for a server, in seconds, 5 unless said otherwise.
    `containers`: let the server remove a key's node when its queue has been empty for a while, on by default.
    `local_queue`: tasks of this process share one place per key, on by default.
    `local_handoffs`: how often a process may pass a lock on before others get their turn, 0 by default;
    the whole fleet must agree on whether it is used (see docs/backends/zookeeper.md).

    :raises ValueError: malformed URL, unknown or invalid option.
    """
    parts = urlsplit(url)
    shown = redact(url)
    login, _, hosts = parts.netloc.rpartition("@")
    values: dict[str, Any] = {
        "user": unquote(login.partition(":")[0]),
        "password": unquote(login.partition(":")[2]),
    }
    values |= _options.read(_options.gather(parts.query, options), _OPTIONS, scheme=parts.scheme)
    user, password = values.pop("user"), values.pop("password")
    if bool(user) != bool(password):
        raise ValueError(f"{shown!r} needs both a user and a password: zookeeper://user:password@host")
    ensemble = Ensemble(
        hosts=[_host(host, shown) for host in hosts.split(",")],
        connect_timeout=values.pop("connect_timeout", 5.0),
        credentials=f"{user}:{password}" if user else None,
        tls=_tls(values),
    )
    return ZooKeeperBackend(ensemble, chroot=_chroot(parts.path, shown), **values)


def _host(text: str, url: str) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    port = int(match["port"] or _DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise ValueError(f"{url!r} must list its servers as host:port,host:port, but says {text!r}")
    return match["v6"] or match["name"], port


def _tls(values: dict[str, Any]) -> ssl.SSLContext | None:
    wanted = values.pop("tls", False)
    ca, cert, key = (values.pop(name, None) for name in ("ca_file", "cert_file", "key_file"))
    if not wanted:
        if ca or cert or key:
            raise ValueError("certificates are given, so say tls=true as well")
        return None
    if bool(cert) != bool(key):
        raise ValueError("a certificate of ours needs both cert_file and key_file")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key)
    except OSError as error:  # also what ssl raises
        raise ValueError(f"the certificates cannot be read: {error}") from None
    return context


def _chroot(path: str, url: str) -> str:
    chroot = unquote(path).rstrip("/")
    components = chroot.split("/")[1:]
    if any(component in ("", ".", "..") for component in components):
        raise ValueError(f"the path in {url!r} is no ZooKeeper path")
    return chroot


_OPTIONS: dict[str, _options.Reader] = {
    "ca_file": _options.path,
    "cert_file": _options.path,
    "connect_timeout": _options.seconds(),
    "containers": _options.flag,
    "key_file": _options.path,
    "local_handoffs": _options.count(most=FENCE_SCALE - 1),
    "local_queue": _options.flag,
    "password": _options.text,
    "tls": _options.flag,
    "user": _options.text,
}
