"""Lock URLs: the one reader of hosts, credentials and TLS for every backend, and what may be shown of a URL.

`scheme://[user:password@]host[:port],…[/path][?option=value…]`
"""

import re
import ssl
from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, unquote_plus

from asyncdlock import _options

_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.%-]+)?)\]|(?P<name>[^:\[\]\s]+))?(?::(?P<port>[^:\[\]]*))?"
)
_PORT = re.compile(r"[0-9]{1,5}")
_SECRET_OPTION = re.compile(r"([?&][^=&]*password[^=&]*=)[^&#]*", re.IGNORECASE)
# `password=…` as a word of its own, as in an option of a command or in `host=… password=…` of PostgreSQL.
_SECRET_WORD = re.compile(r"((?:^|[\s=:])\w*password\w*\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|[^\s&]+)", re.IGNORECASE)


class Address(NamedTuple):
    """One server, and who we are there."""

    host: str
    port: int
    user: str = ""
    password: str = ""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class LockURL(NamedTuple):
    """The parts of a URL as they are written; `shown` is all of it without passwords."""

    scheme: str
    authority: str
    path: str
    query: str
    shown: str

    @classmethod
    def split(cls, url: str) -> "LockURL":
        scheme, _, rest = url.partition("://")
        rest, _, _ = rest.partition("#")
        rest, _, query = rest.partition("?")
        authority, slash, path = rest.partition("/")
        return cls(scheme.lower(), authority, slash + path, query, redact(url.partition("?")[0]))

    def addresses(self, default_port: int, default_host: str = "") -> list[Address]:
        """The servers, in the order in which they are written.

        Credentials may precede each host, or only the first one and then count for all. `default_host` is
        used if there is no host at all.

        :raises ValueError: what is wrong, in one sentence.
        """
        logins, hosts = self._separated()
        if hosts == [""] and default_host:
            hosts = [default_host]
        found = []
        for login, text in zip(logins, hosts, strict=True):
            host, port = self._host_and_port(text, default_port, default_host if len(hosts) == 1 else "")
            user, _, password = login.partition(":")
            found.append(Address(host, port, unquote(user), unquote(password)))
        return found

    def one_login(self, addresses: Sequence[Address]) -> tuple[str, str]:
        """The user and the password that all `addresses` share.

        :raises ValueError: they differ.
        """
        logins = {(address.user, address.password) for address in addresses}
        if len(logins) > 1:
            raise ValueError(f"{self.shown!r} must have one login for all its hosts")
        return logins.pop()

    def _separated(self) -> tuple[list[str], list[str]]:
        """The login of each host, and the hosts."""
        parts = self.authority.split(",")
        logins = [part.rpartition("@")[0] for part in parts]
        hosts = [part.rpartition("@")[2] for part in parts]
        named = ["@" in part for part in parts]
        if all(named) or not any(named):
            return logins, hosts
        if named[0] and not any(named[1:]):
            return logins[:1] * len(hosts), hosts
        # There may be a comma in the one password.
        login, _, rest = self.authority.rpartition("@")
        start = parts[0].partition(":")[2]
        if named.count(True) > 1 or not start or _PORT.fullmatch(start) or "," in login.partition(":")[0]:
            raise ValueError(
                f"{self.shown!r}: credentials stand before each host, or before the first one alone"
            )
        hosts = rest.split(",")
        return [login] * len(hosts), hosts

    def _host_and_port(self, text: str, default_port: int, default_host: str) -> tuple[str, int]:
        match = _HOST.fullmatch(text)
        host = match and (match["v6"] or match["name"] or default_host)
        if not match or not host:
            # What stands there is not shown: it may be a part of a password.
            raise ValueError(
                f"bad host in {self.shown!r}: something in it is not a host; "
                f"write {self.scheme}://host:port,host:port"
            )
        port = match["port"] if match["port"] is not None else str(default_port)
        if not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
            raise ValueError(f"bad port in {self.shown!r}: something in it is not a port number of 1..65535")
        return unquote(host), int(port)

    def tls(self, secure: str, values: MutableMapping[str, Any]) -> "TLS | None":
        """What the scheme and the options `tls`, `ca_file`, `cert_file` and `key_file` say; takes them out.

        `secure` is the scheme that says it.

        :raises ValueError: they contradict each other.
        """
        wanted = values.pop("tls", None)
        files = TLS(*(values.pop(name, None) for name in TLS._fields))
        if wanted is False and self.scheme == secure:
            raise ValueError(f"{secure}:// is encrypted, but tls is off")
        if not wanted and self.scheme != secure:
            if any(files):
                raise ValueError(f"{self.shown!r}: certificates are given, so write {secure}:// or tls=true")
            return None
        if bool(files.cert_file) != bool(files.key_file):
            raise ValueError(f"{self.shown!r}: a certificate of ours needs both cert_file and key_file")
        return files


class TLS(NamedTuple):
    """Files for an encrypted connection: whom we trust, and what we show to a server that asks."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """One that checks the server's certificate, and its name.

        :raises ValueError: a file cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # also what ssl raises
            raise ValueError(f"the certificates cannot be read: {error}") from None
        return context


TLS_OPTIONS: dict[str, _options.Reader] = {
    "ca_file": _options.path,
    "cert_file": _options.path,
    "key_file": _options.path,
    "tls": _options.flag,
}


def take_from_query(url: str, *names: str) -> tuple[str, dict[str, str]]:
    """The URL without the options of these names, and the values of those options."""
    start, question, query = url.partition("?")
    parts = [(part, part.partition("=")[0]) for part in query.split("&")]
    if not question or not any(name in names for _, name in parts):
        return url, {}
    left = "&".join(part for part, name in parts if name not in names)
    found = {name: unquote_plus(part.partition("=")[2]) for part, name in parts if name in names}
    return start + question * bool(left) + left, found


def redact(url: str) -> str:
    """The URL without its passwords, fit for messages and logs.

    It errs on the side of hiding: a URL is mostly shown because something is wrong with it, and a
    password with an unquoted `/` or `?`, or one without a host behind it, is such a thing.
    """
    shown = _SECRET_WORD.sub(r"\1***", _SECRET_OPTION.sub(r"\1***", url))
    scheme, found, rest = shown.partition("://")
    if not found:
        scheme, rest = "", scheme
    credentials, at, place = rest.rpartition("@")
    if at:
        user, colon, _ = credentials.partition(":")
        return f"{scheme}{found}{user}{':***' if colon else ''}@{place}"
    if not found:
        return rest
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    hosts = ",".join(_without_word_for_port(address) for address in authority.split(","))
    return f"{scheme}{found}{hosts}{rest[len(authority) :]}"


def _without_word_for_port(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return address if not colon or port.isdigit() or address.endswith("]") else f"{host}:***"
