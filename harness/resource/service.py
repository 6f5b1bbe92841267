"""The HTTP service: reads requests, asks the store, writes answers. It decides nothing itself."""

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from harness.clock import now
from harness.resource.decision import Fencing, Outcome, Write
from harness.resource.metrics import CONTENT_TYPE, Metrics
from harness.resource.requests import (
    ETAG,
    FENCE_SEQ,
    FENCE_TOKEN,
    MAX_FENCE,
    BadRequest,
    parse_expected_version,
    parse_key,
    parse_owner,
    parse_seq,
    parse_token,
)
from harness.resource.store import Found, LogRow, Store, StoreError, Written

_NANOSECONDS = 1e9
_STALE = "stale fencing token"
_encode = json.JSONEncoder(separators=(",", ":")).encode  # `json.dumps` would build one each time


class Service:
    """Handles every request of an `aiohttp.web.Server`.

    The low-level server and a few comparisons of paths instead of an application with a router:
    that is a fifth less CPU per request, and the resource must not be what bounds a run.
    """

    def __init__(
        self, store: Store, fencing: Fencing, *, store_kind: str, max_body: int, client_timeout: float
    ) -> None:
        self._store = store
        self._fencing = fencing
        self._max_body = max_body
        self._client_timeout = client_timeout
        self._metrics = Metrics()
        self._health = {"status": "ok", "fence": fencing.value, "store": store_kind, "pid": os.getpid()}
        self._openapi = Path(__file__).with_name("openapi.json").read_bytes()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Every refusal and failure is a JSON answer."""
        path = request.rel_url.raw_path
        try:
            if path.startswith("/r/"):
                if request.method == "PUT":
                    return await self._put(request, path[3:])
                _allow(request, "GET, HEAD, PUT", but=request.method in ("GET", "HEAD"))
                return await self._get(request, path[3:])
            return await self._other(request, path)
        except BadRequest as bad:
            response = _json({"error": str(bad)}, status=bad.status, headers=bad.headers)
            if bad.status in (408, 413):
                response.force_close()  # the rest of the body is not wanted
            return response
        except StoreError as failure:
            return _json({"error": str(failure)}, status=503)

    async def _put(self, request: web.BaseRequest, encoded_key: str) -> web.Response:
        started = now()
        metrics = self._metrics
        headers = request.headers
        try:
            key = parse_key(encoded_key)
            token = parse_token(headers)
            if not token and self._fencing is not Fencing.OFF:
                raise BadRequest(f"{FENCE_TOKEN} is missing")
            seq = parse_seq(headers)
            expected = parse_expected_version(headers)
            owner = parse_owner(headers)
            body = await self._body(request)
        except BadRequest:
            metrics.invalid_writes.inc()
            raise
        try:
            written = await self._store.write(
                Write(key, token, seq, body, digest(body), started, expected, owner)
            )
        except StoreError:
            metrics.failed_writes.inc()
            raise
        outcome = written.outcome
        metrics.writes[outcome].inc()
        if outcome is Outcome.STALE:
            metrics.stale.inc()
        metrics.write_seconds.observe((now() - started) / _NANOSECONDS)
        if outcome is Outcome.ACCEPTED:
            return web.Response(
                body=b'{"version":%d}' % written.version,
                content_type="application/json",
                headers={ETAG: f'"{written.version}"'},
            )
        return _refusal(written, token, seq if FENCE_SEQ in headers else None)

    async def _get(self, request: web.BaseRequest, encoded_key: str) -> web.Response:
        started = now()
        metrics = self._metrics
        key = parse_key(encoded_key)
        token = parse_token(request.headers)
        found = await self._store.read(key, token)
        metrics.read_seconds.observe((now() - started) / _NANOSECONDS)
        if found.stale:
            metrics.stale.inc()
            metrics.stale_reads.inc()
            return _json({"error": _STALE, "seen": found.mark.token, "got": token}, status=409)
        seen: dict[str, str] = {MAX_FENCE: str(found.mark.token)}
        if found.body is None:
            metrics.missing_reads.inc()
            answer = {"error": "no such key", "key": key, "max_fence": found.mark.token}
            return _json(answer, status=404, headers=seen)
        metrics.found_reads.inc()
        seen[ETAG] = f'"{found.version}"'
        if found.token:
            seen[FENCE_TOKEN] = str(found.token)
            seen[FENCE_SEQ] = str(found.seq)
        if "application/json" in request.headers.get("Accept", ""):
            return _json(_described(key, found, found.body), headers=seen)
        return web.Response(body=found.body, content_type="application/octet-stream", headers=seen)

    async def _other(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        if path not in ("/healthz", "/metrics", "/openapi.json", "/log"):
            raise BadRequest(f"no such path: {path}; a value is at /r/KEY", status=404)
        _allow(request, "GET", but=request.method == "GET")
        if path == "/healthz":
            await self._store.check()
            return _json(self._health)
        if path == "/metrics":
            return web.Response(body=self._metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})
        if path == "/openapi.json":
            return web.Response(body=self._openapi, content_type="application/json")
        return await self._log(request)

    async def _log(self, request: web.BaseRequest) -> web.StreamResponse:
        text = request.rel_url.query.get("after", "0")
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise BadRequest("after must be the seq of a row, or 0")
        pages = self._store.log(int(text))
        page = await anext(pages, None)
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        try:
            await response.prepare(request)
            while page is not None:
                await response.write(b"".join(map(_line, page)))
                page = await anext(pages, None)
            await response.write_eof()
        except (StoreError, ConnectionError):
            # Too late for a status. Without its last chunk nobody takes half a log for a whole one.
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _body(self, request: web.BaseRequest) -> bytes:
        content = request.content
        if content.is_eof():
            body = content.read_nowait(-1)
        elif (request.content_length or 0) > self._max_body:
            raise self._too_large()
        else:
            body = await self._slow_body(request)
        if len(body) > self._max_body:
            raise self._too_large()
        return body

    async def _slow_body(self, request: web.BaseRequest) -> bytes:
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._client_timeout):
                while part := await request.content.readany():
                    parts.append(part)
                    size += len(part)
                    if size > self._max_body:
                        raise self._too_large()
        except TimeoutError:
            raise BadRequest("the body did not arrive in time", status=408) from None
        except (ConnectionError, web.RequestPayloadError):
            raise BadRequest("the body is incomplete") from None
        return b"".join(parts)

    def _too_large(self) -> BadRequest:
        return BadRequest(f"the body is larger than {self._max_body} bytes", status=413)


def digest(body: bytes) -> str:
    """How log and history name a body without keeping it: 16 bytes of BLAKE2b, in hex."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _refusal(written: Written, token: int, seq: int | None) -> web.Response:
    if written.outcome is Outcome.CONFLICT:
        answer: dict[str, object] = {"error": "version mismatch", "version": written.version}
        return _json(answer, status=412, headers={ETAG: f'"{written.version}"'} if written.version else None)
    answer = {"error": _STALE, "seen": written.mark.token, "got": token}
    if seq is not None:
        answer |= {"seen_seq": written.mark.seq, "got_seq": seq}
    if written.outcome is Outcome.REPEATED:
        answer["yours"] = True
    return _json(answer, status=409)


def _described(key: str, found: Found, body: bytes) -> dict[str, object]:
    try:
        value, encoding = body.decode(), "utf-8"
    except UnicodeDecodeError:
        value, encoding = base64.b64encode(body).decode(), "base64"
    return {
        "key": key,
        "value": value,
        "encoding": encoding,
        "fence": found.token,
        "seq": found.seq,
        "max_fence": found.mark.token,
        "version": found.version,
    }


def _line(row: LogRow) -> bytes:
    fields = dict(zip(LogRow._fields, row, strict=True))
    return _encode(fields | {"accepted": row.outcome == Outcome.ACCEPTED.value}).encode() + b"\n"


def _allow(request: web.BaseRequest, methods: str, *, but: bool) -> None:
    if not but:
        raise BadRequest(f"{request.method} is not allowed here", status=405, headers={"Allow": methods})


def _json(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=_encode(body).encode(),
        status=status,
        content_type="application/json",
        headers=headers,
    )
