"""The HTTP service: reads requests, asks the store, writes answers. It decides nothing itself."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qsl

from aiohttp import web

from asyncdlock.fencing.signed import FenceSigner
from harness.history.rows import digest
from harness.load.clock import now
from harness.resource.answers import JSON, LAST, Answers, encode
from harness.resource.decision import MAX_INTEGER, Fencing, Outcome, Write
from harness.resource.limits import Limits
from harness.resource.metrics import CONTENT_TYPE, Metrics
from harness.resource.requests import (
    ETAG,
    FENCE_REPEAT,
    FENCE_SEQ,
    FENCE_TOKEN,
    MAX_FENCE,
    BadRequest,
    Headers,
    check_framing,
    parse_expected_version,
    parse_key,
    parse_owner,
    parse_seq,
    parse_signed_token,
    parse_target,
    parse_token,
)
from harness.resource.store import Found, LogRow, Store, StoreError, Written

_NANOSECONDS = 1e9
_STALE = "stale fencing token"
_HEALTH_WITHIN = 2.0
LOG_FROM = "X-Log-From"
"""The header of /log with the smallest number that has not been dropped."""


class Service:
    """Handles every request of an `aiohttp.web.Server`.

    The low-level server and a few comparisons of paths instead of an application with a router:
    that is a fifth less CPU per request, and the resource must not be what bounds a run.
    """

    def __init__(
        self,
        store: Store,
        fencing: Fencing,
        *,
        store_kind: str,
        limits: Limits,
        signer: FenceSigner | None = None,
    ) -> None:
        self.answers = Answers(timeout=limits.client_timeout, max_buffered=limits.max_buffered)
        self._store = store
        self._fencing = fencing
        self._signer = signer
        self._limits = limits
        self._buffered = 0
        self._metrics = Metrics()
        self._health = {"status": "ok", "fence": fencing.value, "store": store_kind, "pid": os.getpid()}
        self._openapi = Path(__file__).with_name("openapi.json").read_bytes()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request. Every refusal and failure is a JSON answer."""
        try:
            try:
                check_framing(request.version, request.headers)
                path, query = parse_target(request.raw_path)
                if not path.startswith("/r/"):
                    return await self._other(request, path, query)
                if query:
                    raise BadRequest("a key takes no query: ? in a key is written %3F")
                if request.method == "PUT":
                    return await self._put(request, path[3:])
                _allow(request, "GET, HEAD, PUT", but=request.method in ("GET", "HEAD"))
                return await self._get(request, path[3:])
            except BadRequest as bad:
                # Behind any of these the rest of the body, or of the connection, is not wanted.
                close = bad.status in (408, 413, 501, 503, 505)
                return await self.answers.json(
                    request, {"error": str(bad)}, status=bad.status, headers=bad.headers, close=close
                )
            except StoreError as failure:
                return await self.answers.json(request, {"error": str(failure)}, status=503)
        except ConnectionError:
            return LAST

    async def _put(self, request: web.BaseRequest, encoded_key: str) -> web.StreamResponse:
        started = now()
        metrics = self._metrics
        headers = request.headers
        try:
            key = parse_key(encoded_key)
            token = self._token(headers, key)
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
            return await self.answers.accepted(request, written.version)
        if outcome is Outcome.CONFLICT:
            answer: dict[str, object] = {"error": "version mismatch", "version": written.version}
            tag: dict[str, str] = {ETAG: f'"{written.version}"'} if written.version else {}
            return await self.answers.json(request, answer, status=412, headers=tag)
        answer = _refusal(written, token, seq if FENCE_SEQ in headers else None)
        if FENCE_REPEAT in headers:
            answer.setdefault("yours", False)
        return await self.answers.json(request, answer, status=409)

    async def _get(self, request: web.BaseRequest, encoded_key: str) -> web.StreamResponse:
        started = now()
        metrics = self._metrics
        key = parse_key(encoded_key)
        token = self._token(request.headers, key)
        found = await self._store.read(key, token)
        metrics.read_seconds.observe((now() - started) / _NANOSECONDS)
        send = self.answers.json
        if found.stale:
            metrics.stale.inc()
            metrics.stale_reads.inc()
            answer = {"error": _STALE, "seen": found.mark.token, "got": token}
            return await send(request, answer, status=409)
        seen: dict[str, str] = {MAX_FENCE: str(found.mark.token)}
        if found.body is None:
            metrics.missing_reads.inc()
            answer = {"error": "no such key", "key": key, "max_fence": found.mark.token}
            return await send(request, answer, status=404, headers=seen)
        metrics.found_reads.inc()
        seen[ETAG] = f'"{found.version}"'
        if found.token:
            seen[FENCE_TOKEN] = str(found.token)
            seen[FENCE_SEQ] = str(found.seq)
        if JSON in request.headers.get("Accept", ""):
            return await send(request, _described(key, found, found.body), headers=seen)
        return await self.answers.send(request, found.body, "application/octet-stream", headers=seen)

    def _token(self, headers: Headers, key: str) -> int:
        signer = self._signer
        return parse_token(headers) if signer is None else parse_signed_token(headers, key, signer)

    async def _other(self, request: web.BaseRequest, path: str, query: str) -> web.StreamResponse:
        if path not in ("/healthz", "/metrics", "/openapi.json", "/log"):
            raise BadRequest(f"no such path: {path[:200]}; a value is at /r/KEY", status=404)
        _allow(request, "GET", but=request.method == "GET")
        if path == "/healthz":
            try:
                async with asyncio.timeout(_HEALTH_WITHIN):
                    await self._store.check()
            except TimeoutError:
                raise StoreError(f"the store took no write within {_HEALTH_WITHIN:g} s") from None
            return await self.answers.json(request, self._health)
        if path == "/metrics":
            return await self.answers.send(request, self._metrics.exposition(), CONTENT_TYPE)
        if path == "/openapi.json":
            return await self.answers.send(request, self._openapi, JSON)
        return await self._log(request, query)

    async def _log(self, request: web.BaseRequest, query: str) -> web.StreamResponse:
        after, left = _range(query)
        log_from = await self._store.log_from()
        pages = self._store.log(after)
        first = await anext(pages, None)  # a store that fails at once still gets a status

        async def lines() -> AsyncIterator[bytes]:
            page, rows = first, left
            while page is not None and rows:
                yield b"".join(map(_line, page[:rows]))
                rows -= min(len(page), rows)
                page = await anext(pages, None) if rows else None

        try:
            return await self.answers.stream(
                request, lines(), "application/x-ndjson", headers={LOG_FROM: str(log_from)}
            )
        except StoreError:
            return LAST

    async def _body(self, request: web.BaseRequest) -> bytes:
        content = request.content
        if content.is_eof():
            body = content.read_nowait(-1)
        elif (request.content_length or 0) > self._limits.max_body:
            raise self._too_large()
        else:
            body = await self._slow_body(request)
        if len(body) > self._limits.max_body:
            raise self._too_large()
        return body

    async def _slow_body(self, request: web.BaseRequest) -> bytes:
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.client_timeout):
                while part := await request.content.readany():
                    parts.append(part)
                    size += len(part)
                    self._buffered += len(part)
                    if size > self._limits.max_body:
                        raise self._too_large()
                    if self._buffered > self._limits.max_buffered:
                        raise BadRequest("too many bodies are unfinished; try again", status=503)
        except TimeoutError:
            raise BadRequest("the body did not arrive in time", status=408) from None
        except (ConnectionError, web.RequestPayloadError):
            raise BadRequest("the body is incomplete") from None
        finally:
            self._buffered -= size
        return b"".join(parts)

    def _too_large(self) -> BadRequest:
        return BadRequest(f"the body is larger than {self._limits.max_body} bytes", status=413)


def _refusal(written: Written, token: int, seq: int | None) -> dict[str, object]:
    answer: dict[str, object] = {"error": _STALE, "seen": written.mark.token, "got": token}
    if seq is not None:
        answer |= {"seen_seq": written.mark.seq, "got_seq": seq}
    if written.outcome is Outcome.REPEATED:
        answer["yours"] = True
    elif not written.certain:
        answer["yours"] = None
    return answer


def _range(query: str) -> tuple[int, int]:
    """The numbers behind `?after=` and `&limit=`: from the first row, and all of them, unless told."""
    told = {"after": 0, "limit": MAX_INTEGER}
    pairs = parse_qsl(query[1:], keep_blank_values=True)
    for name, text in pairs:
        if name not in told or not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise BadRequest("the log takes ?after= with the seq of a row, or 0, and &limit= with a number")
        told[name] = int(text)
    if len(pairs) != len(dict(pairs)):
        raise BadRequest("after and limit must come once each")
    return told["after"], told["limit"]


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
    return encode(fields | {"accepted": row.outcome == Outcome.ACCEPTED.value}) + b"\n"


def _allow(request: web.BaseRequest, methods: str, *, but: bool) -> None:
    if not but:
        raise BadRequest(f"{request.method} is not allowed here", status=405, headers={"Allow": methods})
