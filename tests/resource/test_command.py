"""The resource as a command: what it says, how it ends, what it publishes."""

import asyncio
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from harness import resource, servers
from harness.resource import ResourceProcess
from harness.resource.client import ResourceClient

COMMAND = [sys.executable, "-m", "harness", "resource"]


def fails(*arguments: str) -> str:
    """The one sentence that it ends with, code 2."""
    ended = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    (sentence,) = ended.stderr.splitlines()
    return sentence


def test_a_taken_port_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert fails("--listen", address, "--store", "memory") == (
            f"harness: cannot listen on {address}: address already in use; choose another with --listen"
        )


@pytest.mark.parametrize(
    "address", ["8080", ":8080", "127.0.0.1", "127.0.0.1:http", "::1:80", "[::1]", "h:65536"]
)
def test_a_bad_address_is_one_sentence_and_exit_2(address: str) -> None:
    sentence = fails("--listen", address, "--store", "memory")
    assert sentence.startswith(f"harness: {address!r} is no address")


def test_an_unknown_host_is_one_sentence_and_exit_2() -> None:
    assert "cannot listen on nowhere.invalid:1: " in fails(
        "--listen", "nowhere.invalid:1", "--store", "memory"
    )


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        ("redis:x", "is no store: use memory, sqlite:PATH, postgres:DSN or s3:URL"),
        ("memory:x", "takes no path"),
        ("sqlite:", "is no store"),
        ("sqlite:x?sync=off", "is no store"),
        ("sqlite:missing/folder/x.db", "unable to open database file"),
        ("sqlite:.", "unable to open database file"),
        ("sqlite:text.db", "file is not a database"),
        ("sqlite:stranger.db", "the database of another program"),
        ("postgres:nonsense", "cannot open the PostgreSQL store"),
        ("postgres://user:secret@127.0.0.1:1/x", "cannot open the PostgreSQL store 'postgres://user:***@"),
    ],
)
def test_a_store_that_cannot_be_opened_is_one_sentence_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.db").write_text("not a database " * 100)
    with sqlite3.connect("stranger.db") as stranger:
        stranger.execute("CREATE TABLE mine (x)")
    stranger.close()
    sentence = fails("--listen", "127.0.0.1:0", "--store", store)
    assert complaint in sentence
    assert "secret" not in sentence


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_store_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch(mode=0o400)
    tmp_path.chmod(0o500)
    assert "SQLite store" in fails("--listen", "127.0.0.1:0", "--store", f"sqlite:{tmp_path / 'x.db'}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_exit_0(number: signal.Signals, tmp_path: Path) -> None:
    arguments = ["--listen", "127.0.0.1:0", "--store", f"sqlite:{tmp_path / 'x.db'}"]
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert re.fullmatch(
            r"resource listening on http://127\.0\.0\.1:[1-9]\d* \(store .*, fence on\)\n", line
        )
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == ""
    assert not (tmp_path / "x.db-wal").exists(), "a clean stop leaves one file"


async def test_it_listens_on_ipv6_when_told(tmp_path: Path) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    arguments = ["--listen", "[::1]:0", "--store", "memory"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "http://[::1]:" in process.stdout.readline()
        process.terminate()


async def test_promtool_is_content_with_the_metrics(http: ResourceClient, key: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        raise servers.ServerMissing(
            "No promtool on PATH: install Prometheus (Debian: apt-get install prometheus)."
        )
    await http.put(key, fence=2)
    await http.put(key, fence=1)
    exposition = (await http.send("GET", "/metrics")).body
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=exposition, capture_output=True, timeout=60
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


async def test_health_names_mode_and_store(http: ResourceClient, any_resource: ResourceProcess) -> None:
    answer = await http.send("GET", "/healthz")
    assert answer.status == 200
    assert answer.json == {
        "status": "ok",
        "fence": "on",
        "store": any_resource.store.partition(":")[0],
        "pid": any_resource.pid,
    }


async def test_the_description_fits_the_answers(http: ResourceClient, key: str) -> None:
    """Each answer has a documented status, and its JSON the documented form."""
    described = (await http.send("GET", "/openapi.json")).json
    await http.put(key, b"v", fence=5)
    answers = [
        ("/r/{key}", "put", await http.put(key, b"w", fence=6)),
        ("/r/{key}", "put", await http.put(key, b"w", fence=6, x_fence_seq=0)),
        ("/r/{key}", "put", await http.put(key, b"v", fence=7, if_match='"9"')),
        ("/r/{key}", "put", await http.put(key, b"v", fence="x")),
        ("/r/{key}", "put", await http.put(key, bytes(2 << 20), fence=8)),
        ("/r/{key}", "get", await http.get(key, accept="application/json")),
        ("/r/{key}", "get", await http.get(key, fence=1)),
        ("/r/{key}", "get", await http.get(f"{key}-missing")),
        ("/log", "get", await http.send("GET", "/log?after=-")),
        ("/healthz", "get", await http.send("GET", "/healthz")),
    ]
    assert {answer.status for _, _, answer in answers} == {200, 400, 404, 409, 412, 413}
    for path, method, answer in answers:
        response = described["paths"][path][method]["responses"][str(answer.status)]
        schema = response["content"]["application/json"]["schema"] | {"components": described["components"]}
        jsonschema.validate(answer.json, schema)
    row = described["components"]["schemas"]["LogRow"] | {"additionalProperties": False}
    for entry in await http.log_of(key):
        jsonschema.validate(entry, row)


async def test_a_spawned_resource_dies_with_its_parent(tmp_path: Path) -> None:
    """Also when the parent has no time for goodbyes."""
    program = (
        "import asyncio, os, signal\n"
        "from harness import resource\n"
        "async def main():\n"
        "    async with resource.spawn(store='memory') as node:\n"
        "        print(node.pid, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    pid = int(parent.stdout)
    with pytest.raises(ProcessLookupError):
        for _ in range(6000):
            os.kill(pid, 0)
            await asyncio.sleep(0.01)


async def test_a_resource_restarts_on_the_same_port_and_store() -> None:
    async with resource.spawn() as node, ResourceClient(node.url) as client:
        await client.put("key", b"v", fence=7)
        url, pid = node.url, node.pid
        node.kill()
        await node.restart()
        assert node.url == url
        assert node.pid != pid
        assert (await client.get("key")).body == b"v"
