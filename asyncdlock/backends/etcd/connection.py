"""The connection to a cluster: one channel per member, failover, authentication, TLS, time limits."""

import asyncio
import random
import ssl
import time
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from aetcd import rpc

from asyncdlock import _process
from asyncdlock.backends.etcd.failures import Advice, classify, refusal, unavailable
from asyncdlock.backends.etcd.settings import Settings
from asyncdlock.backends.etcd.transport import library
from asyncdlock.backends.etcd.transport.channel import Http2Channel
from asyncdlock.backends.etcd.transport.conversation import Metadata, RpcFailed
from asyncdlock.errors import BackendError

# A member without a leader refuses at once instead of letting the request hang.
_REQUIRE_LEADER = ("hasleader", "true")
_ANONYMOUS: Metadata = (_REQUIRE_LEADER,)
_RETRY_DELAY = 0.05
_RETRY_DELAY_MAX = 0.5


class EtcdMember:
    """One endpoint: its channel and etcd's services on it."""

    def __init__(self, endpoint: str, channel: Http2Channel | library.LibraryChannel) -> None:
        self.endpoint = endpoint
        self.channel = channel
        self.kv: Any = rpc.KVStub(channel)
        self.lease: Any = rpc.LeaseStub(channel)
        self.watch: Any = rpc.WatchStub(channel)
        self.auth: Any = rpc.AuthStub(channel)


Verb = Callable[[EtcdMember], Any]
TXN: Verb = attrgetter("kv.Txn")
RANGE: Verb = attrgetter("kv.Range")
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


class Begun(NamedTuple):
    """A request that was sent without a task, and what became of it."""

    at: float
    member: EtcdMember
    metadata: Metadata
    failure: RpcFailed


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
        self._forks = _process.forks

    @property
    def endpoint(self) -> str:
        """The member that the next request goes to."""
        return self.settings.endpoints[self._current]

    def member(self) -> EtcdMember:
        """The current member; its channel connects by itself.

        :raises BackendError: closed, forked, or the TLS files cannot be read.
        """
        if self._forks != _process.forks or (self.settings.transport == "grpc" and library.unusable()):
            raise BackendError(
                "this client belongs to the process that this one was forked from, or gRPC's library does: "
                "connect() after fork, and with transport=grpc fork before the first lock is taken",
                definite=True,
            )
        if self._closed:
            raise BackendError("this etcd client is closed", definite=True)
        endpoint = self.endpoint
        member = self._members.get(endpoint)
        if member is None:
            member = self._members[endpoint] = EtcdMember(endpoint, self._channel(endpoint))
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
        while (ready := self._ready_metadata()) is None:
            if self._signing_in is None:
                self._signing_in = asyncio.create_task(self._sign_in())
            await asyncio.shield(self._signing_in)
        return ready

    def _ready_metadata(self) -> Metadata | None:
        if self.settings.user is None:
            return _ANONYMOUS
        if self._token is None:
            return None
        return (_REQUIRE_LEADER, ("token", self._token)) if self._token else _ANONYMOUS

    def forget_token(self, used: Metadata) -> None:
        """The token in `used` was refused; the next request signs in again."""
        if ("token", self._token) in used:
            self._token = None

    def begin(self, verb: Verb, request: Any, told: Callable[[Any, Begun | None], None]) -> bool:
        """Send `request` at once, if everything is there that it takes; `told` takes the answer.

        It is sent once: after a failure `told` takes that, and `call` goes on from there.
        """
        member = self._members.get(self.endpoint)
        if member is None or self._closed or self._forks != _process.forks:
            return False
        metadata = self._ready_metadata()
        if metadata is None:
            return False
        at = time.monotonic()

        def answered(message: Any, failure: RpcFailed | None) -> None:
            told(message, None if failure is None else Begun(at, member, metadata, failure))

        patience = min(self.settings.attempt_timeout, self.settings.timeout)
        begun: bool = verb(member).begin(request, timeout=patience, metadata=metadata, told=answered)
        self.commands += begun
        return begun

    async def call(
        self, verb: Verb, request: Any, *, timeout: float | None = None, begun: Begun | None = None
    ) -> RpcReply:
        """The answer to `request` from the first member that gives one, after it has failed once as `begun`.

        :raises BackendUnavailable: nobody answered within `timeout`.
        :raises BackendError: etcd refused the request.
        """
        limit = self.settings.timeout if timeout is None else timeout
        anonymous = verb is AUTHENTICATE or self.settings.user is None
        try:
            return await self._call(verb, request, limit, _ANONYMOUS if anonymous else None, begun)
        except asyncio.CancelledError:
            # Closing a channel cancels its calls, and that is not the caller's cancellation.
            if self._closed and not cancelling():
                raise BackendError("this etcd client is closed", definite=False) from None
            raise

    async def _call(
        self, verb: Verb, request: Any, limit: float, fixed: Metadata | None, begun: Begun | None
    ) -> RpcReply:
        deadline = (time.monotonic() if begun is None else begun.at) + limit
        uncertain = False
        signed_in_again = False
        failures = 0
        while True:
            if begun is not None:
                (_, member, metadata, error), begun = begun, None
                failure = classify(error)
            else:
                try:
                    metadata = await self.metadata() if fixed is None else fixed
                    member = self.member()
                except BackendError as refused:
                    # This copy was not sent. An earlier one may have been.
                    raise type(refused)(str(refused), definite=not uncertain) from None
                attempt = min(self.settings.attempt_timeout, max(0.001, deadline - time.monotonic()))
                self.commands += 1
                try:
                    message = await verb(member)(request, timeout=attempt, metadata=metadata)
                    return RpcReply(message, uncertain)
                except RpcFailed as failed:
                    failure = classify(failed)
            if failure.advice is Advice.SIGN_IN and fixed is None and not signed_in_again:
                signed_in_again = True
                self.forget_token(metadata)
                continue
            if failure.advice is not Advice.ANOTHER_MEMBER:
                raise refusal(failure, member.endpoint, definite=failure.definite and not uncertain)
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

    def _channel(self, endpoint: str) -> Http2Channel | library.LibraryChannel:
        tls = self.settings.tls
        try:
            if self.settings.transport == "grpc":
                return library.LibraryChannel(endpoint, self._credentials() if tls else None)
            return Http2Channel(endpoint, self._tls_context() if tls else None)
        except ssl.SSLError as error:
            raise BackendError(f"the TLS files cannot be used: {error}", definite=True) from None
        except OSError as missing:
            raise BackendError(
                f"the TLS file {missing.filename} cannot be read: {missing.strerror}", definite=True
            ) from None

    def _tls_context(self) -> ssl.SSLContext:
        settings = self.settings
        ca = Path(settings.ca_file).read_text() if settings.ca_file else None
        context = ssl.create_default_context(cadata=ca)
        context.set_alpn_protocols(["h2"])
        if settings.cert_file and settings.key_file:
            for file in (settings.cert_file, settings.key_file):
                Path(file).open("rb").close()  # names the file that cannot be read; load_cert_chain does not
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return context

    def _credentials(self) -> grpc.ChannelCredentials:
        files = (self.settings.ca_file, self.settings.key_file, self.settings.cert_file)
        ca, key, cert = (Path(file).read_bytes() if file else None for file in files)
        return grpc.ssl_channel_credentials(root_certificates=ca, private_key=key, certificate_chain=cert)

    async def aclose(self) -> None:
        """Close every channel; calls under way fail."""
        self._closed = True
        if self._signing_in is not None:
            self._signing_in.cancel()
        members, self._members = list(self._members.values()), {}
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
