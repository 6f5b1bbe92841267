"""Throw-away certificates for servers on loopback, made by the `openssl` program."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.servers.errors import ServerMissing

Tls = Literal["server", "mutual"]
"""`server`: clients check the server's certificate. `mutual`: the server asks for theirs as well."""

# What Python's strict verification asks of a chain (RFC 5280), and both roles for one key pair.
_CA_EXTENSIONS = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
_LEAF_EXTENSIONS = """\
subjectAltName = IP:127.0.0.1, DNS:localhost
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
_NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files: an authority, and one key pair for servers and clients alike."""

    ca: Path
    cert: Path
    key: Path

    def client_context(self) -> ssl.SSLContext:
        """Trusts the authority and shows the certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.cert, self.key)
        return context


def make_certificates(folder: Path) -> Certificates:
    """A new authority, and a certificate for 127.0.0.1 and localhost, valid for a week.

    :raises ServerMissing: there is no `openssl` program.
    """
    ca, ca_key = folder / "ca.pem", folder / "ca.key"
    cert, key = folder / "cert.pem", folder / "key.pem"
    request, extensions = folder / "request.pem", folder / "extensions.cnf"
    extensions.write_text(_LEAF_EXTENSIONS)
    week = ["-days", "7"]
    added = [word for extension in _CA_EXTENSIONS for word in ("-addext", extension)]
    _openssl(
        ["req", "-x509", *_NEW_KEY, *week, *added, "-subj", "/CN=asyncdlock test authority"],
        ["-keyout", ca_key, "-out", ca],
    )
    # No common name: etcd would take it for a user's.
    _openssl(["req", *_NEW_KEY, "-subj", "/O=asyncdlock test"], ["-keyout", key, "-out", request])
    _openssl(
        ["x509", "-req", *week, "-set_serial", "1"],
        ["-in", request, "-CA", ca, "-CAkey", ca_key, "-extfile", extensions, "-out", cert],
    )
    return Certificates(ca, cert, key)


def _openssl(words: list[str], files: list[str | Path]) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise ServerMissing(
            "No openssl program on PATH: servers with TLS need it for their certificates (Debian: openssl)."
        )
    subprocess.run([program, *words, *files], check=True, capture_output=True)
