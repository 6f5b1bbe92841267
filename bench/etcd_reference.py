"""python -m bench.etcd_reference: the etcd backend beside aetcd's Lock and the recipes it chose not to use.

python -m bench.etcd_reference                 both workloads, three interleaved rounds, about three minutes
python -m bench.etcd_reference --only hot      workloads whose name contains a word

Every round of every subject is a process of its own on a fresh server: what a subject leaves behind (aetcd's
Lock a lease per attempt) is its own cost and nobody else's. Writes bench/results/etcd.json and etcd.md, with
the command, the machine and the versions.
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import psutil

from bench.contest import run_in_process
from bench.etcd_subjects import ON_A_HOT_KEY, ON_OWN_KEYS, Aetcd, PredecessorWatches
from bench.figures import Figures, figures, medians, remark
from bench.save import add_output, show
from bench.subjects import Subject
from bench.surroundings import describe, in_words
from bench.work import Work
from harness import servers
from harness.servers import EtcdNode

_RAMP = 1.0  # leases are granted, queues are filled
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
    """How many contend in one process, for what, and who can do it."""

    name: str
    contenders: int
    hot: bool
    subjects: tuple[type[Subject], ...]


WORKLOADS = (
    Workload("own keys, 50 tasks", 50, hot=False, subjects=ON_OWN_KEYS),
    Workload("hot key, 200 contenders", 200, hot=True, subjects=ON_A_HOT_KEY),
)


async def compare(workloads: list[Workload], rounds: int, seconds: float) -> dict[str, Any]:
    """Every subject on every workload; a round of one is followed by a round of the next."""
    described = describe()
    measured: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    version = ""
    for number in range(rounds):
        for workload in workloads:
            for subject in workload.subjects:
                _say(f"{workload.name}: round {number + 1} of {rounds}: {subject.name}")
                async with servers.etcd(flavour="wheel") as cluster:
                    one = await compete(cluster[0], subject.name, workload, seconds)
                    version = (await cluster[0].call("maintenance/status"))["version"]
                measured[workload.name, subject.name].append(one)
    table: dict[str, Any] = {}
    for (work, name), done in measured.items():
        table.setdefault(work, {})[name] = medians(done)
    return {
        "command": " ".join(["python -m bench.etcd_reference", *sys.argv[1:]]),
        "environment": described | {"server": f"etcd {version}, one member"},
        "rounds": rounds,
        "seconds_per_round": seconds,
        "figures": table,
    }


async def compete(server: EtcdNode, subject: str, workload: Workload, seconds: float) -> Figures:
    """One round, in a child process.

    :raises RuntimeError: it failed; carries what it said.
    """
    process = psutil.Process(server.pid)
    before = sum(process.cpu_times()[:2])
    job = Work(
        subject=subject,
        url=f"etcd://{server.address}",
        contenders=workload.contenders,
        seconds=seconds,
        hot=workload.hot,
        ramp=_RAMP,
    )
    tally = await run_in_process(job, "bench.etcd_subjects:ON_OWN_KEYS")
    server_cpu = sum(process.cpu_times()[:2]) - before
    return figures([tally], hot=workload.hot, server_cpu=server_cpu, server_commands=await _messages(server))


async def _messages(server: EtcdNode) -> int:
    """Requests and stream messages that the server has received, for libraries that do not count them."""
    async with aiohttp.ClientSession() as session, session.get(f"{server.client_url}/metrics") as reply:
        lines = (await reply.text()).splitlines()
    counts = [line.split()[-1] for line in lines if line.startswith("grpc_server_msg_received_total{")]
    return int(sum(map(float, counts)))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    """The figures, each workload against aetcd's Lock and against predecessor watches."""
    where = outcome["environment"]
    yield "# etcd: ours and the alternatives"
    yield ""
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']:g} s, interleaved"
    yield f"`{outcome['command']}`: {rounds}, each a process of its own on a fresh server."
    yield (
        f"{where['server']}, aetcd {where['packages'].get('aetcd', '?')}. {in_words(where)} "
        "Requests, CPU: per section."
    )
    others = (Aetcd.name, PredecessorWatches.name)
    for work, subjects in outcome["figures"].items():
        yield from ("", f"## {work.capitalize()}", "")
        titles = [title for title, _, _ in _COLUMNS]
        yield "| | " + " | ".join([titles[0], "× aetcd", "× predecessor watches", *titles[1:]]) + " |"
        yield "|---|" + "---|" * (len(titles) + len(others))
        for name, one in sorted(subjects.items(), key=lambda item: -item[1]["sections_per_s"]):
            cells = [form.format(one[key]) for _, key, form in _COLUMNS]
            rate = one["sections_per_s"]
            bases = [subjects[other]["sections_per_s"] for other in others]
            ratios = [f"{rate / base:.1f}" if base else "–" for base in bases]
            yield f"| {name}{remark(one)} | " + " | ".join([cells[0], *ratios, *cells[1:]]) + " |"


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
        parser.error(f"no workload's name contains {options.only!r}: say hot or own")
    outcome = asyncio.run(compare(workloads, options.rounds, options.seconds))
    show("etcd", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
