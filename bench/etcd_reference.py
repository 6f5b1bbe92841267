"""python -m bench.etcd_reference: the etcd backend beside aetcd's Lock and the recipes it chose not to use.

python -m bench.etcd_reference      both workloads, three interleaved rounds, about two minutes

Every round of every subject is a process of its own, on a server that all of them share: what one
leaves behind (aetcd's Lock a lease per attempt) is part of what it costs.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import grpc
import uvloop
from aetcd import rpc

import asyncdlock
from bench.etcd_lock_service import LockService
from bench.subjects import LEASE, Lock
from harness import servers

RESULTS = Path(__file__).parent / "results"
OWN_KEYS, HOT_KEY = "own keys, 50 tasks", "hot key, 200 contenders"
WORKLOADS = {OWN_KEYS: 50, HOT_KEY: 200}


class Subject:
    """One way to lock. Opened once in a process, which ends without closing it."""

    name = ""
    works_on = tuple(WORKLOADS)

    def __init__(self, address: str) -> None:
        self.address = address

    async def open(self) -> None: ...

    def lock(self, key: str) -> Lock:
        raise NotImplementedError

    def commands(self) -> int | None:
        return None


class Ours(Subject):
    name = "asyncdlock"
    query = ""

    async def open(self) -> None:
        self._client = asyncdlock.connect(f"etcd://{self.address}{self.query}")

    def lock(self, key: str) -> Lock:
        return OurLock(self._client, key)

    def commands(self) -> int:
        return self._client.backend.commands


class OurLock:
    def __init__(self, client: asyncdlock.LockClient, key: str) -> None:
        self._client = client
        self._key = key

    async def acquire(self) -> int:
        self._handle = await self._client.acquire(self._key, ttl=LEASE)
        return self._handle.fence

    async def release(self) -> None:
        await self._handle.release()


class HandOff(Ours):
    name = "asyncdlock, local_handoffs=16"
    query = "?local_handoffs=16"


class PredecessorWatches(Ours):
    """Go's recipe: every contender has its place in the server's queue and watches the one in front."""

    name = "predecessor watches (Go's recipe)"
    query = "?local_queue=off"


class LeaseEach(Subject):
    """The same keys, with a lease for every acquisition and a call for every request."""

    name = "a lease per acquisition"
    works_on = (OWN_KEYS,)

    async def open(self) -> None:
        channel = grpc.aio.insecure_channel(self.address)
        self.kv, self.leases = rpc.KVStub(channel), rpc.LeaseStub(channel)

    def lock(self, key: str) -> Lock:
        return LeaseEachLock(self, f"/locks/{key}/".encode())


class LeaseEachLock:
    def __init__(self, subject: LeaseEach, prefix: bytes) -> None:
        self._subject = subject
        self._prefix = prefix

    async def acquire(self) -> int:
        granted = await self._subject.leases.LeaseGrant(rpc.LeaseGrantRequest(TTL=math.ceil(LEASE)))
        self._lease = granted.ID
        key = self._prefix + b"%x" % self._lease
        put = rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=b"owner", lease=self._lease))
        first = rpc.RequestOp(
            request_range=rpc.RangeRequest(
                key=self._prefix,
                range_end=self._prefix[:-1] + b"0",
                sort_target=rpc.RangeRequest.CREATE,
                sort_order=rpc.RangeRequest.ASCEND,
                limit=1,
            )
        )
        reply = await self._subject.kv.Txn(rpc.TxnRequest(success=[put, first]))
        assert reply.responses[1].response_range.kvs[0].key == key, "these keys are nobody else's"
        return int(reply.header.revision)

    async def release(self) -> None:
        await self._subject.leases.LeaseRevoke(rpc.LeaseRevokeRequest(ID=self._lease))


class Aetcd(Subject):
    name = "aetcd Lock"

    async def open(self) -> None:
        import aetcd

        host, port = self.address.split(":")
        self._client = aetcd.Client(host=host, port=int(port))
        await self._client.connect()

    def lock(self, key: str) -> Lock:
        return AetcdLock(self._client, key)


class AetcdLock:
    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self._key = key.encode()

    async def acquire(self) -> int:
        self._lock = self._client.lock(self._key, ttl=math.ceil(LEASE))
        # Its own time-out of 10 s would end the wait without the lock, and without saying so.
        while not await self._lock.acquire(timeout=None):
            pass
        return 0

    async def release(self) -> None:
        await self._lock.release()


class ServerSide(Subject):
    """etcd's own Lock service: the server stands in the queue for the client."""

    name = "server-side Lock"

    async def open(self) -> None:
        self._service = LockService(self.address)

    def lock(self, key: str) -> Lock:
        # Its leases are not kept alive here: they outlive the measurement.
        return self._service.lock(key, lease_ttl=3600)


SUBJECTS: dict[str, type[Subject]] = {
    subject.name: subject for subject in (Ours, HandOff, PredecessorWatches, LeaseEach, Aetcd, ServerSide)
}


class Round(NamedTuple):
    """What one process measured."""

    sections_per_s: float
    cpu_us: float
    commands: float | None
    starved: int


async def measure(subject: Subject, workload: str, seconds: float) -> Round:
    """Contenders that acquire and release until the time is over, on own keys or on one."""
    contenders = WORKLOADS[workload]
    sections = [0] * contenders
    await subject.open()

    async def contend(number: int) -> None:
        # Keys of this process alone: another one's locks live on for up to a lease after its end.
        lock = subject.lock(f"{os.getpid()}:{'hot' if workload == HOT_KEY else number}")
        while True:
            await lock.acquire()
            sections[number] += 1
            await lock.release()

    tasks = [asyncio.create_task(contend(number)) for number in range(contenders)]
    await asyncio.sleep(1.0)  # leases are granted, queues are filled
    before, commands = list(sections), subject.commands()
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    for task in tasks:
        if task.done():
            task.result()  # nobody ends but by an error
    each = [now - then for now, then in zip(sections, before, strict=True)]
    total = sum(each)
    sent = subject.commands()
    per_section = None if sent is None or commands is None or not total else (sent - commands) / total
    return Round(total / took, 1e6 * used / max(1, total), per_section, each.count(0))


async def measure_and_exit(subject: Subject, workload: str, seconds: float) -> None:
    """Print what was measured. The contenders are left as they are: some cannot be cancelled."""
    json.dump(await measure(subject, workload, seconds), sys.stdout)
    sys.stdout.flush()
    os._exit(0)


async def compare(rounds: int, seconds: float) -> dict[str, Any]:
    """All subjects, one after the other, `rounds` times; the medians."""
    measured: dict[tuple[str, str], list[Round]] = defaultdict(list)
    async with servers.etcd(flavour="wheel") as cluster:
        for number in range(rounds):
            for workload in WORKLOADS:
                for name, subject in SUBJECTS.items():
                    if workload in subject.works_on:
                        _say(f"round {number + 1} of {rounds}: {workload}: {name}")
                        out = await _in_a_process("--one", name, workload, cluster[0].address, str(seconds))
                        measured[workload, name].append(Round(*json.loads(out)))
    figures: dict[str, Any] = {}
    for (workload, name), done in measured.items():
        columns = zip(*done, strict=True)
        middle = [None if None in column else median(column) for column in columns]
        figures.setdefault(workload, {})[name] = dict(zip(Round._fields, middle, strict=True))
    return figures


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def _in_a_process(*arguments: str) -> bytes:
    """This module once more, in a child."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.etcd_reference",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    if child.returncode:
        raise SystemExit(f"{arguments[1]}: {err.decode()[-2000:]}")
    return out


def table(figures: dict[str, Any]) -> str:
    """The figures as Markdown, each workload against aetcd's Lock and against predecessor watches."""
    lines = []
    for workload, subjects in figures.items():
        lines += [f"## {workload}", ""]
        lines += ["| | sections/s | × aetcd | × predecessor watches | requests | client CPU µs |"]
        lines += ["|---|---|---|---|---|---|"]
        for name, one in sorted(subjects.items(), key=lambda item: -item[1]["sections_per_s"]):
            rate = one["sections_per_s"]
            cells = [f"{rate:,.0f}"]
            for other in (Aetcd.name, PredecessorWatches.name):
                base = subjects[other]["sections_per_s"]
                cells.append(f"{rate / base:.1f}" if base else "–")
            cells.append("" if one["commands"] is None else f"{one['commands']:.2f}")
            cells.append(f"{one['cpu_us']:,.0f}")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.etcd_reference", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, workload, address, seconds = options.one
        uvloop.run(measure_and_exit(SUBJECTS[name](address), workload, float(seconds)))
    figures = asyncio.run(compare(options.rounds, options.seconds))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "etcd_reference.json").write_text(json.dumps(figures, indent=1) + "\n")
    (options.out / "etcd_reference.md").write_text(
        "# etcd: ours and the alternatives\n\n" + table(figures) + "\n"
    )
    print(table(figures))


if __name__ == "__main__":
    main()
