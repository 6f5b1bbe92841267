"""python -m bench.zookeeper_limits: the ZooKeeper backend beside kazoo's Lock and its server's own rate.

What a lock in ZooKeeper cannot do without is a create and a delete of its node, each a transaction that goes
to the server's disk, and a look at the queue. The limit is a client that does nothing else, the delete of one
section together with the create of the next: on fifty keys, or on one, as a hot key has one holder.

Each round of each is a process and a fresh server of its own; rounds are interleaved. Writes
bench/results/zookeeper_limits.json and zookeeper_limits.md, in about three minutes.
"""

import argparse
import asyncio
import sys
from typing import Any

from bench.contest import run_in_process
from bench.figures import Figures, figures
from bench.peers import say
from bench.ratios import Ratio, by_round, table, to_json
from bench.save import add_output, show
from bench.subject import Subject
from bench.surroundings import describe, in_words
from bench.work import Work
from bench.zookeeper_subjects import HandOff, Kazoo, Writes, ZooKeeper
from harness import servers

_CONTENDERS = 50


async def measure(rounds: int, seconds: float) -> dict[str, Any]:
    """Own keys and the hot key, round after round."""
    where = describe()
    told: list[dict[str, float]] = []
    verdicts: set[str] = set()
    for number in range(rounds):
        told.append({})
        for hot in (False, True):
            say(f"round {number + 1} of {rounds}: {'hot key' if hot else 'own keys'}")
            subjects: list[type[Subject]] = [ZooKeeper, Kazoo, Writes, *([HandOff] if hot else [])]
            for subject in subjects if number % 2 == 0 else reversed(subjects):
                one = await _round(subject, seconds, hot=hot)
                told[-1][f"{hot} {subject.name}"] = one.sections_per_s
                if one.verdict is not None:
                    verdicts.add(one.verdict)
    return {
        "command": " ".join(["python -m bench.zookeeper_limits", *sys.argv[1:]]),
        "environment": where,
        "rounds": rounds,
        "seconds_per_round": seconds,
        "verdicts": sorted(verdicts),
        "rows": to_json(_ratios(told)),
    }


async def _round(subject: type[Subject], seconds: float, *, hot: bool) -> Figures:
    async with servers.zookeeper() as server:
        job = Work(
            subject=subject.name,
            url=server.url,
            contenders=1 if hot and subject is Writes else _CONTENDERS,
            seconds=seconds,
            hot=hot,
            ramp=1.0,
        )
        tally = await run_in_process(job, "bench.zookeeper_subjects:ALL")
    return figures([tally], hot=hot, server_cpu=0.0, server_commands=0)


def _ratios(told: list[dict[str, float]]) -> list[Ratio]:
    def ratio(work: str, hot: bool, ours: type[Subject], theirs: type[Subject], bound: float) -> Ratio:
        return Ratio(
            work=work,
            against=theirs.name,
            unit="/s",
            ours=by_round(told, f"{hot} {ours.name}"),
            theirs=by_round(told, f"{hot} {theirs.name}"),
            bound=bound,
        )

    own, hot = f"own keys, {_CONTENDERS} contenders", f"hot key, {_CONTENDERS} contenders"
    return [
        ratio(own, False, ZooKeeper, Kazoo, 5.0),
        ratio(own, False, ZooKeeper, Writes, 0.7),
        ratio(hot, True, ZooKeeper, Kazoo, 5.0),
        ratio(hot, True, ZooKeeper, Writes, 0.7),
        ratio(f"{hot}, local_handoffs=16", True, HandOff, Kazoo, 5.0),
    ]


def markdown(outcome: dict[str, Any]) -> list[str]:
    where = outcome["environment"]
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']:g} s, interleaved"
    return [
        "# ZooKeeper beside what its server could do",
        "",
        f"`{outcome['command']}`: {rounds}. kazoo {where['packages'].get('kazoo', '?')}. {in_words(where)} "
        f"Checkers on the histories of the hot key: {', '.join(outcome['verdicts'])}.",
        "",
        *table([Ratio(**row) for row in outcome["rows"]]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.zookeeper_limits", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a round")
    add_output(parser)
    options = parser.parse_args()
    outcome = asyncio.run(measure(options.rounds, options.seconds))
    show("zookeeper_limits", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
