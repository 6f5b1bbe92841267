"""Reads a request's key and headers, or says in one sentence what is wrong with them."""

import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from aiohttp.http import HttpVersion, HttpVersion10, HttpVersion11
from multidict import CIMultiDictProxy, istr

from asyncdlock.fencing.signed import FenceSigner, InvalidSignature
from asyncdlock.types import MAX_KEY_BYTES
from harness.resource.decision import MAX_INTEGER

Headers = CIMultiDictProxy[str]

# Spelled once: looking a header up by `istr` skips folding its case on every request.
FENCE_TOKEN = istr("X-Fence-Token")
FENCE_SEQ = istr("X-Fence-Seq")
FENCE_OWNER = istr("X-Fence-Owner")
FENCE_REPEAT = istr("X-Fence-Repeat")
"""Of a write that may have been accepted before: a refusal then always says in `yours` whether it was."""
MAX_FENCE = istr("X-Max-Fence")
IF_MATCH = istr("If-Match")
IF_NONE_MATCH = istr("If-None-Match")
ETAG = istr("ETag")
TRANSFER_ENCODING = istr("Transfer-Encoding")

MAX_OWNER_CHARS = 256

# What a host may look like, percent-encoding and IPv6 included; a port may follow.
_AUTHORITY = re.compile(r"(?:[A-Za-z0-9._~%!$&'()*+,;=@:-]|\[[0-9A-Fa-f:.%]+\])+", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_VERSION_TAG = re.compile(r'"([1-9][0-9]{0,18})"', re.ASCII)


class BadRequest(Exception):
    """Answered with `status` and the message; nothing was stored."""

    def __init__(self, message: str, *, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def parse_key(encoded: str) -> str:
    """The key from the rest of the path, percent-encoded or not; slashes belong to it.

    :raises BadRequest: empty, longer than a lock's key may be, with NUL, or not UTF-8.
    """
    raw = unquote_to_bytes(encoded.encode("utf-8", "surrogateescape"))
    if not raw:
        raise BadRequest("the key is empty")
    if len(raw) > MAX_KEY_BYTES:
        raise BadRequest(f"the key is longer than {MAX_KEY_BYTES} bytes")
    if 0 in raw:
        raise BadRequest("the key contains NUL")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise BadRequest("the key is not UTF-8") from None


def parse_token(headers: Headers) -> int:
    """The fencing token; 0 if there is none.

    :raises BadRequest: it is not a whole number of 1 to 2^63-1.
    """
    token = _number(headers, FENCE_TOKEN, lowest=1)
    return 0 if token is None else token


def parse_signed_token(headers: Headers, key: str, signer: FenceSigner) -> int:
    """The fencing token, once its signature for `key` was found to be right; 0 if there is none.

    :raises BadRequest: it is not signed, or not for this key.
    """
    token = _single(headers, FENCE_TOKEN)
    if token is None:
        return 0
    try:
        return signer.verify(key, token)
    except InvalidSignature as error:
        raise BadRequest(str(error), status=403) from None


def parse_seq(headers: Headers) -> int:
    """Which of its holder's writes this is.

    :raises BadRequest: it is not a whole number of 0 to 2^63-1.
    """
    seq = _number(headers, FENCE_SEQ, lowest=0)
    return 0 if seq is None else seq


def parse_expected_version(headers: Headers) -> int | None:
    """The version that `If-Match` names, 0 for `If-None-Match: *` (no value yet), or None.

    :raises BadRequest: either says anything else, or both are there.
    """
    match, none_match = _single(headers, IF_MATCH), _single(headers, IF_NONE_MATCH)
    if match is None and none_match is None:
        return None
    if match is not None and none_match is not None:
        raise BadRequest("If-Match and If-None-Match exclude each other")
    if match is None:
        if none_match != "*":
            raise BadRequest("If-None-Match must be *")
        return 0
    tag = _VERSION_TAG.fullmatch(match)
    if tag is None or int(tag[1]) > MAX_INTEGER:
        raise BadRequest('If-Match must be one ETag of this key, such as "7"')
    return int(tag[1])


def parse_owner(headers: Headers) -> str | None:
    """Who writes, for the log alone.

    :raises BadRequest: it is too long, or not text.
    """
    owner = _single(headers, FENCE_OWNER)
    if owner is not None and not (len(owner) <= MAX_OWNER_CHARS and owner.isprintable()):
        raise BadRequest(f"{FENCE_OWNER} must be at most {MAX_OWNER_CHARS} printable characters")
    return owner


def parse_target(target: str) -> tuple[str, str]:
    """The path and the query of a request's target, in origin form (`/r/a`) or absolute form.

    Nothing else is made of the target: a host in it is not ours to judge.

    :raises BadRequest: it is neither.
    """
    if not target.startswith("/"):
        scheme, found, rest = target.partition("://")
        if not found or scheme.lower() not in ("http", "https"):
            raise BadRequest("the target of the request is no path")
        authority, slash, path = rest.partition("/")
        if not _AUTHORITY.fullmatch(authority):
            raise BadRequest("the host in the target of the request is malformed")
        target = slash + path or "/"
    if "#" in target:
        raise BadRequest("a target has no fragment: # in a key is written %23")
    path, mark, query = target.partition("?")
    return path, mark + query


def check_framing(version: HttpVersion, headers: Headers) -> None:
    """Refuse what would be stored as something else than was meant.

    :raises BadRequest: another version of HTTP, or a transfer coding that is not undone here.
    """
    if version != HttpVersion11 and version != HttpVersion10:
        raise BadRequest("use HTTP/1.1", status=505)
    coding = headers.get(TRANSFER_ENCODING)
    if coding is not None and coding.strip().lower() != "chunked":
        raise BadRequest(f"the transfer coding {coding!r} is not supported, only chunked is", status=501)


def _number(headers: Headers, name: str, *, lowest: int) -> int | None:
    value = _single(headers, name)
    if value is None:
        return None
    if _NUMBER.fullmatch(value):
        number = int(value)
        if lowest <= number <= MAX_INTEGER:
            return number
    raise BadRequest(f"{name} must be one whole number from {lowest} to {MAX_INTEGER}")


def _single(headers: Headers, name: str) -> str | None:
    """Two tokens in one request have no meaning, and proxies disagree about which one counts."""
    value = headers.get(name)
    if value is not None and len(headers.getall(name)) > 1:
        raise BadRequest(f"{name} must come once")
    return value
