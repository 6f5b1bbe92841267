"""Reads `zookeeper[s]://[user:password@]host[:port],…[/chroot][?option=value…]`."""

from typing import Any
from urllib.parse import unquote

from asyncdlock import _options
from asyncdlock._url import TLS_OPTIONS, LockURL
from asyncdlock.backends.zookeeper.backend import FENCE_SCALE, ZooKeeperBackend
from asyncdlock.backends.zookeeper.session import Ensemble

_DEFAULT_PORT = 2181


def from_url(url: str, **options: Any) -> ZooKeeperBackend:
    """The backend for `url`, unconnected. Options may stand in the URL's query or be given by name.

    `user`, `password`: digest credentials; nodes are then made for this user alone.
    `tls`, or `zookeepers://`: encrypt, and check the servers' certificates, by `ca_file` if given;
    `cert_file` and `key_file` are shown to servers that ask for a certificate of ours.
    `connect_timeout`: how long to look for a server, in seconds, 5 unless said otherwise.
    `containers`: let the server remove a key's node when its queue has been empty for a while, on by default.
    `local_queue`: tasks of this process share one place per key, on by default.
    `local_handoffs`: how often a process may pass a lock on before others get their turn, 0 by default;
    the whole fleet must agree on whether it is used (see docs/backends/zookeeper.md).

    :raises ValueError: malformed URL, unknown or invalid option.
    """
    where = LockURL.split(url)
    addresses = where.addresses(_DEFAULT_PORT)
    user, password = where.one_login(addresses)
    values = _options.read(_options.gather(where.query, options), _OPTIONS, scheme=where.scheme)
    user, password = values.pop("user", user), values.pop("password", password)
    if bool(user) != bool(password):
        raise ValueError(f"{where.shown!r} needs both a user and a password: zookeeper://user:password@host")
    tls = where.tls("zookeepers", values)
    ensemble = Ensemble(
        hosts=[(address.host, address.port) for address in addresses],
        connect_timeout=values.pop("connect_timeout", 5.0),
        credentials=f"{user}:{password}" if user else None,
        tls=tls and tls.context(),
    )
    return ZooKeeperBackend(ensemble, chroot=_chroot(where.path, where.shown), **values)


def _chroot(path: str, url: str) -> str:
    chroot = unquote(path).rstrip("/")
    components = chroot.split("/")[1:]
    if any(component in ("", ".", "..") for component in components):
        raise ValueError(f"the path in {url!r} is no ZooKeeper path")
    return chroot


_OPTIONS: dict[str, _options.Reader] = {
    **TLS_OPTIONS,
    "connect_timeout": _options.seconds(),
    "containers": _options.flag,
    "local_handoffs": _options.count(most=FENCE_SCALE - 1),
    "local_queue": _options.flag,
    "password": _options.text,
    "user": _options.text,
}
