"""How a call went, in gRPC's terms: read from the trailers, or from what HTTP/2 did instead."""

from urllib.parse import unquote_to_bytes

import grpc

from asyncdlock.backends.etcd.transport.conversation import RpcFailed
from asyncdlock.backends.etcd.transport.frames import CANCEL, REFUSED_STREAM, Headers
from asyncdlock.backends.etcd.transport.sender import Http2Error

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OF_RESET = {
    CANCEL: grpc.StatusCode.CANCELLED,
    REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    11: grpc.StatusCode.RESOURCE_EXHAUSTED,
    12: grpc.StatusCode.PERMISSION_DENIED,
}


def of_trailers(trailers: Headers) -> RpcFailed | None:
    """What the server said of how it went; `None`: well."""
    told = dict(trailers)
    status = told.get(b"grpc-status")
    if status == b"0":
        return None
    if status is None:
        http = told.get(b":status", b"?").decode(errors="replace")
        return RpcFailed(grpc.StatusCode.UNAVAILABLE, f"an answer that is not gRPC's (HTTP status {http})")
    code = _CODES.get(int(status), grpc.StatusCode.UNKNOWN) if status.isdigit() else grpc.StatusCode.UNKNOWN
    said = unquote_to_bytes(told.get(b"grpc-message", b"")).decode(errors="replace")
    return RpcFailed(code, said)


def of_http2(error: Http2Error) -> RpcFailed:
    """What it means for the call that its stream or its connection broke."""
    code = grpc.StatusCode.UNAVAILABLE
    if error.code is not None:
        code = _OF_RESET.get(error.code, grpc.StatusCode.INTERNAL)
    return RpcFailed(code, str(error), unsent=error.unsent)
