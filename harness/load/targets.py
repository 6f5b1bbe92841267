"""What a run is aimed at: a lock server and a fenced resource, started for it or already there."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import asyncdlock
from asyncdlock.backend import redact
from harness.config import RunConfig, UsageError
from harness.history import HistoryWriter
from harness.history.rows import Decision, Value, digest
from harness.resource.address import Address
from harness.resource.client import ResourceClient, Unanswered, UnexpectedReply
from harness.resource.process import ResourceProcess, spawn
from harness.servers.catalogue import BACKENDS, INSTALLATIONS
from harness.servers.catalogue import LockServer as LockServer  # as the run knows it

_READ_BACK = 1000
"""How many keys have their value read back at the end, at most; of more, an even sample."""
_PATIENCE = 30.0
"""Seconds for each question to the resource."""
_STALE = "resource_stale_token_rejections_total"


async def check_urls(config: RunConfig) -> None:
    """Find out what can be found out without sending anything.

    :raises UsageError: no client can be made for one of the URLs.
    """
    if config.resource_url:
        try:
            Address.of(config.resource_url)
        except ValueError as error:
            raise UsageError(f"--resource-url: {error}") from None
    if config.client is None and (config.url is not None or config.backend == "memory"):
        try:
            client = asyncdlock.connect(with_options(config.url or "memory://", config.options))
        except (ValueError, ImportError) as error:
            raise UsageError(str(error)) from None
        await client.aclose()


@contextlib.asynccontextmanager
async def lock_server(config: RunConfig, *, durable: bool = False) -> AsyncIterator[LockServer]:
    """The server that `--url` names, or one of kind `--backend` for the length of the run.

    A `durable` one keeps its data when it is killed and started again.

    :raises ServerError: it cannot be started; says what to install.
    """
    if config.client is not None:
        yield LockServer("")
        return
    if config.url is not None:
        yield LockServer(with_options(config.url, config.options))
        return
    if config.backend not in BACKENDS:
        raise UsageError(
            f"there is no server to start for the backend {config.backend!r}: name one with --url"
        )
    async with INSTALLATIONS[config.backend].start(durable=durable) as server:
        yield LockServer(with_options(server.url, config.options), server.nodes)


def with_options(url: str, options: tuple[str, ...]) -> str:
    """`url` with `NAME=VALUE` options added to its query; an option given twice counts once, last."""
    if not options:
        return url
    # By hand: urlsplit refuses what a list of hosts may be, as in `redlock://a,[::1]`.
    start, hash_sign, fragment = url.partition("#")
    start, _, asked = start.partition("?")
    query = dict(parse_qsl(asked, keep_blank_values=True))
    query.update((name, value) for name, _, value in (option.partition("=") for option in options))
    return f"{start}?{urlencode(query)}{hash_sign}{fragment}"


class Resource:
    """The fenced resource, seen from the judge's side: its health, its counters and its log."""

    def __init__(self, client: ResourceClient, process: ResourceProcess | None = None) -> None:
        self.url = client.url
        self._client = client
        self.process = process
        self._after = 0
        self._rejections = 0

    @property
    def died(self) -> bool:
        """Whether a resource that was started for the run has ended since."""
        return self.process is not None and not self.process.running

    async def begin(self) -> None:
        """Note where log and counters stand, so that an earlier run's writes are not counted.

        :raises UsageError: nothing that speaks the resource's language answers there.
        """
        try:
            health = await self._client.healthz()
            if health.status != 200 or "status" not in health.json:
                raise UnexpectedReply(f"it answered {health.status} to /healthz")
            async for row in self._client.rows(whole=False):
                self._after = row["seq"]
            self._rejections = await self.stale_rejections()
        except (Unanswered, ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"no fenced resource answers at {redact(self.url)} ({error}): start one with "
                "'python -m harness resource', or leave out --resource-url"
            ) from None

    async def stale_rejections(self) -> int:
        """`resource_stale_token_rejections_total`, less what it was when the run began.

        :raises Unanswered: it does not answer, or not to that.
        """
        # A resource that was restarted meanwhile counts from zero again.
        return max(int(await self._client.metric(_STALE)) - self._rejections, 0)

    async def save_log(self, path: Path, origin: int) -> None:
        """Copy the log since `begin` into a file beside the history, and what keys hold now.

        :raises Unanswered: it does not answer, or not to that.
        """
        after = {"after": self._after}
        keys: set[str] = set()
        with HistoryWriter(path, Decision, origin_ns=origin, config=after, times="monotonic") as writer:
            batch: list[Decision] = []
            async for row in self._client.rows(self._after, whole=False):
                batch.append(_decision(row))
                keys.add(row["key"])
                if len(batch) >= 256:
                    writer.write(batch)
                    batch.clear()
            writer.write(batch)
            for key in sorted(keys)[:: 1 + len(keys) // _READ_BACK]:
                writer.value(await self._value(key))

    async def _value(self, key: str) -> Value:
        reply = await self._client.get(key)
        if reply.status == 404:
            return Value(key, 0, digest(b""))
        if reply.status != 200:
            raise UnexpectedReply(f"it answered {reply.status} to a read")
        version = reply.headers.get("ETag", "").strip('"')
        if not version.isdecimal():
            raise UnexpectedReply(f"it reads a value at version {version!r}")
        return Value(key, int(version), digest(reply.body))


def _decision(row: Mapping[str, Any]) -> Decision:
    """:raises UnexpectedReply: it is no row of a resource's log."""
    if missing := [name for name in _DECISION if name not in row]:
        raise UnexpectedReply(f"its log has a row without {', '.join(missing)}")
    return Decision(**{name: row[name] for name in _DECISION})


_DECISION = tuple(Decision.__dataclass_fields__)


@contextlib.asynccontextmanager
async def fenced_resource(config: RunConfig) -> AsyncIterator[Resource]:
    """The resource that `--resource-url` names, or one in its own process for the run's length.

    :raises ServerError, UsageError: it cannot be started or does not answer.
    """
    async with contextlib.AsyncExitStack() as stack:
        url = config.resource_url
        process = None
        if url is None:
            process = await stack.enter_async_context(spawn(fence="on" if config.fence else "off"))
            url = process.url
        client = await stack.enter_async_context(ResourceClient(url, timeout=_PATIENCE))
        resource = Resource(client, process)
        await resource.begin()
        yield resource
