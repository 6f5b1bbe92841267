"""python -m bench.limits: `redis://` and `redis-queue://` beside what their server could do at most.

- *hand-off*: four processes with fifty contenders each take turns in strict FIFO order. The floor of a turn
  is one Lua round trip, the release that passes the lock on: one connection that asks and waits shows it.
- *time-out*: the CPU of a section with `acquire(timeout=…)` over that without.
- *one core*: client and server share a core; the limit is the same scripts, pipelined with nothing around.
- *keys*: ten million locks are written, against raw commands that were made beforehand.

Writes bench/results/limits.json and limits.md, in about four minutes; `--keys 1000000` is done in two.
"""

import argparse
import asyncio
import sys
from typing import Any

from bench.contest import ONE_CORE, TWO_CORES, Placement, Workload, compete
from bench.peers import say, server_version
from bench.ratios import Ratio, by_round, table, to_json
from bench.save import add_output, show
from bench.subject import Subject
from bench.subjects import Raw, Spin, SpinInTime, StrictQueue
from bench.surroundings import describe, in_words
from harness import servers
from harness.lab.scale.fill import fill

_ALONE = Workload("own keys, 1 task", 1, 1, hot=False)
_CROWD = Workload("own keys, 100 tasks", 100, 1, hot=False)
_TURNS = Workload("hot key, 200 contenders, 4 processes", 200, 4, hot=True)

_RUNS: tuple[tuple[str, type[Subject], Workload, Placement], ...] = (
    ("hand-off", StrictQueue, _TURNS, TWO_CORES),
    ("round trip", Raw, _ALONE, TWO_CORES),
    ("in time", SpinInTime, _CROWD, TWO_CORES),
    ("plain", Spin, _CROWD, TWO_CORES),
    ("one core", Spin, _CROWD, ONE_CORE),
    ("one core, raw", Raw, _CROWD, ONE_CORE),
)


async def measure(rounds: int, seconds: float, keys: int) -> dict[str, Any]:
    """Every run in turn, round after round; then the keys."""
    where = describe()
    rates: list[dict[str, float]] = []
    cpu: list[dict[str, float]] = []
    verdicts: list[str] = []
    async with servers.redis() as server:
        for number in range(rounds):
            rates.append({})
            cpu.append({})
            order = _RUNS if number % 2 == 0 else _RUNS[::-1]
            for name, subject, workload, placement in order:
                say(f"round {number + 1} of {rounds}: {name}")
                figures = await compete(server, subject.name, workload, placement, seconds)
                rates[-1][name] = figures.sections_per_s
                cpu[-1][name] = figures.client_cpu_us
                if figures.verdict is not None:
                    verdicts.append(figures.verdict)
        info: dict[str, str] = await server.command("INFO", "server")
    rows = [
        Ratio(
            work="hot key, 4 processes, strict FIFO",
            against="one Lua round trip each",
            unit="/s",
            ours=by_round(rates, "hand-off"),
            theirs=tuple(2 * rate for rate in by_round(rates, "round trip")),  # acquire and release
            bound=0.8,
        ),
        Ratio(
            work="own keys, 100 tasks, acquire(timeout=30)",
            against="the same without",
            unit="µs of CPU",
            ours=by_round(cpu, "in time"),
            theirs=by_round(cpu, "plain"),
            bound=1.1,
            at_most=True,
        ),
        Ratio(
            work="own keys, 100 tasks, client and server on one core",
            against="raw limit",
            unit="/s",
            ours=by_round(rates, "one core"),
            theirs=by_round(rates, "one core, raw"),
            bound=0.5,
        ),
    ]
    if keys:
        rows.append(await _loading(keys))
    return {
        "command": " ".join(["python -m bench.limits", *sys.argv[1:]]),
        "environment": where | {"server": server_version(info)},
        "rounds": rounds,
        "seconds_per_round": seconds,
        "verdicts": verdicts,
        "rows": to_json(rows),
    }


async def _loading(keys: int) -> Ratio:
    say(f"{keys:,} keys")
    async with servers.redis() as server:
        filled = await fill(server.url, keys)
    return Ratio(
        work=f"{keys:,} keys loaded",
        against="raw pipelined limit",
        unit="/s",
        ours=(filled.per_s,),
        theirs=(filled.raw_limit_per_s,),
        bound=0.8,
    )


def markdown(outcome: dict[str, Any]) -> list[str]:
    where = outcome["environment"]
    rows = [Ratio(**row) for row in outcome["rows"]]
    verdicts = set(outcome["verdicts"])
    return [
        "# Redis beside what its server could do",
        "",
        f"`{outcome['command']}`: medians of {outcome['rounds']} rounds of "
        f"{outcome['seconds_per_round']:g} s, interleaved. {where['server']}. {in_words(where)} "
        f"Checkers on the histories of the hot key: {', '.join(sorted(verdicts)) or 'none'}.",
        "",
        *table(rows),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.limits", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.2, help="length of a round")
    parser.add_argument("--keys", type=int, default=10_000_000, help="how many to load; 0: none")
    add_output(parser)
    options = parser.parse_args()
    outcome = asyncio.run(measure(options.rounds, options.seconds, options.keys))
    show("limits", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
