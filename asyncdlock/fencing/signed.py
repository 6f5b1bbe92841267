"""Signed fences: a guard believes only numbers that the lock's side has signed for that key.

A fence is a number that any client can make up; one that writes 2^63-1 once shuts everybody else out for
ever. Whoever hands out locks, a service or a sidecar that holds the secret, signs key and fence; the guard
verifies before it compares. Clients carry the token and cannot make one.
"""

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from asyncdlock.errors import LockError
from asyncdlock.fencing._check import check_fence

_LEAST_SECRET = 16
_MOST_DIGITS = 19  # of 2^63-1; Python refuses to read numbers without end


class InvalidSignature(LockError):
    """The token was not signed for this key by a secret that is still valid."""


class FenceSigner:
    """Signs with the newest secret, verifies with every one that is still listed.

    `secrets` maps a name to a secret of at least 16 bytes, oldest first. To rotate: add the new one
    everywhere, then, once tokens of the old one are no longer in use, remove that.
    """

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        if not secrets:
            raise ValueError("at least one secret is needed to sign fences")
        for name, secret in secrets.items():
            if not name or "." in name:
                raise ValueError(f"a secret's name is not empty and has no dot, not {name!r}")
            if len(secret) < _LEAST_SECRET:
                raise ValueError(f"secret {name!r} is too short: it takes at least {_LEAST_SECRET} bytes")
        self._secrets = dict(secrets)
        self._newest = list(secrets)[-1]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """With the secrets of a file: a line for each, `NAME SECRET`, oldest first; `#` begins a comment.

        :raises ValueError: it cannot be read, or is no such file; the message shows no secret.
        """
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "this is not text"
            raise ValueError(f"the secrets in {os.fspath(path)!r} cannot be read: {reason}") from None
        secrets: dict[str, bytes] = {}
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or words[0] in secrets:
                raise ValueError(f"line {number} of {os.fspath(path)!r} is not a new NAME and its SECRET")
            secrets[words[0]] = words[1].encode()
        return cls(secrets)

    def __repr__(self) -> str:
        return f"FenceSigner({', '.join(self._secrets)})"

    def sign(self, key: str, fence: int) -> str:
        """The token `FENCE.NAME.SIGNATURE`, made of ASCII letters, digits, `-`, `_` and dots."""
        check_fence(fence)
        return f"{fence}.{self._newest}.{self._signature(self._newest, key, fence)}"

    def verify(self, key: str, token: str) -> int:
        """The fence, once its signature was found to be right.

        :raises InvalidSignature: it is not, or its secret is no longer known.
        """
        number, _, rest = token.partition(".")
        name, _, signature = rest.rpartition(".")
        is_number = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
        if not is_number or name not in self._secrets:
            raise InvalidSignature(f"the fencing token for {key!r} is not signed with a secret that is known")
        expected = self._signature(name, key, int(number))
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
            raise InvalidSignature(f"the fencing token for {key!r} was not signed for this key and fence")
        return int(number)

    def _signature(self, name: str, key: str, fence: int) -> str:
        # The length keeps key and number apart: no other pair has the same bytes.
        octets = key.encode("utf-8", "surrogatepass")
        message = b"asyncdlock fence 1\0%d\0%s\0%d" % (len(octets), octets, fence)
        digest = hmac.new(self._secrets[name], message, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
