"""Where a resource listens, as its URL says."""

from typing import NamedTuple
from urllib.parse import urlsplit

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
        """:raises ValueError: neither `http://…`, `https://…` nor `unix:PATH`."""
        if url.startswith(UNIX):
            return cls("localhost", 0, url.removeprefix(UNIX))
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"a URL of the resource begins with http://, https:// or unix:, not {url!r}")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls=tls)
