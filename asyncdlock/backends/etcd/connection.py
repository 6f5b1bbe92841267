"""The connection to a cluster: one channel per member, failover, authentication, TLS, time limits."""

import asyncio
import os
import random
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from aetcd import rpc

from asyncdlock.backends.etcd.failures import Advice, classify, refusal, unavailable
from asyncdlock.backends.etcd.settings import Settings
from asyncdlock.errors import BackendError

_CHANNEL_OPTIONS = (
    # A member that died without a word is noticed by pings; etcd tolerates one every 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),  # what newer versions of gRPC read instead
    ("grpc.http2.max_pings_without_data", 0),
    # A member that comes back is used again soon, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Two clients of one process must not share a connection, nor hide behind a web proxy.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
)
# A member without a leader refuses at once instead of letting the request hang.
_REQUIRE_LEADER = ("hasleader", "true")
_RETRY_DELAY = 0.05
_RETRY_DELAY_MAX = 0.5


class _Fork:
    """Whether this process was forked from one that was using gRPC.

    gRPC keeps one queue of events for a whole process. A child that uses it, even for a connection of its
    own, hangs, and takes away the answers that its parent waits for.
    """

    def __init__(self) -> None:
        self._in_use = False
        self.unusable = False
        os.register_at_fork(after_in_child=self._note)

    def note_use(self) -> None:
        self._in_use = True

    def _note(self) -> None:
        self.unusable = self._in_use


_fork = _Fork()


class EtcdMember:
    """One endpoint: its channel and etcd's services on it."""

    def __init__(self, endpoint: str, credentials: grpc.ChannelCredentials | None) -> None:
        _fork.note_use()
        self.endpoint = endpoint
        if credentials is None:
            self.channel: Any = grpc.aio.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
        else:
            self.channel = grpc.aio.secure_channel(endpoint, credentials, options=_CHANNEL_OPTIONS)
        self.kv: Any = rpc.KVStub(self.channel)
        self.lease: Any = rpc.LeaseStub(self.channel)
        self.watch: Any = rpc.WatchStub(self.channel)
        self.auth: Any = rpc.AuthStub(self.channel)


Metadata = tuple[tuple[str, str], ...]
Verb = Callable[[EtcdMember], Any]
TXN: Verb = attrgetter("kv.Txn")
LEASE_GRANT: Verb = attrgetter("lease.LeaseGrant")
LEASE_REVOKE: Verb = attrgetter("lease.LeaseRevoke")
LEASE_TIME_TO_LIVE: Verb = attrgetter("lease.LeaseTimeToLive")
KEEP_ALIVE: Verb = attrgetter("lease.LeaseKeepAlive")
WATCH: Verb = attrgetter("watch.Watch")
AUTHENTICATE: Verb = attrgetter("auth.Authenticate")


class RpcReply(NamedTuple):
    """An answer, and whether an earlier attempt of the same request may still take effect."""

    message: Any
    uncertain: bool


class EtcdConnection:
    """Sends requests to one member at a time and moves on to the next when it fails.

    Every request that goes through `call` is repeated on another member after a failure, also
    when the first may have happened: callers send only what is safe to repeat.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.commands: int = 0
        self.failovers: int = 0
        self._members: dict[str, EtcdMember] = {}
        # A fleet spreads over the members instead of loading the first one of the URL.
        self._current = random.randrange(len(settings.endpoints))
        self._listeners: list[Callable[[EtcdMember], None]] = []
        self._token: str | None = None
        self._signing_in: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def endpoint(self) -> str:
        """The member that the next request goes to."""
        return self.settings.endpoints[self._current]

    def member(self) -> EtcdMember:
        """The current member; its channel connects by itself.

        :raises BackendError: closed, forked, or the TLS files cannot be read.
        """
        if _fork.unusable:
            raise BackendError(
                "etcd cannot be used in a process that was forked while its parent used etcd; start it "
                "with spawn or forkserver, or fork before the first lock is taken",
                definite=True,
            )
        if self._closed:
            raise BackendError("this etcd client is closed", definite=True)
        endpoint = self.endpoint
        member = self._members.get(endpoint)
        if member is None:
            member = self._members[endpoint] = EtcdMember(endpoint, self._credentials())
        return member

    def leave(self, member: EtcdMember, *, silent: bool = False) -> None:
        """`member` failed: use the next one.

        One that says nothing at all keeps its streams open and silent as well, so they are told.
        From any other they follow within a second: thousands of watches need not be moved at every
        step while a new leader is elected.
        """
        if silent:
            for listener in self._listeners:
                listener(member)
        if member.endpoint == self.endpoint:
            self._current = (self._current + 1) % len(self.settings.endpoints)
            self.failovers += 1

    def on_silence(self, listener: Callable[[EtcdMember], None]) -> None:
        """Have `listener` called with every member that does not answer in time."""
        self._listeners.append(listener)

    async def metadata(self) -> Metadata:
        """What accompanies every request; signs in first where a user is given.

        :raises BackendError: the sign-in failed.
        """
        if self.settings.user is None:
            return (_REQUIRE_LEADER,)
        if self._token is None:
            if self._signing_in is None:
                self._signing_in = asyncio.create_task(self._sign_in())
            await asyncio.shield(self._signing_in)
        return (_REQUIRE_LEADER, ("token", self._token)) if self._token else (_REQUIRE_LEADER,)

    def forget_token(self, used: Metadata) -> None:
        """The token in `used` was refused; the next request signs in again."""
        if ("token", self._token) in used:
            self._token = None

    async def call(self, verb: Verb, request: Any, *, timeout: float | None = None) -> RpcReply:
        """The answer to `request` from the first member that gives one.

        :raises BackendUnavailable: nobody answered within `timeout`.
        :raises BackendError: etcd refused the request.
        """
        limit = self.settings.timeout if timeout is None else timeout
        anonymous = verb is AUTHENTICATE or self.settings.user is None
        try:
            return await self._call(verb, request, limit, (_REQUIRE_LEADER,) if anonymous else None)
        except asyncio.CancelledError:
            # Closing a channel cancels its calls, and that is not the caller's cancellation.
            if self._closed and not cancelling():
                raise BackendError("this etcd client is closed", definite=False) from None
            raise

    async def _call(self, verb: Verb, request: Any, limit: float, fixed: Metadata | None) -> RpcReply:
        deadline = time.monotonic() + limit
        uncertain = False
        signed_in_again = False
        failures = 0
        while True:
            metadata = await self.metadata() if fixed is None else fixed
            member = self.member()
            attempt = min(self.settings.attempt_timeout, max(0.001, deadline - time.monotonic()))
            self.commands += 1
            try:
                message = await verb(member)(request, timeout=attempt, metadata=metadata)
                return RpcReply(message, uncertain)
            except grpc.aio.AioRpcError as error:
                failure = classify(error)
            if failure.advice is Advice.SIGN_IN and fixed is None and not signed_in_again:
                signed_in_again = True
                self.forget_token(metadata)
                continue
            if failure.advice is not Advice.ANOTHER_MEMBER:
                raise refusal(failure, member.endpoint, definite=not uncertain)
            uncertain = uncertain or not failure.definite
            self.leave(member, silent=failure.code is grpc.StatusCode.DEADLINE_EXCEEDED)
            failures += 1
            delay = _retry_delay(failures, len(self.settings.endpoints))
            if time.monotonic() + delay >= deadline:
                raise unavailable(failure, self.settings.endpoints, limit, definite=not uncertain)
            await asyncio.sleep(delay)

    async def _sign_in(self) -> None:
        request = rpc.AuthenticateRequest(name=self.settings.user, password=self.settings.password)
        try:
            reply = await self.call(AUTHENTICATE, request)
            self._token = reply.message.token
        except BackendError as error:
            if "authentication is not enabled" not in str(error):
                raise
            self._token = ""  # a server that asks for no password takes everybody
        finally:
            self._signing_in = None

    def _credentials(self) -> grpc.ChannelCredentials | None:
        if not self.settings.tls:
            return None
        files = (self.settings.ca_file, self.settings.key_file, self.settings.cert_file)
        try:
            ca, key, cert = (Path(file).read_bytes() if file else None for file in files)
        except OSError as missing:
            raise BackendError(
                f"the TLS file {missing.filename} cannot be read: {missing.strerror}", definite=True
            ) from None
        return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)

    async def aclose(self) -> None:
        """Close every channel; calls under way fail."""
        self._closed = True
        if self._signing_in is not None:
            self._signing_in.cancel()
        members, self._members = list(self._members.values()), {}
        if not _fork.unusable:
            for member in members:
                await member.channel.close()


def cancelling() -> bool:
    """Whether somebody cancels the current task, and not merely something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _retry_delay(failures: int, members: int) -> float:
    """No delay before a member that was not asked yet; then growing pauses with jitter."""
    rounds, position = divmod(failures, members)
    if position and not rounds:
        return 0.0
    return random.uniform(0.5, 1.0) * min(_RETRY_DELAY_MAX, _RETRY_DELAY * 2.0**rounds)
