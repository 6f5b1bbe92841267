"""python -m bench.zookeeper_reference: the ZooKeeper backend beside kazoo's Lock.

Fifty at a time, on keys of their own and on one hot key; interleaved rounds, each in its own process on a
fresh server. Writes bench/results/zookeeper.json and zookeeper.md, in about two minutes.
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from bench.contest import run_in_process
from bench.figures import Figures, figures, medians
from bench.save import add_output, show
from bench.surroundings import describe, in_words
from bench.work import Work
from bench.zookeeper_subjects import ALL, Kazoo
from harness import servers

_CONTENDERS = 50
_WORKLOADS = {"own keys, 50 contenders": False, "hot key, 50 contenders": True}


async def compare(rounds: int, seconds: float) -> dict[str, Any]:
    """Every subject on every workload; a round of one is followed by a round of the next."""
    described = describe()
    measured: dict[tuple[str, str], list[Figures]] = defaultdict(list)
    for number in range(rounds):
        for workload, hot in _WORKLOADS.items():
            for subject in ALL:
                print(f"{workload}: round {number + 1} of {rounds}: {subject.name}", file=sys.stderr)
                # A process that ended without a word leaves its locks to its session's timeout.
                async with servers.zookeeper() as ensemble:
                    job = Work(
                        subject=subject.name,
                        url=ensemble.url,
                        contenders=_CONTENDERS,
                        seconds=seconds,
                        hot=hot,
                        ramp=1.0,
                    )
                    tally = await run_in_process(job, "bench.zookeeper_subjects:ALL")
                measured[workload, subject.name].append(
                    figures([tally], hot=hot, server_cpu=0.0, server_commands=0)
                )
    table: dict[str, Any] = {}
    for (workload, name), done in measured.items():
        table.setdefault(workload, {})[name] = medians(done)
    return {
        "command": " ".join(["python -m bench.zookeeper_reference", *sys.argv[1:]]),
        "environment": described,
        "rounds": rounds,
        "seconds_per_round": seconds,
        "figures": table,
    }


def markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    where = outcome["environment"]
    yield "# ZooKeeper: ours and kazoo's Lock"
    yield ""
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']:g} s, interleaved"
    yield f"`{outcome['command']}`: {rounds}. CPU: per section."
    yield f"kazoo {where['packages'].get('kazoo', '?')}. {in_words(where)}"
    for workload, subjects in outcome["figures"].items():
        yield from ("", f"## {workload.capitalize()}", "")
        yield "| | sections/s | × kazoo | wait p50 ms | p99 ms | Jain | client CPU µs |"
        yield "|---|---|---|---|---|---|---|"
        theirs = subjects[Kazoo.name]["sections_per_s"]
        for name, one in sorted(subjects.items(), key=lambda item: -item[1]["sections_per_s"]):
            yield (
                f"| {name} | {one['sections_per_s']:,.0f} | {one['sections_per_s'] / theirs:.1f} "
                f"| {one['wait_p50_ms']:.1f} | {one['wait_p99_ms']:.1f} | {one['jain']:.3f} "
                f"| {one['client_cpu_us']:,.0f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.zookeeper_reference", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    add_output(parser)
    options = parser.parse_args()
    outcome = asyncio.run(compare(options.rounds, options.seconds))
    show("zookeeper", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
