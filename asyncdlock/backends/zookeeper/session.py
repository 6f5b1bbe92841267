"""One ZooKeeper session: opened on demand, kept alive by pings, carried to another server when one fails.

A session is the lease of every node created in it. Its heartbeat runs on the event loop that does the work,
on purpose: a loop that is stuck for longer than the session's timeout loses the session, as it should.
"""

import asyncio
import logging
import math
import random
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kazoo.exceptions import AuthFailedError, ConnectionLoss, SessionExpiredError
from kazoo.protocol.serialization import Connect

from asyncdlock._backoff import jittered
from asyncdlock.backends.zookeeper.records import RemoveDataWatch
from asyncdlock.backends.zookeeper.wire import Tally, Wire
from asyncdlock.errors import BackendError, BackendUnavailable

_log = logging.getLogger("asyncdlock")

_NO_PASSWORD = b"\x00" * 16
_CLOSE_WITHIN = 2.0
_PINGS = 10  # in the timeout of a session that says nothing else
_SPREAD = 0.02  # so that the clients of a server that failed do not knock at the next one all at once

Watcher = Callable[[bool], None]
"""Called once: True when the node changed or went, False when the connection broke and the watch with it."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Where the servers are and who we are."""

    hosts: Sequence[tuple[str, int]]
    connect_timeout: float
    credentials: str | None = None
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


class Session:
    """Alive until it expires, is given up, is closed, or was `idle` for that long; never comes back then."""

    def __init__(self, ensemble: Ensemble, timeout: float, tally: Tally, *, idle: float = math.inf) -> None:
        self._ensemble = ensemble
        self._tally = tally
        self._hosts = random.sample(list(ensemble.hosts), len(ensemble.hosts))
        self._wire: Wire | None = None
        self._settled = asyncio.Event()  # connected, or ended
        self._watchers: dict[str, set[Watcher]] = {}
        self._password = _NO_PASSWORD
        self._last_zxid = 0
        self._failure: BackendError | None = None
        self._idle = idle
        self._users = 0
        self._unused_since = time.monotonic()
        self.id: int = 0
        self.timeout: float = timeout
        """What the server agreed to, in seconds, once connected."""
        self.expired: bool = False
        """The server has said so: every node of this session is gone."""
        # Last: an eager task factory runs it at once.
        self._keeper = asyncio.get_running_loop().create_task(
            self._keep(), name="asyncdlock zookeeper session"
        )

    @property
    def over(self) -> bool:
        return self.expired or self._failure is not None

    @property
    def ended(self) -> bool:
        """It is over, and nothing of it is under way any more."""
        return self._keeper.done()

    def wire_now(self) -> Wire | None:
        """The connection; None while there is none, and the session may live or not."""
        return self._wire

    async def wire(self) -> Wire:
        """The connection, as soon as there is one.

        :raises SessionExpiredError: the session has expired.
        :raises BackendError: no server could be reached for as long as the session could live.
        """
        while self._wire is None:
            if self.expired:
                raise SessionExpiredError
            if self._failure is not None:
                raise type(self._failure)(str(self._failure), definite=self._failure.definite)
            await self._settled.wait()
        return self._wire

    def enter(self) -> None:
        """Somebody uses the session from now on: it is kept until as many have left."""
        self._users += 1

    def leave(self) -> None:
        self._users -= 1
        self._unused_since = time.monotonic()

    # Watches

    def watch(self, path: str, watcher: Watcher) -> None:
        """Call `watcher` at the next event for `path`; the request that sets the watch is the caller's."""
        self._watchers.setdefault(path, set()).add(watcher)

    def unwatch(self, path: str, watcher: Watcher) -> bool:
        """Forget `watcher`; True when nobody here waits for `path` any longer."""
        watchers = self._watchers.get(path)
        if watchers is None or watcher not in watchers:
            return False
        watchers.discard(watcher)
        if not watchers:
            del self._watchers[path]
        return not watchers

    def take_back(self, path: str, watcher: Watcher) -> None:
        """Forget `watcher`, and have the server forget the watch."""
        if self.unwatch(path, watcher) and self._wire is not None:
            self._wire.post(RemoveDataWatch(path))

    def _on_event(self, path: str) -> None:
        for watcher in self._watchers.pop(path, ()):
            watcher(True)

    # Life

    def _on_expired(self) -> None:
        self.expired = True
        if self._wire is not None:
            self._wire.abort()

    async def _keep(self) -> None:
        try:
            while not self.over:
                wire = await self._connect()
                if wire.closed.done():
                    continue
                self._wire = wire
                self._settled.set()
                await self._beat(wire)
                await asyncio.sleep(random.uniform(0.0, _SPREAD))
        except SessionExpiredError:
            self.expired = True
        except BackendError as error:
            _log.warning("a session of %g s is given up: %s", self.timeout, error)
            self._failure = error
        except Exception as error:
            _log.exception("the ZooKeeper session failed")
            self._failure = BackendError(f"the ZooKeeper session failed: {error!r}")
        finally:
            self._settled.set()
        if self.expired:
            _log.warning("ZooKeeper at %s expired a session of %g s", self._ensemble, self.timeout)

    async def _beat(self, wire: Wire) -> None:
        """Ping when idle, until the connection breaks or falls silent.

        More often than it takes to keep the session: no answer says that the leader has counted its timeout
        from now on. A follower tells it now and then whom it has heard, and may be cut off before it does.

        Silence is judged only after a ping had a chance to be answered: after a stall of our own loop the
        replies may be here and not yet read.
        """
        quiet, silent, grace = self.timeout / _PINGS, self.timeout / 2, self.timeout / 6
        while not wire.closed.done():
            now = time.monotonic()
            if now >= wire.heard_at + silent:
                wire.ping()
                await asyncio.wait((wire.closed,), timeout=grace)
                if wire.heard_at < now:
                    wire.abort()
                    await wire.closed
                continue
            if now >= wire.sent_at + quiet:
                if not self._users and now >= self._unused_since + self._idle:
                    await self._end(wire)
                    continue
                wire.ping()
                await asyncio.sleep(0)  # until it is written
                continue
            due = min(wire.sent_at + quiet, wire.heard_at + silent)
            await asyncio.wait((wire.closed,), timeout=max(0.001, due - now))

    def _on_lost(self, wire: Wire) -> None:
        self._last_zxid = max(self._last_zxid, wire.last_zxid)
        if self._wire is not wire:
            return
        self._wire = None
        if not self.over:
            self._settled.clear()
        watchers, self._watchers = self._watchers, {}
        for watching in watchers.values():
            for watcher in watching:
                watcher(False)

    async def _connect(self) -> Wire:
        """Find a server that takes the session, for as long as that makes sense."""
        patience = self._ensemble.connect_timeout
        if self.id:
            patience = max(patience, self.timeout)
        give_up = time.monotonic() + patience
        attempt = max(0.1, min(patience / len(self._hosts), self.timeout / 3))
        reason = ""
        for delay in jittered(0.02, 0.5):
            for _ in self._hosts:
                host = self._hosts[0]
                self._hosts.append(self._hosts.pop(0))  # the next attempt is for the next one
                left = give_up - time.monotonic()
                if left <= 0:
                    break
                try:
                    async with asyncio.timeout(min(attempt, left)):
                        return await self._open(host)
                except (SessionExpiredError, BackendError):
                    raise
                except TimeoutError:
                    if left >= attempt or not reason:  # else it had no fair chance
                        reason = f"{host[0]}:{host[1]} did not answer in time"
                except (ConnectionLoss, ConnectionResetError, BrokenPipeError):
                    reason = f"{host[0]}:{host[1]} closed the connection"
                    if not self.id:
                        reason += ", as it does with more than its maxClientCnxns from one address"
                except OSError as error:
                    reason = f"{host[0]}:{host[1]}: {error.strerror or error}"
            if time.monotonic() + delay >= give_up:
                break
            await asyncio.sleep(delay)
        raise BackendUnavailable(
            f"cannot reach ZooKeeper at {self._ensemble} ({reason}): check that it runs, and the URL",
            definite=not self.id,
        )

    async def _open(self, host: tuple[str, int]) -> Wire:
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(
            lambda: Wire(
                self._tally, on_event=self._on_event, on_expired=self._on_expired, on_lost=self._on_lost
            ),
            *host,
            ssl=self._ensemble.tls,
        )
        try:
            milliseconds = round(self.timeout * 1000)
            welcome = await wire.greet(
                Connect(0, self._last_zxid, milliseconds, self.id, self._password, False)
            )
            if welcome.time_out <= 0:
                raise SessionExpiredError
            self.id, self._password = welcome.session_id, welcome.passwd
            self.timeout = welcome.time_out / 1000
            if self._ensemble.credentials is not None:
                await self._authenticate(wire, self._ensemble.credentials)
        except BaseException:
            wire.abort()
            raise
        return wire

    async def _authenticate(self, wire: Wire, credentials: str) -> None:
        try:
            await wire.authenticate("digest", credentials)
        except AuthFailedError:
            raise BackendError("ZooKeeper refused the user and password of the URL", definite=True) from None

    async def _end(self, wire: Wire) -> None:
        self._failure = self._failure or BackendUnavailable("this lock client is closed", definite=True)
        wire.close_session()
        await asyncio.wait((wire.closed,), timeout=_CLOSE_WITHIN)
        wire.abort()
        await wire.closed

    async def aclose(self) -> None:
        """End the session, and with it every node that it created.

        Without a connection nothing can be sent, and the server ends the session after its timeout.
        """
        wire = self._wire
        if wire is not None:
            await self._end(wire)
        self._failure = self._failure or BackendUnavailable("this lock client is closed", definite=True)
        self._keeper.cancel()
        await asyncio.wait((self._keeper,))
        self._settled.set()
