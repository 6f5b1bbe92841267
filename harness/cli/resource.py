"""`python -m harness resource`: runs the fenced resource until SIGTERM or SIGINT."""

import argparse
import asyncio
import errno
import gc
import ipaddress
import re
import signal
import socket
import sys
from pathlib import Path

from aiohttp import web

from asyncdlock.backend import redact
from asyncdlock.fencing.signed import FenceSigner
from harness.config import UsageError
from harness.durations import parse_positive_duration
from harness.resource.connections import BoundedServer
from harness.resource.decision import MAX_INTEGER, Fencing
from harness.resource.limits import CLIENT_TIMEOUT, MAX_BODY, MAX_BUFFERED, MAX_CONNECTIONS, Limits
from harness.resource.service import Service
from harness.resource.store import Retention, StoreError, open_store

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")
_MAX_PORT = 65_535
_DRAIN_SECONDS = 5.0
_INSIST_SECONDS = 1.0
_LINGER_SECONDS = 5.0
_BACKLOG = 4096  # a thousand contenders may connect in the same millisecond


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="where to listen; port 0 takes a free one, unix:PATH is a socket in the file system "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--store",
        default="sqlite:resource.db",
        metavar="STORE",
        help="memory, sqlite:PATH, sqlite:PATH?sync=full, postgres:DSN, s3://BUCKET/PREFIX or "
        "s3:https://HOST:PORT/BUCKET/PREFIX (default: %(default)s)",
    )
    parser.add_argument(
        "--fence",
        choices=[mode.value for mode in Fencing],
        default=Fencing.ON.value,
        help="what to enforce: every operation that carries a token, writes only, or nothing "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--fence-key",
        type=_secrets,
        default=None,
        metavar="FILE",
        help="accept only tokens that are signed with a secret from this file (lines NAME SECRET)",
    )
    parser.add_argument(
        "--log",
        choices=["on", "off"],
        default="on",
        help="keep every decided write for GET /log (default: %(default)s)",
    )
    parser.add_argument(
        "--log-rows",
        type=positive,
        default=None,
        metavar="N",
        help="keep the newest N rows of the log (default: 1000000; in memory, and on s3, 200000)",
    )
    parser.add_argument(
        "--log-age",
        type=_duration,
        default=Retention().age,
        metavar="DURATION",
        help="drop rows of the log that are older (default: 168h)",
    )
    parser.add_argument(
        "--max-body",
        type=positive,
        default=MAX_BODY,
        metavar="BYTES",
        help="the largest value (default: %(default)s)",
    )
    parser.add_argument(
        "--client-timeout",
        type=_duration,
        default=CLIENT_TIMEOUT,
        metavar="DURATION",
        help="how long a client may take to send its headers, then its body, and leave a piece of its "
        "answer unread (default: 30s)",
    )
    parser.add_argument(
        "--max-connections",
        type=positive,
        default=MAX_CONNECTIONS,
        metavar="N",
        help="further ones are told to try again; file descriptors may lower it (default: %(default)s)",
    )
    parser.add_argument(
        "--max-buffered",
        type=positive,
        default=MAX_BUFFERED,
        metavar="BYTES",
        help="the most that unfinished bodies, and again unread answers, may take together "
        "(default: %(default)s)",
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
    fencing = Fencing(args.fence)
    retention = Retention(args.log_rows, args.log_age)
    try:
        store = await open_store(args.store, fencing, log=args.log == "on", retention=retention)
    except StoreError as error:
        raise UsageError(str(error)) from error
    try:
        limits = Limits(args.max_body, args.client_timeout, args.max_connections, args.max_buffered)
        kind = args.store.partition(":")[0]
        service = Service(store, fencing, store_kind=kind, limits=limits, signer=args.fence_key)
        signed = "" if args.fence_key is None else ", signed tokens only"
        await _serve(
            service, limits, address, stop, f"store {redact(args.store)}, fence {args.fence}{signed}"
        )
    finally:
        await store.aclose()
    return 0


async def _serve(
    service: Service, limits: Limits, address: tuple[str, int] | Path, stop: asyncio.Event, what: str
) -> None:
    server = BoundedServer(
        service.handle,
        max_connections=limits.connections,
        access_log=None,
        # Bounds the headers too: a connection without a complete request counts as idle.
        keepalive_timeout=limits.client_timeout,
        lingering_time=min(limits.client_timeout, _LINGER_SECONDS),
        auto_decompress=False,  # a value is kept as it was sent
    )
    runner = web.ServerRunner(server, shutdown_timeout=_INSIST_SECONDS)
    await runner.setup()
    try:
        site = await _listen(runner, address)
        print(f"resource listening on {_place(runner, address)} ({what})", flush=True)
        _spare_the_collector()
        await stop.wait()
        await site.stop()
        service.answers.closing = True
        await server.drain(_DRAIN_SECONDS)
    finally:
        await runner.cleanup()


async def _listen(runner: web.ServerRunner, address: tuple[str, int] | Path) -> web.BaseSite:
    try:
        if isinstance(address, Path):
            _clear_socket(address)
            site: web.BaseSite = web.UnixSite(runner, address, backlog=_BACKLOG)
            await site.start()
            return site
        host, port = address
        site = web.TCPSite(runner, host, port, backlog=_BACKLOG)
        await site.start()
        _warn_if_open(host, port)
    except OSError as error:
        reason = "address already in use" if error.errno == errno.EADDRINUSE else error.strerror
        place = f"unix:{address}" if isinstance(address, Path) else _joined(*address)
        raise UsageError(f"cannot listen on {place}: {reason}; choose another with --listen") from error
    return site


def _warn_if_open(host: str, port: int) -> None:
    if not _is_loopback(host):
        print(
            f"harness: warning: --listen {_joined(host, port)} is open to whoever can reach this machine, "
            "and the resource asks nobody for a password",
            file=sys.stderr,
            flush=True,
        )


def _clear_socket(path: Path) -> None:
    """Remove the socket of a predecessor that was killed.

    :raises OSError: somebody listens there, or it is no socket.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if path.is_socket():
                path.unlink()
                return
    raise OSError(errno.EADDRINUSE, "address already in use")


def _spare_the_collector() -> None:
    """Leave what lives as long as the process out of garbage collections, and make them rare.

    A request leaves no cycles behind; what collections cost grows with all that is alive.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 1000)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _place(runner: web.ServerRunner, address: tuple[str, int] | Path) -> str:
    return f"unix:{address}" if isinstance(address, Path) else f"http://{_joined(*runner.addresses[0][:2])}"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _parse_address(text: str) -> tuple[str, int] | Path:
    if text.startswith("unix:") and len(text) > len("unix:"):
        return Path(text.removeprefix("unix:"))
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MAX_PORT:
        raise UsageError(f"{text!r} is no address: write HOST:PORT, [IPV6]:PORT or unix:PATH after --listen")
    return match["ipv6"] or match["host"], int(match["port"])


def positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= MAX_INTEGER):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _secrets(path: str) -> FenceSigner:
    try:
        return FenceSigner.from_file(path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _duration(text: str) -> float:
    try:
        return parse_positive_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
