"""python -m bench.peers: ours, the peers and the raw limit, interleaved; `--publish` writes bench/results/.

python -m bench.peers                 the whole table, about twenty minutes
python -m bench.peers --quick         one placement, one short round
python -m bench.peers --only hot      workloads whose name contains a word, and their tables alone
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from typing import Any

from bench.contest import ONE_CORE, TWO_CORES, WORKLOADS, Placement, Workload, compete, runnable
from bench.figures import Figures, medians
from bench.peer_subjects import PEERS
from bench.results import markdown, write
from bench.save import add_output, folder_for
from bench.subjects import OURS, Raw
from bench.surroundings import describe
from harness import servers


async def contest(
    placements: list[Placement], workloads: list[Workload], rounds: int, seconds: float
) -> dict[str, Any]:
    """Every subject on every workload; a round of one is followed by a round of the next."""
    names = runnable([subject.name for subject in (*OURS, *PEERS)])
    measured: dict[tuple[str, str, str], list[Figures]] = defaultdict(list)
    failed: dict[str, str] = {}
    described = describe()
    say(_estimate(placements, workloads, names, rounds, seconds))
    async with servers.redis() as server:
        for placement in placements:
            for workload in workloads:
                subjects = _subjects(workload, names)
                for number in range(rounds):
                    for name in subjects:
                        say(f"{placement.name}: {workload.name}: round {number + 1} of {rounds}: {name}")
                        try:
                            one = await compete(server, name, workload, placement, seconds)
                        except RuntimeError as error:
                            # A peer that cannot do the work is a result too.
                            failed[f"{placement.name} / {workload.name} / {name}"] = str(error).splitlines()[
                                -1
                            ]
                            continue
                        measured[placement.name, workload.name, name].append(one)
        info: dict[str, str] = await server.command("INFO", "server")
    figures: dict[str, Any] = {}
    for (place, work, name), rounds_done in measured.items():
        figures.setdefault(place, {}).setdefault(work, {})[name] = medians(rounds_done)
    return {
        "command": "python -m bench.peers " + " ".join(sys.argv[1:]),
        "environment": described | {"server": server_version(info)},
        "rounds": rounds,
        "seconds_per_round": seconds,
        "figures": figures,
        "failed": failed,
    }


def _subjects(workload: Workload, names: list[str]) -> list[str]:
    """Who does this work: the raw limit writes ahead, which neither a queue nor a lone task can."""
    return names if workload.hot or workload.contenders == 1 else [*names, Raw.name]


def _estimate(
    placements: list[Placement], workloads: list[Workload], names: list[str], rounds: int, seconds: float
) -> str:
    each = sum(len(_subjects(one, names)) * one.estimate(seconds) for one in workloads)
    return f"about {len(placements) * rounds * each / 60:.0f} minutes in all"


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def server_version(info: dict[str, str]) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info['redis_version']}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two cores only, one short round")
    parser.add_argument("--only", default="", metavar="WORD", help="workloads whose name contains WORD")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.2, help="length of a round")
    add_output(parser)
    options = parser.parse_args()
    placements = [TWO_CORES] if options.quick else [TWO_CORES, ONE_CORE]
    workloads = [workload for workload in WORKLOADS if options.only in workload.name]
    if not workloads:
        known = "; ".join(workload.name for workload in WORKLOADS)
        parser.error(f"no workload's name contains {options.only!r}: {known}")
    rounds, seconds = (1, 0.7) if options.quick else (options.rounds, options.seconds)
    outcome = asyncio.run(contest(placements, workloads, rounds, seconds))
    folder = folder_for(options)
    if folder is not None:
        print(*write(outcome, folder), sep="\n")
    print(*markdown(outcome), sep="\n")


if __name__ == "__main__":
    main()
