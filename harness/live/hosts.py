"""Which requests a loopback port answers: those that a browser addresses to this machine by its own name.

A page of another site may have its name resolved to 127.0.0.1 and then reads what is served there as its own
(DNS rebinding). The Host header still carries that site's name.
"""

import ipaddress
import re

MISDIRECTED = 421
REFUSAL = "421: this port answers to localhost and to loopback addresses only\n"

_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[^:\[\]]+))(?::[0-9]{1,5})?", re.ASCII)


def is_local(host: str | None) -> bool:
    """Does a Host header name this machine's loopback? Programs other than browsers may leave it out."""
    if host is None:
        return True
    match = _HOST.fullmatch(host.strip())
    if match is None:
        return False
    name = match["ipv6"] or match["host"].lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
