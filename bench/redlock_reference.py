"""python -m bench.redlock_reference: Redlock on five nodes, beside other libraries, the raw limit and itself.

- *own keys*: 100 tasks; against the other Redlocks and against five raw round trips in parallel, the same
  scripts to the same nodes with nothing around them.
- *one node dead*: the same work while one of the five is killed, against itself with all of them.
- *hot key*: 50 contenders on one key, against one contender alone and with `local_queue=off`, where each
  goes to the nodes for itself. With holds of 10 ms: who is granted the lock within 2 s.

Clients run on one core, the five nodes on the other. Rounds are interleaved. Libraries that are not installed
are left out. Writes bench/results/redlock.json and redlock.md, in about three minutes.
"""

import argparse
import asyncio
import os
import sys
from dataclasses import asdict
from typing import Any

import uvloop

import asyncdlock
from bench.contest import TWO_CORES, run_in_process
from bench.figures import Figures, figures
from bench.peers import say
from bench.ratios import Figure, Ratio, by_round, table, to_json
from bench.redlock_subjects import PEERS, PlainRedlock, RawOnFive, Redlock
from bench.save import add_output, show
from bench.subject import Subject
from bench.surroundings import describe, in_words
from bench.work import Work
from harness import servers
from harness.servers import RedisNodes

_TASKS, _CONTENDERS = 100, 50
_HOLD, _TIMEOUT = 0.01, 2.0


async def measure(rounds: int, seconds: float) -> dict[str, Any]:
    """Every subject on every work, round after round."""
    where = describe()
    peers = [peer for peer in PEERS if peer.installed()]
    told: list[dict[str, float]] = []
    every: dict[str, list[dict[str, Any]]] = {}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        found: dict[str, Figures] = {}
        async with servers.redis_nodes(5) as nodes:
            for node in nodes:
                os.sched_setaffinity(node.pid, TWO_CORES.server)
            subjects: list[type[Subject]] = [Redlock, *peers, RawOnFive]
            for subject in subjects:
                found[subject.name] = await _round(nodes, subject, _TASKS, seconds)
            found["one contender"] = await _round(nodes, Redlock, 1, seconds, hot=True)
            found["hot key"] = await _round(nodes, Redlock, _CONTENDERS, seconds, hot=True)
            found["hot key, plain"] = await _round(nodes, PlainRedlock, _CONTENDERS, seconds, hot=True)
            granted = await _granted_in_time(nodes.url, 2 * _TIMEOUT)
            plain = await _granted_in_time(nodes.url + PlainRedlock.query, 2 * _TIMEOUT)
            nodes[2].kill()
            found["one node dead"] = await _round(nodes, Redlock, _TASKS, seconds)
        told.append({name: one.sections_per_s for name, one in found.items()})
        told[-1] |= {"granted": granted, "granted, plain": plain}
        for name, one in found.items():
            every.setdefault(name, []).append(asdict(one))
    return {
        "command": " ".join(["python -m bench.redlock_reference", *sys.argv[1:]]),
        "environment": where,
        "rounds": rounds,
        "seconds_per_round": seconds,
        "rows": to_json(_ratios(told, [peer.name for peer in peers])),
        "figures": to_json(_shares(told)),
        "every": every,
    }


async def _round(
    nodes: RedisNodes, subject: type[Subject], contenders: int, seconds: float, *, hot: bool = False
) -> Figures:
    for node in nodes:
        if node.running:
            await node.command("FLUSHALL")
    job = Work(
        subject=subject.name,
        url=nodes.url,
        contenders=contenders,
        seconds=seconds,
        hot=hot,
        ramp=0.5,
        cores=TWO_CORES.clients,
    )
    tally = await run_in_process(job, "bench.redlock_subjects:ALL")
    return figures([tally], hot=hot, server_cpu=0.0, server_commands=0)


async def _granted_in_time(url: str, seconds: float) -> float:
    """The share of attempts on one hot key that were granted within the time-out."""
    granted = late = 0
    loop = asyncio.get_running_loop()
    async with asyncdlock.connect(url) as locks:
        end = loop.time() + seconds

        async def contend() -> None:
            nonlocal granted, late
            while loop.time() < end:
                try:
                    async with locks.hold("holds", timeout=_TIMEOUT):
                        granted += 1
                        await asyncio.sleep(_HOLD)
                except asyncdlock.AcquireTimeout:
                    late += 1

        await asyncio.gather(*(contend() for _ in range(_CONTENDERS)))
    return granted / (granted + late)


def _ratios(told: list[dict[str, float]], peers: list[str]) -> list[Ratio]:
    def ratio(work: str, ours: str, against: str, theirs: str, bound: float) -> Ratio:
        return Ratio(
            work=work,
            against=against,
            unit="/s",
            ours=by_round(told, ours),
            theirs=by_round(told, theirs),
            bound=bound,
        )

    own = f"own keys, {_TASKS} tasks"
    hot = f"hot key, {_CONTENDERS} contenders"
    return [
        *(ratio(own, Redlock.name, peer, peer, 3.0) for peer in peers),
        ratio(own, Redlock.name, "five raw round trips in parallel", RawOnFive.name, 0.4),
        ratio(f"{own}, one of five nodes dead", "one node dead", "all five", Redlock.name, 0.8),
        ratio(hot, "hot key", "local_queue=off", "hot key, plain", 3.0),
        ratio(hot, "hot key", "one contender", "one contender", 0.8),
    ]


def _shares(told: list[dict[str, float]]) -> list[Figure]:
    work = f"granted within {_TIMEOUT:g} s, {_CONTENDERS} contenders, holds of {1000 * _HOLD:g} ms"
    return [
        Figure(work=work, unit="", values=by_round(told, "granted"), bound=0.99, at_most=False),
        Figure(
            work=f"{work}, local_queue=off",
            unit="",
            values=by_round(told, "granted, plain"),
            bound=0.0,
            at_most=False,
        ),
    ]


def markdown(outcome: dict[str, Any]) -> list[str]:
    where = outcome["environment"]
    versions = ", ".join(
        f"{name} {where['packages'][name]}" for name in ("pottery", "redlock-ng") if name in where["packages"]
    )
    verdicts = {one["verdict"] for name in ("hot key", "hot key, plain") for one in outcome["every"][name]}
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']:g} s, interleaved"
    return [
        "# Redlock on five nodes",
        "",
        f"`{outcome['command']}`: {rounds}. {versions}. {in_words(where)}",
        f"Checkers on the histories of the hot key: {', '.join(sorted(map(str, verdicts)))}.",
        "",
        *table(
            [Ratio(**row) for row in outcome["rows"]],
            [Figure(**figure) for figure in outcome["figures"]],
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.redlock_reference", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a round")
    add_output(parser)
    options = parser.parse_args()
    outcome = uvloop.run(measure(options.rounds, options.seconds))
    show("redlock", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
