"""HTTP/2's frames and header blocks as bytes. RFC 9113 and RFC 7541; pure."""

import struct
from collections.abc import Sequence

Headers = Sequence[tuple[bytes, bytes]]

DATA, HEADERS, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    *(0, 1, 3, 4, 5, 6, 7, 8, 9),
)
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20
REFUSED_STREAM, CANCEL = 7, 8
ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, FRAME_SIZE = 2, 3, 4, 5
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEAD = struct.Struct(">BHBBL")
"""Of a frame: its length in two parts, kind, flags, stream."""
SETTING = struct.Struct(">HL")
NUMBER = struct.Struct(">L")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One frame."""
    size = len(payload)
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def header_block(headers: Headers) -> bytes:
    """`headers` as literals that enter no table: the same bytes whenever they are sent."""
    block = bytearray()
    for name, value in headers:
        block += b"\0" + _length(name) + name + _length(value) + value
    return bytes(block)


def _length(text: bytes) -> bytes:
    """An HPACK integer with a prefix of seven bits; not Huffman coded."""
    size = len(text)
    if size < 0x7F:
        return bytes((size,))
    size -= 0x7F
    out = bytearray(b"\x7f")
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)
    return bytes(out)
