"""One run over several machines: Dask starts the shares and says when they begin; here they become one.

Dask carries orders. Files come from each worker in pieces, straight to here and not by way of the scheduler.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from asyncdlock.backend import redact
from harness.config import RunConfig, UsageError
from harness.history import HISTORY_FILE, RESOURCE_FILE
from harness.load import share_worker
from harness.load.dask_cluster import client_of, workers_of
from harness.load.merging import merge_shares
from harness.load.run import Finished, make_folder
from harness.load.targets import check_urls, fenced_resource, lock_server

_READY_WITHIN = 120.0
_HEAD_START = 1.0
_ROUND_TRIPS = 10
"""Seconds between the order to start and the start, and so many of the slowest round trips besides."""
_SILENT = 30.0
"""Seconds without a word of its worker to the scheduler, after which a share is given up: frozen, or cut off.
The scheduler itself waits for five minutes."""
_LOOK_EVERY = 0.25
_ANSWER_WITHIN = 60.0
"""A worker that starts its share on a busy machine takes its time to answer."""
_PINGS = 7
_PIECE = 4 << 20
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(slots=True)
class _Worker:
    """One share and the Dask worker that makes it."""

    address: str
    number: int
    """Of its share, from 1."""
    ahead: float = 0.0
    """Its clock less ours, in seconds."""
    unsure: float = 0.0
    """By how much that may be wrong: half of the quickest round trip."""
    round_trip: float = 0.0
    """The slowest one."""
    future: Any = None
    lost: str = field(default="")
    heard: tuple[float, float] = (0.0, 0.0)
    """When it last spoke to the scheduler, by the scheduler's clock; when we first saw that, by ours."""


def parse_fleet(text: str) -> str:
    """:raises ValueError: neither `local:N` nor the address of a scheduler."""
    kind, _, rest = text.partition(":")
    if kind == "local" and rest.isdecimal() and 1 <= int(rest) <= 64:
        return text
    if kind in ("tcp", "tls") and urlsplit(text).port:
        return text
    raise ValueError(f"{text!r} is not a fleet: write local:4, or the scheduler's address: tcp://host:8786")


async def run_fleet(
    config: RunConfig,
    *,
    command: Sequence[str],
    status: Callable[[str], None],
    interrupted: asyncio.Event,
) -> Finished:
    """Run `config` over all workers of its fleet, a share each, and merge what they found.

    A worker that dies is left out, and the run says so: in its verdict, its doubts and its certificate.

    :raises UsageError, ServerError: the run could not begin.
    """
    check_fleet(config)
    await check_urls(config)
    folder = make_folder(Path(config.out), config.label)
    try:
        async with contextlib.AsyncExitStack() as stack:
            status(f"starting the servers and the fleet {config.fleet}")
            server = await stack.enter_async_context(lock_server(config))
            resource = await stack.enter_async_context(fenced_resource(config))
            client = await stack.enter_async_context(client_of(config.fleet or ""))
            fleet = _DaskFleet(client, await workers_of(client), status)
            product = redact(await server.product())
            shared = replace(config, fleet=None, url=server.url, resource_url=resource.url)
            await fleet.start(shared)
            await fleet.finish(interrupted)
            shares = await fleet.fetch(folder / "shares")
            failures = ["the lock server died during the run"] if server.dead() else []
            if not shares:
                raise UsageError(f"no share of the run came back: {'; '.join(fleet.missing.values())}")
    except BaseException:
        if not (folder / "shares").exists():
            folder.rmdir()
        raise
    status("merging and checking the histories")
    summary = await asyncio.to_thread(
        merge_shares,
        shares,
        folder,
        command=command,
        missing=fleet.missing,
        failures=failures,
        lock_server=product,
        interrupted=interrupted.is_set(),
    )
    for share in shares:
        for name in (HISTORY_FILE, RESOURCE_FILE):
            (share / name).unlink(missing_ok=True)  # they are in the whole
    return Finished(folder, summary)


def check_fleet(config: RunConfig) -> None:
    """:raises UsageError: a fleet cannot do that, or Dask is not installed."""
    try:
        import distributed  # noqa: F401 - before anything is started
    except ImportError:
        raise UsageError("a fleet needs Dask: pip install 'asyncdlock[fleet]'") from None
    for_one = {
        "--fault": bool(config.faults),
        "--faults": config.fault_seed is not None,
        "--share": config.is_share,
        "--start-at": config.start_at is not None,
        "--steer": config.steer,
        "--live": config.live is not None,
        "--metrics-port": config.metrics_port is not None,
    }
    for name, given in for_one.items():
        if given:
            raise UsageError(f"{name} is for a single generator: leave it out with --fleet")
    if config.scheme == "memory":
        raise UsageError("the memory backend lives inside one process: a fleet needs a lock server")
    host = urlsplit(config.fleet or "").hostname
    if host is not None and host not in _LOOPBACK and not (config.url and config.resource_url):
        raise UsageError(
            "workers elsewhere cannot reach servers that are started here: name --url and --resource-url"
        )


class _DaskFleet:
    """The shares of one run, from their start until their files are here."""

    def __init__(self, client: Any, addresses: Sequence[str], status: Callable[[str], None]) -> None:
        self._client = client
        self._workers = [_Worker(address, number) for number, address in enumerate(addresses, 1)]
        self._status = status
        self._run = uuid.uuid4().hex
        self.missing: dict[int, str] = {}
        """Number of a share -> why it is not there."""

    async def start(self, config: RunConfig) -> None:
        """Prepare every share, then let them begin at one time on all their clocks.

        :raises UsageError: a share cannot work with the servers.
        """
        count = len(self._workers)
        for worker in self._workers:
            share = replace(config, share=(worker.number - 1, count))
            worker.future = self._client.submit(
                share_worker.run_share, share, self._run, workers=[worker.address], pure=False, retries=0
            )
        await self._until_ready()
        for worker in self._alive():  # only now: a share that is starting keeps its worker from answering
            await self._compare_clocks(worker)
        clocks = ", ".join(f"{w.ahead * 1e3:+.2f} ± {w.unsure * 1e3:.2f} ms" for w in self._alive())
        self._status(f"{count} workers, their clocks less ours: {clocks}")
        slowest = max((worker.round_trip for worker in self._alive()), default=0.0)
        start = time.time() + _HEAD_START + _ROUND_TRIPS * slowest
        await asyncio.gather(
            *(self._order(w, share_worker.begin, self._run, start + w.ahead) for w in self._alive())
        )
        self._status(f"{config.contenders:,} contenders, {config.rate:g} arrivals/s, {config.duration:g} s")

    async def finish(self, interrupted: asyncio.Event) -> None:
        """Wait until every share has ended or is lost."""
        told = False
        while pending := [worker for worker in self._alive() if not worker.future.done()]:
            if interrupted.is_set() and not told:
                told = True
                await asyncio.gather(*(self._order(w, share_worker.stop, self._run) for w in pending))
            await self._notice_losses(pending)
            await asyncio.sleep(_LOOK_EVERY)

    async def fetch(self, into: Path) -> list[Path]:
        """Copy the files of every share that ended well; returns their folders."""
        folders = []
        for worker in self._alive():
            try:
                remote: str = await worker.future
                folder = into / str(worker.number)
                folder.mkdir(parents=True)
                for name, size in (await self._ask(worker, share_worker.sizes, remote)).items():
                    await self._copy(worker, remote, name, size, folder / name)
                await self._ask(worker, share_worker.remove, remote)
            except Exception as error:  # whatever the worker raised: its share is lost, the others are not
                self._lose(worker, f"did not hand it over ({_words(error)})")
                continue
            folders.append(folder)
        return folders

    async def _copy(self, worker: _Worker, remote: str, name: str, size: int, path: Path) -> None:
        with path.open("wb") as file:
            for offset in range(0, size, _PIECE):
                file.write(await self._ask(worker, share_worker.piece, remote, name, offset, _PIECE))

    def _alive(self) -> list[_Worker]:
        return [worker for worker in self._workers if not worker.lost]

    def _lose(self, worker: _Worker, reason: str) -> None:
        worker.lost = reason
        self.missing[worker.number] = f"its worker {worker.address} {reason}"

    async def _ask(self, worker: _Worker, function: Callable[..., Any], *arguments: Any) -> Any:
        async with asyncio.timeout(_ANSWER_WITHIN):
            answers = await self._client.run(function, *arguments, workers=[worker.address])
        return answers[worker.address]

    async def _order(self, worker: _Worker, function: Callable[..., Any], *arguments: Any) -> Any:
        """Ask it; a worker that does not answer is lost, the others are not."""
        try:
            return await self._ask(worker, function, *arguments)
        except Exception as error:  # whatever Dask raises for one that has gone
            self._lose(worker, f"does not answer ({_words(error)})")
            return None

    async def _compare_clocks(self, worker: _Worker) -> None:
        quickest = float("inf")
        for _ in range(_PINGS):
            before = time.time()
            there = await self._order(worker, share_worker.clock)
            if there is None:
                return
            after = time.time()
            worker.round_trip = max(worker.round_trip, after - before)
            if after - before < quickest:
                quickest = after - before
                worker.ahead, worker.unsure = there - (before + after) / 2, quickest / 2

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        waiting = self._alive()
        while waiting and time.monotonic() < deadline:
            await self._notice_losses(waiting)
            for worker in [worker for worker in waiting if not worker.lost]:
                if worker.future.done():
                    await worker.future  # it cannot work with the servers, and says why
                if await self._order(worker, share_worker.is_ready, self._run):
                    waiting.remove(worker)
            waiting = [worker for worker in waiting if not worker.lost]
            await asyncio.sleep(_LOOK_EVERY)

    async def _notice_losses(self, workers: Sequence[_Worker]) -> None:
        known = (await self._client.scheduler.identity(n_workers=-1))["workers"]
        for worker in workers:
            if worker.future.done():
                continue
            if worker.address not in known:
                self._lose(worker, "died before its share was over")
            elif self._is_silent(worker, known[worker.address]["last_seen"]):
                self._lose(worker, f"was not heard for {_SILENT:g} s before its share was over")
            else:
                continue
            await self._client.cancel([worker.future], force=True)

    def _is_silent(self, worker: _Worker, last_seen: float) -> bool:
        now = time.monotonic()
        if last_seen != worker.heard[0]:
            worker.heard = last_seen, now
        return now - worker.heard[1] > _SILENT


def _words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())
