"""python -m bench.etcd_reference: the etcd backend beside Go's Mutex, aetcd's Lock and other recipes.

python -m bench.etcd_reference                 all workloads, three interleaved rounds, about eight minutes
python -m bench.etcd_reference --only hot      workloads whose name contains a word

Every round of every subject is a process of its own on a fresh server: what a subject leaves behind (aetcd's
Lock a lease per attempt) is its own cost and nobody else's. Writes bench/results/etcd.json and etcd.md, with
the command, the machine and the versions. Go's Mutex takes part where Debian's golang-go and
golang-etcd-server-dev are installed; else the table says why it does not.
"""

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import psutil

from bench import go_subject
from bench.contest import run_in_process
from bench.etcd_subjects import ALONE, ON_A_HOT_KEY, ON_OWN_KEYS, OVER_PROCESSES, Aetcd, Go
from bench.figures import Figures, figures, medians, remark
from bench.save import add_output, show
from bench.subject import Subject
from bench.surroundings import describe, in_words
from bench.work import Work
from harness import servers
from harness.servers import EtcdNode

_RAMP = 1.0  # leases are granted, queues are filled
_START = 3.0  # processes are started
_COLUMNS = (
    ("sections/s", "sections_per_s", "{:,.0f}"),
    ("wait p50 ms", "wait_p50_ms", "{:.1f}"),
    ("p99 ms", "wait_p99_ms", "{:.1f}"),
    ("Jain", "jain", "{:.3f}"),
    ("requests", "commands_per_section", "{:.2f}"),
    ("client CPU µs", "client_cpu_us", "{:,.0f}"),
    ("server CPU µs", "server_cpu_us", "{:,.0f}"),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """How many contend in each process, for what, and who can do it."""

    name: str
    contenders: int
    hot: bool
    subjects: tuple[type[Subject], ...]
    processes: int = 1

    @property
    def start(self) -> float:
        """Seconds until all processes are up and contend; one alone need not wait for others."""
        return _START if self.processes > 1 else 0.0


WORKLOADS = (
    Workload("own keys, 1 task", 1, hot=False, subjects=ALONE),
    Workload("own keys, 50 tasks", 50, hot=False, subjects=ON_OWN_KEYS),
    Workload("hot key, 200 contenders", 200, hot=True, subjects=ON_A_HOT_KEY),
    Workload("hot key, 4 processes of 50 contenders", 50, hot=True, subjects=OVER_PROCESSES, processes=4),
)


async def compare(workloads: list[Workload], rounds: int, seconds: float) -> dict[str, Any]:
    """Every subject on every workload; a round of one is followed by a round of the next."""
    described = describe()
    measured: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    missing: dict[str, str] = {}
    version = ""
    with TemporaryDirectory() as folder:
        go: Path | None = None
        try:
            go = await go_subject.build(Path(folder))
        except go_subject.GoMissing as why:
            missing[Go.name] = str(why)
            _say(f"{Go.name} is left out: {why}")
        for number in range(rounds):
            for workload in workloads:
                for subject in workload.subjects:
                    if subject.name in missing:
                        continue
                    _say(f"{workload.name}: round {number + 1} of {rounds}: {subject.name}")
                    async with servers.etcd(flavour="wheel") as cluster:
                        one = await compete(cluster[0], subject.name, workload, seconds, go)
                        version = await cluster[0].product()
                    measured[workload.name, subject.name].append(one)
    table: dict[str, Any] = {}
    for (work, name), done in measured.items():
        rates = sorted(one.sections_per_s for one in done)
        table.setdefault(work, {})[name] = medians(done) | {"sections_per_s_range": [rates[0], rates[-1]]}
    return {
        "command": " ".join(["python -m bench.etcd_reference", *sys.argv[1:]]),
        "environment": described | {"server": f"{version}, one member"},
        "missing": missing,
        "rounds": rounds,
        "seconds_per_round": seconds,
        "figures": table,
    }


async def compete(
    server: EtcdNode, subject: str, workload: Workload, seconds: float, go: Path | None
) -> Figures:
    """One round, in child processes; `go`: the program that does Go's part.

    :raises RuntimeError: one failed; carries what it said.
    """
    process = psutil.Process(server.pid)
    before = sum(process.cpu_times()[:2])
    start_at = time.monotonic() + workload.start
    jobs = [
        Work(
            subject=subject,
            url=f"etcd://{server.address}",
            contenders=workload.contenders,
            seconds=seconds,
            hot=workload.hot,
            ramp=_RAMP,
            start_at=start_at,
            process=number,
        )
        for number in range(workload.processes)
    ]
    if subject == Go.name:
        assert go is not None
        runs = [go_subject.run(go, job) for job in jobs]
    else:
        runs = [run_in_process(job, "bench.etcd_subjects:ON_OWN_KEYS") for job in jobs]
    tallies = await asyncio.gather(*runs)
    server_cpu = sum(process.cpu_times()[:2]) - before
    return figures(tallies, hot=workload.hot, server_cpu=server_cpu, server_commands=await _messages(server))


async def _messages(server: EtcdNode) -> int:
    """Requests and stream messages that the server has received, for libraries that do not count them."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.client_url}/metrics") as reply:
        lines = (await reply.text()).splitlines()
    counts = [line.split()[-1] for line in lines if line.startswith("grpc_server_msg_received_total{")]
    return int(sum(map(float, counts)))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    """The figures, each workload against Go's Mutex and against aetcd's Lock."""
    where = outcome["environment"]
    yield "# etcd: ours and the alternatives"
    yield ""
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']:g} s, interleaved"
    yield f"`{outcome['command']}`: {rounds}, each on a fresh server, in processes"
    yield "of its own; in brackets the slowest and the fastest round."
    yield (
        f"{where['server']}, aetcd {where['packages'].get('aetcd', '?')}. {in_words(where)} "
        "Requests, CPU: per section."
    )
    for name, why in outcome["missing"].items():
        yield f"{name} is not in the table: {why}."
    for work, subjects in outcome["figures"].items():
        yield from ("", f"## {work.capitalize()}", "")
        bases = [base for base in (Go.name, Aetcd.name) if base in subjects]
        titles = [title for title, _, _ in _COLUMNS]
        columns = [titles[0], "", *(f"× {base}" for base in bases), *titles[1:]]
        yield "| | " + " | ".join(columns) + " |"
        yield "|---|" + "---|" * len(columns)
        for name, one in sorted(subjects.items(), key=lambda item: -item[1]["sections_per_s"]):
            cells = [form.format(one[key]) for _, key, form in _COLUMNS]
            low, high = one["sections_per_s_range"]
            rate = one["sections_per_s"]
            ratios = [f"{rate / subjects[base]['sections_per_s']:.2f}" for base in bases]
            cells = [cells[0], f"({low:,.0f}–{high:,.0f})", *ratios, *cells[1:]]
            yield f"| {name}{remark(one)} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.etcd_reference", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", default="", metavar="WORD", help="workloads whose name contains WORD")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a round")
    add_output(parser)
    options = parser.parse_args()
    workloads = [workload for workload in WORKLOADS if options.only in workload.name]
    if not workloads:
        parser.error(f"no workload's name contains {options.only!r}: say hot, own or processes")
    outcome = asyncio.run(compare(workloads, options.rounds, options.seconds))
    show("etcd", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
