"""Go's concurrency.Mutex as a subject: built from bench/go by whoever measures, a process of its own."""

import asyncio
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

from bench.contest import tally_of
from bench.work import Tally, Work

NAME = "Go concurrency.Mutex"
_SOURCE = Path(__file__).parent / "go" / "etcd_mutex.go"
# Where Debian's golang-etcd-server-dev puts etcd's client.
_GOPATH = Path("/usr/share/gocode")
_CLIENT = "src/go.etcd.io/etcd/clientv3/concurrency"


class GoMissing(Exception):
    """It cannot be built here; says what is missing."""


async def build(folder: Path) -> Path:
    """The program, compiled into `folder`.

    :raises GoMissing: Go or etcd's client for it is not installed.
    """
    if shutil.which("go") is None:
        raise GoMissing("no go on PATH: apt-get install golang-go")
    if not (_GOPATH / _CLIENT).is_dir():
        raise GoMissing(
            "no etcd client for Go: apt-get install golang-etcd-server-dev golang-go.uber-zap-dev"
        )
    program = folder / "etcd_mutex"
    how = {"GO111MODULE": "off", "GOPATH": str(_GOPATH), "GOFLAGS": ""}
    compiler = await asyncio.create_subprocess_exec(
        *("go", "build", "-o", str(program), str(_SOURCE)),
        env=os.environ | how,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await compiler.communicate()
    if compiler.returncode:
        raise GoMissing(f"go build failed: {said.decode()[-500:]}")
    return program


async def run(program: Path, job: Work) -> Tally:
    """Let it do the work.

    :raises RuntimeError: it failed; carries what it said.
    """
    return await tally_of([str(program), json.dumps(asdict(job))], job.subject)
