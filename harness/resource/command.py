"""`python -m harness resource`: runs the fenced resource until SIGTERM or SIGINT."""

import argparse
import asyncio
import errno
import logging
import re
import signal

from aiohttp import web
from aiohttp.http import HttpProcessingError

from asyncdlock.backend import redact
from harness.config import UsageError
from harness.durations import parse_positive_duration
from harness.resource.decision import MAX_INTEGER, Fencing
from harness.resource.service import Service
from harness.resource.store import Store, StoreError, open_store

_MAX_BODY = 1 << 20
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65_535
_SHUTDOWN_SECONDS = 5.0
_LINGER_SECONDS = 5.0
_BACKLOG = 4096  # a thousand contenders may connect in the same millisecond


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="where to listen; port 0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--store",
        default="sqlite:resource.db",
        metavar="STORE",
        help="memory, sqlite:PATH, sqlite:PATH?sync=full or postgres:DSN (default: %(default)s)",
    )
    parser.add_argument(
        "--fence",
        choices=[mode.value for mode in Fencing],
        default=Fencing.ON.value,
        help="what to enforce: every operation that carries a token, writes only, or nothing "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--log",
        choices=["on", "off"],
        default="on",
        help="keep every decided write for GET /log (default: %(default)s)",
    )
    parser.add_argument(
        "--max-body",
        type=_positive,
        default=_MAX_BODY,
        metavar="BYTES",
        help="the largest value (default: %(default)s)",
    )
    parser.add_argument(
        "--client-timeout",
        type=_duration,
        default=30.0,
        metavar="DURATION",
        help="how long a client may take over its headers, and again over its body (default: 30s)",
    )


async def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, then finish what is in flight. Returns the exit code.

    :raises UsageError: it cannot listen there, or not use that store.
    """
    address = _parse_address(args.listen)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        store = await open_store(args.store, Fencing(args.fence), log=args.log == "on")
    except StoreError as error:
        raise UsageError(str(error)) from error
    try:
        await _serve(args, store, address, stop)
    finally:
        await store.aclose()
    return 0


async def _serve(
    args: argparse.Namespace, store: Store, address: tuple[str, int], stop: asyncio.Event
) -> None:
    service = Service(
        store,
        Fencing(args.fence),
        store_kind=args.store.partition(":")[0],
        max_body=args.max_body,
        client_timeout=args.client_timeout,
    )
    server = web.Server(
        service.handle,
        access_log=None,
        logger=_logger(),
        # Bounds the headers too: a connection without a complete request counts as idle.
        keepalive_timeout=args.client_timeout,
        lingering_time=min(args.client_timeout, _LINGER_SECONDS),
        auto_decompress=False,  # a value is kept as it was sent
    )
    runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    host, port = address
    try:
        await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
        host, port = runner.addresses[0][:2]
        print(
            f"resource listening on http://{_joined(host, port)} "
            f"(store {redact(args.store)}, fence {args.fence})",
            flush=True,
        )
        await stop.wait()
    except OSError as error:
        reason = "address already in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise UsageError(
            f"cannot listen on {_joined(host, port)}: {reason}; choose another with --listen"
        ) from error
    finally:
        await runner.cleanup()


def _logger() -> logging.Logger:
    """What a client sent that is no HTTP is answered with 400; it is no traceback of ours."""

    def is_our_error(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))

    logger = logging.getLogger(__package__)
    logger.addFilter(is_our_error)
    return logger


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse_address(text: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MAX_PORT:
        raise UsageError(f"{text!r} is no address: write HOST:PORT or [IPV6]:PORT after --listen")
    return match["ipv6"] or match["host"], int(match["port"])


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_INTEGER):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _duration(text: str) -> float:
    try:
        return parse_positive_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
