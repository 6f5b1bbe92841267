"""Where a resource listens, as its URL says."""

from typing import NamedTuple
from urllib.parse import urlsplit

from asyncdlock.backend import redact

UNIX = "unix:"


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int
    path: str | None = None
    """Of a unix socket, instead of host and port."""
    tls: bool = False

    @classmethod
    def of(cls, url: str) -> "Address":
        """:raises ValueError: neither `http://host…`, `https://host…` nor `unix:PATH`."""
        if url.startswith(UNIX):
            return cls("localhost", 0, url.removeprefix(UNIX))
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError(f"bad host or port in the URL of the resource, {redact(url)!r}") from None
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError(
                f"the URL of the resource, {redact(url)!r}, must start with http:// or https:// and a host, "
                "or with unix:"
            )
        tls = parts.scheme == "https"
        return cls(host, port or (443 if tls else 80), tls=tls)
