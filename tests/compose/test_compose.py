"""compose/ without a Docker engine: valid, pinned, on loopback, and in step with harness/servers."""

import argparse
import asyncio
import contextlib
import random
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import asyncdlock
from asyncdlock.backend import open_backend
from harness.cli import resource as resource_command
from harness.servers.errors import ServerMissing
from harness.servers.etcd_cluster import EtcdCluster
from harness.servers.redis_node import RedisNode
from harness.servers.s3_node import S3Node
from harness.servers.zookeeper_ensemble import ZooKeeperEnsemble
from tests.compose.specification import service_names

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
TEXT = (COMPOSE / "compose.yaml").read_text()
README = (COMPOSE / "README.md").read_text()
DOCKERFILE = (COMPOSE / "Dockerfile").read_text()

PROFILES = {"redis", "redlock", "sentinel", "cluster", "etcd", "zookeeper", "postgres", "s3", "harness"}


def interpolated(text: str) -> str:
    """As Compose reads it when no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


MODEL: dict[str, Any] = yaml.safe_load(interpolated(TEXT))
SERVICES: dict[str, dict[str, Any]] = MODEL["services"]
LASTING = sorted(SERVICES.keys() - {"harness", "cluster"})

# The part of the Compose specification that is used here, and nothing else: a misspelt key fails.
_STRINGS = {"type": "array", "items": {"type": "string"}}
_DURATION = {"type": "string", "pattern": r"^\d+(ms|s|m)$"}
SCHEMA = {
    "type": "object",
    "required": ["name", "services"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
        "services": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-zA-Z0-9._-]+$"},
            "additionalProperties": {
                "type": "object",
                "required": ["image"],
                "additionalProperties": False,
                "properties": {
                    "image": {"type": "string"},
                    "build": {
                        "type": "object",
                        "required": ["context", "dockerfile"],
                        "additionalProperties": False,
                        "properties": {"context": {"type": "string"}, "dockerfile": {"type": "string"}},
                    },
                    "cap_drop": _STRINGS,
                    "command": _STRINGS,
                    "depends_on": {
                        "type": "object",
                        "additionalProperties": {
                            "type": "object",
                            "required": ["condition"],
                            "additionalProperties": False,
                            "properties": {
                                "condition": {"enum": ["service_healthy", "service_completed_successfully"]},
                                "required": {"type": "boolean"},
                            },
                        },
                    },
                    "environment": {"type": "object", "additionalProperties": {"type": "string"}},
                    "healthcheck": {
                        "type": "object",
                        "required": ["test", "interval", "timeout", "retries"],
                        "additionalProperties": False,
                        "properties": {
                            "test": {**_STRINGS, "minItems": 2},
                            "interval": _DURATION,
                            "timeout": _DURATION,
                            "retries": {"type": "integer", "minimum": 1},
                        },
                    },
                    "init": {"type": "boolean"},
                    "ports": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                    "profiles": {**_STRINGS, "uniqueItems": True},
                    "read_only": {"type": "boolean"},
                    "security_opt": _STRINGS,
                    "tmpfs": _STRINGS,
                    "volumes": _STRINGS,
                },
            },
        },
    },
}


def test_the_file_uses_only_keys_that_compose_knows() -> None:
    jsonschema.validate(MODEL, SCHEMA)


def test_the_file_is_what_the_compose_specification_allows() -> None:
    assert service_names(MODEL) == sorted(SERVICES)


# Promises about every service


@pytest.mark.parametrize("service", [*LASTING, "cluster"])
def test_every_image_is_pinned_to_a_version_and_a_digest(service: str) -> None:
    image, _, digest = SERVICES[service]["image"].partition("@")
    name, _, tag = image.rpartition(":")
    if "build" in SERVICES[service]:
        assert (tag, digest) == ("local", "")
    else:
        assert name
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
        whole = r"\d+\.\d+$" if service == "s3" else r"v?\d+\.\d+\.\d+"  # SeaweedFS counts in two numbers
        if service == "postgres":
            whole = r"\d+\.\d+-"  # and so does PostgreSQL
        assert re.match(whole, tag), f"{service} runs whatever {tag!r} is today"


def test_the_versions_are_those_that_are_asked_for() -> None:
    assert SERVICES["redis"]["image"].startswith("redis:7.")
    assert SERVICES["zookeeper"]["image"].startswith("zookeeper:3.8.")
    # 3.5.1, which the wheel brings, can lose consistency when members are killed; later ones cannot.
    [version] = re.findall(r":v([\d.]+)@", SERVICES["etcd1"]["image"])
    major, minor, patch = map(int, version.split("."))
    assert (major, minor) == (3, 5)
    assert patch >= 6


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_ports_are_published_on_loopback_alone(service: str) -> None:
    for port in SERVICES[service].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), f"{service} publishes {port}"


def test_no_two_services_want_the_same_port() -> None:
    published = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(published) == len(set(published))


@pytest.mark.parametrize("service", LASTING)
def test_every_server_has_a_health_check_without_a_shell(service: str) -> None:
    assert SERVICES[service]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_profiles_volumes_and_dependencies_exist(service: str) -> None:
    definition = SERVICES[service]
    assert set(definition.get("profiles", [])) <= PROFILES
    assert {volume.partition(":")[0] for volume in definition.get("volumes", [])} <= MODEL["volumes"].keys()
    for other, dependency in definition.get("depends_on", {}).items():
        ends = dependency["condition"] == "service_completed_successfully"
        assert ends == ("healthcheck" not in SERVICES[other])
        # Compose refuses a file in which a required service has a profile that is not active.
        required = dependency.get("required", True)
        assert not required or SERVICES[other].get("profiles", []) in ([], definition["profiles"])


def test_the_harness_waits_for_every_server() -> None:
    waited_for = set(SERVICES["harness"]["depends_on"])
    for name in tuple(waited_for):
        waited_for |= SERVICES[name].get("depends_on", {}).keys()
    assert waited_for == {*LASTING, "cluster"}


def test_only_the_resource_runs_without_being_asked_for() -> None:
    assert [name for name, service in SERVICES.items() if "profiles" not in service] == ["resource"]


# The image


def test_the_image_is_pinned_and_does_not_run_as_root() -> None:
    [base] = re.findall(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert users
    assert users[-1] not in {"root", "0"}
    for service in ("resource", "harness"):
        assert SERVICES[service]["cap_drop"] == ["ALL"]
        assert SERVICES[service]["read_only"]
        assert SERVICES[service]["security_opt"] == ["no-new-privileges:true"]


def test_what_the_image_copies_exists_and_is_not_ignored() -> None:
    ignore = (COMPOSE / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    copied = {
        source
        for sources in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE)
        for source in sources.split()
    }
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)
    assert (ROOT / SERVICES["harness"]["build"]["dockerfile"]).samefile(COMPOSE / "Dockerfile")


def test_writable_volumes_of_the_image_belong_to_its_user() -> None:
    """A new named volume takes its owner from the folder in the image."""
    [owned] = re.findall(r"install --directory --owner=harness --group=harness (.+)", DOCKERFILE)
    for service in ("resource", "harness"):
        for volume in SERVICES[service]["volumes"]:
            assert volume.partition(":")[2] in owned.split()


def test_the_resource_is_started_with_flags_that_it_knows() -> None:
    subcommand, *arguments = SERVICES["resource"]["command"]
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    resource_command.add_arguments(parser)
    parsed = parser.parse_args(arguments)
    assert subcommand == "resource"
    assert parsed.listen.endswith(SERVICES["resource"]["ports"][0].rpartition(":")[2])
    assert parsed.store.startswith("sqlite:/data/")


# In step with harness/servers


@pytest.mark.parametrize("service", ["redis", "redlock1", "redlock2", "redlock3", "redlock4", "redlock5"])
def test_redis_has_the_settings_of_the_harness(service: str) -> None:
    node = RedisNode()
    try:
        places = {"bind", "port", "dir", "unixsocket"}  # a container has its own
        ours = {name: words for name, *words in node._directives() if name not in places}
    finally:
        node.close()
    program, *arguments = SERVICES[service]["command"]
    flags = [argument.removeprefix("--") for argument in arguments[::2]]
    assert program == "redis-server"
    assert dict(zip(flags, ([value] for value in arguments[1::2]), strict=True)) == ours


async def started(command: list[str], address: str, folder: Path) -> asyncio.subprocess.Process:
    """What a container would run, here: at an address of its own, with a folder of its own for /data."""
    folder.mkdir()
    words = [word.replace("/data/", f"{folder}/") for word in command]
    if words[0] == "sh":
        words[2] += f" --bind {address}"
    else:
        words += ["--bind", address]
        if "--cluster-enabled" in words:
            words += ["--cluster-announce-ip", address]  # a container has one; here all leave by 127.0.0.1
    return await asyncio.create_subprocess_exec(*words, cwd=folder, stdout=asyncio.subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def containers(profile: str, folder: Path) -> AsyncIterator[dict[str, str]]:
    """The lasting servers of a profile as processes, and their addresses on loopback."""
    if not (shutil.which("redis-server") and shutil.which("redis-cli")):
        pytest.skip("apt-get install redis-server")
    names = [name for name in LASTING if SERVICES[name].get("profiles") == [profile]]
    network = random.Random().randrange(2, 250)
    addresses = {name: f"127.{network}.0.{number}" for number, name in enumerate(names, 1)}
    children = []
    try:
        for name in names:
            command = [
                re.sub(r"\bprimary\b", addresses.get("primary", ""), word)
                for word in SERVICES[name]["command"]
            ]
            children.append(await started(command, addresses[name], folder / name))
        yield addresses
    finally:
        for child in children:
            child.kill()
        for child in children:
            await child.wait()


async def until_connected(address: str) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(address, 6379)
                writer.close()
                return
            await asyncio.sleep(0.05)


async def until_locked(url: str) -> None:
    """The library takes a lock there; until the servers have found each other it cannot."""
    async with asyncio.timeout(90), asyncdlock.connect(url) as locks:
        while True:
            with contextlib.suppress(asyncdlock.LockError):
                async with locks.hold("compose", ttl=5.0, timeout=5.0) as handle:
                    assert handle.fence > 0
                    return
            await asyncio.sleep(0.2)


async def test_the_sentinels_of_the_file_lead_to_the_primary(tmp_path: Path) -> None:
    async with containers("sentinel", tmp_path) as addresses:
        sentinels = ",".join(f"{addresses[f'sentinel{number}']}:26379" for number in (1, 2, 3))
        await until_locked(f"redis-queue://{sentinels}/0?topology=sentinel&service=mymaster")


async def test_the_cluster_of_the_file_forms(tmp_path: Path) -> None:
    async with containers("cluster", tmp_path) as addresses:
        nodes = [f"{address}:6379" for address in addresses.values()]
        shell, flag, script = SERVICES["cluster"]["command"]
        script = re.sub(r"\$\$\(.*\)", " ".join(nodes), script, flags=re.DOTALL)
        for address in addresses.values():
            await until_connected(address)
        forming = await asyncio.create_subprocess_exec(
            shell, flag, f"exec {script}", stdout=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(90):
                assert await forming.wait() == 0
        finally:
            if forming.returncode is None:
                forming.kill()
                await forming.wait()
        await until_locked(f"redis-queue://{','.join(nodes)}/0?topology=cluster")


def test_s3_has_the_settings_of_the_harness() -> None:
    try:
        node = S3Node()
    except ServerMissing as missing:
        pytest.skip(str(missing))
    try:
        places = ("-dir=", "-ip", "-master.port", "-volume.port", "-filer.port", "-s3.port")
        words = node._command()
        ours = [word for word in words[words.index("server") :] if not word.startswith(places)]
    finally:
        node.close()
    assert [word for word in SERVICES["s3"]["command"] if not word.startswith(places)] == ours


@pytest.fixture
def etcd_cluster_unstarted() -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(3)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("service", ["etcd1", "etcd2", "etcd3"])
def test_etcd_has_the_settings_of_the_harness(service: str, etcd_cluster_unstarted: EtcdCluster) -> None:
    flags = dict(argument.split("=", 1) for argument in etcd_cluster_unstarted[0]._command()[1:])
    ours = {
        f"ETCD_{flag.removeprefix('--').replace('-', '_').upper()}": value for flag, value in flags.items()
    }
    theirs = SERVICES[service]["environment"]
    assert theirs.keys() == ours.keys()
    for setting in ("ETCD_HEARTBEAT_INTERVAL", "ETCD_ELECTION_TIMEOUT", "ETCD_LOGGER", "ETCD_LOG_LEVEL"):
        assert theirs[setting] == ours[setting]
    assert theirs["ETCD_NAME"] == service
    assert theirs["ETCD_ADVERTISE_CLIENT_URLS"] == f"http://{service}:2379"
    assert f"{service}={theirs['ETCD_INITIAL_ADVERTISE_PEER_URLS']}" in theirs["ETCD_INITIAL_CLUSTER"].split(
        ","
    )


def test_zookeeper_has_the_settings_of_the_harness() -> None:
    ensemble = ZooKeeperEnsemble(1)
    try:
        places = {"dataDir", "clientPort", "clientPortAddress"}
        settings = dict(line.split("=", 1) for line in ensemble[0]._settings())
    finally:
        ensemble.close()
    variables = {
        "tickTime": "ZOO_TICK_TIME",
        "initLimit": "ZOO_INIT_LIMIT",
        "syncLimit": "ZOO_SYNC_LIMIT",
        "maxClientCnxns": "ZOO_MAX_CLIENT_CNXNS",
        "admin.enableServer": "ZOO_ADMINSERVER_ENABLED",
        "4lw.commands.whitelist": "ZOO_4LW_COMMANDS_WHITELIST",
    }
    environment = dict(SERVICES["zookeeper"]["environment"])
    theirs = dict(pair.split("=", 1) for pair in environment.pop("ZOO_CFG_EXTRA").split())
    theirs |= {name: environment.pop(variable) for name, variable in variables.items()}
    assert not environment
    assert theirs == {name: value for name, value in settings.items() if name not in places}


# What the README says


def commands_with_urls() -> Iterator[tuple[str, str]]:
    for command in re.findall(r"\| `([^`]*harness[^`]*)` \|", README):
        words = shlex.split(command)
        if "--url" in words:
            yield command, words[words.index("--url") + 1]


@pytest.mark.parametrize(("command", "url"), list(commands_with_urls()))
def test_the_urls_of_the_readme_reach_what_is_published(command: str, url: str) -> None:
    open_backend(url, {})  # the library accepts it
    hosts = re.sub(r"^[a-z-]+://|/0(\?.*)?$", "", url).split(",")
    if "topology" in url:
        hosts = [host.partition(":")[0] for host in hosts]
    published = {
        port.rpartition(":")[0] for service in SERVICES.values() for port in service.get("ports", [])
    }
    if command.startswith("docker"):
        [profile] = re.findall(r"--profile (\w+)", command)
        assert all(profile in SERVICES[host]["profiles"] for host in hosts)
        members = [name for name, service in SERVICES.items() if profile in service.get("profiles", [])]
        if profile in ("sentinel", "cluster"):  # the others of the profile are found through these
            assert set(hosts) < set(members)
        else:
            assert hosts == members
    else:
        assert set(hosts) <= published


def test_the_readme_names_every_server_profile() -> None:
    assert {profile for profile in PROFILES if f"| `{profile}` |" in README} == PROFILES - {"harness"}
