"""A password on the command line reaches neither the files of a run nor the terminal."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from harness import resource, servers

PASSWORD = "s3cr3t-w0rd"


def harness(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run([sys.executable, "-m", "harness", *arguments], capture_output=True, timeout=120)


def contents(file: Path) -> bytes:
    return gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()


async def test_a_run_shows_no_password(tmp_path: Path) -> None:
    async with servers.redis(password=PASSWORD) as redis, resource.spawn(store="memory") as node:
        ended = harness(
            *("--url", f"redis://{redis.address}/0", "--option", f"password={PASSWORD}"),
            *("--resource-url", f"http://user:{PASSWORD}@{node.address}", "--out", str(tmp_path)),
            *("--contenders", "5", "--rate", "20", "--duration", "1s"),
        )
    assert ended.returncode in (0, 3), ended.stderr
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {"summary.json", "report.html"} <= {file.name for file in files}
    for text in (ended.stdout, ended.stderr, *map(contents, files)):
        assert PASSWORD.encode() not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("--backend", "memory", "--resource-url", f"http://user:{PASSWORD}@127.0.0.1:1"),
        ("--backend", "memory", "--resource-url", f"ftp://user:{PASSWORD}@127.0.0.1:1"),
        ("--backend", "memory", "--resource-url", f"http://user:{PASSWORD}@"),
        ("--backend", "memory", "--resource-url", f"http://user:{PASSWORD}@127.0.0.1:port"),
        ("resource", "--store", f"postgres:host=127.0.0.1 port=1 password={PASSWORD}"),
        ("resource", "--store", f"postgres://user:{PASSWORD}@127.0.0.1:1/x"),
        ("resource", "--store", f"nothing:password={PASSWORD}"),
    ],
)
def test_no_complaint_shows_a_password(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ended = harness(*arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"harness: ")
    assert PASSWORD.encode() not in ended.stdout + ended.stderr
