"""python -m bench.held: what 100,000 locks cost that one client holds, and how long it takes to close it.

In a process of its own for each backend: memory is what the process grew by for each lock, from before the
first to after the last; closing gives every lock back. Writes bench/results/held.json and held.md, in about a
minute.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from typing import Any

import psutil
import uvloop

import asyncdlock
from bench.peers import say, server_version
from bench.ratios import Figure, by_round, table, to_json
from bench.save import add_output, show
from bench.surroundings import describe, in_words
from harness import servers

SCHEMES = ("redis", "redis-queue")
_AT_ONCE = 500
_TTL = 60.0
_LONGEST_CLOSE, _MOST_BYTES = 5.0, 1000.0


async def hold(url: str, count: int) -> dict[str, float]:
    """In this process: take so many locks, and close the client."""
    locks = asyncdlock.connect(url)
    await (await locks.acquire("first")).release()
    gc.collect()
    before = psutil.Process().memory_info().rss
    handles: list[asyncdlock.Handle] = []
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, count))
        handles += await asyncio.gather(*(locks.acquire(f"held:{number}", ttl=_TTL) for number in numbers))
    gc.collect()
    grown = psutil.Process().memory_info().rss - before
    lost = sum(not handle.held for handle in handles)
    began = time.perf_counter()
    await locks.aclose()
    return {"bytes": grown / count, "close": time.perf_counter() - began, "lost": lost}


async def measure(count: int, rounds: int) -> dict[str, Any]:
    """Each backend in turn, round after round."""
    where = describe()
    told: list[dict[str, float]] = []
    async with servers.redis() as server:
        for number in range(rounds):
            told.append({})
            for scheme in SCHEMES:
                say(f"round {number + 1} of {rounds}: {scheme}")
                await server.command("FLUSHALL")
                url = server.url.replace("redis", scheme, 1)
                for name, value in (await _in_process(url, count)).items():
                    told[-1][f"{scheme} {name}"] = value
                # What stays is one counter of fences for each lock, and for the first.
                told[-1][f"{scheme} left"] = await server.command("DBSIZE") - (count + 1)
        info: dict[str, str] = await server.command("INFO", "server")
    return {
        "command": " ".join(["python -m bench.held", *sys.argv[1:]]),
        "environment": where | {"server": server_version(info)},
        "locks": count,
        "rounds": rounds,
        "figures": to_json(
            [
                figure
                for scheme in SCHEMES
                for figure in (
                    _figure(told, scheme, "close", "aclose()", "s", _LONGEST_CLOSE),
                    _figure(told, scheme, "bytes", "memory of a held lock", "bytes", _MOST_BYTES),
                    _figure(told, scheme, "lost", "lost meanwhile", "", 0.0),
                    _figure(told, scheme, "left", "left on the server after closing", "", 0.0),
                )
            ]
        ),
    }


async def _in_process(url: str, count: int) -> dict[str, float]:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.held", "--child", url, "--locks", str(count)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    if child.returncode:
        raise RuntimeError("the process that held the locks failed")
    told: dict[str, float] = json.loads(out)
    return told


def _figure(
    told: list[dict[str, float]], scheme: str, name: str, what: str, unit: str, bound: float
) -> Figure:
    return Figure(work=f"{scheme}: {what}", unit=unit, values=by_round(told, f"{scheme} {name}"), bound=bound)


def markdown(outcome: dict[str, Any]) -> list[str]:
    where = outcome["environment"]
    return [
        f"# {outcome['locks']:,} held locks",
        "",
        f"`{outcome['command']}`: medians of {outcome['rounds']} rounds. {where['server']}. "
        f"{in_words(where)}",
        *table([], [Figure(**figure) for figure in outcome["figures"]]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.held", description=__doc__.splitlines()[0])
    parser.add_argument("--locks", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", metavar="URL", help=argparse.SUPPRESS)
    add_output(parser)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(uvloop.run(hold(options.child, options.locks))))
        return
    outcome = asyncio.run(measure(options.locks, options.rounds))
    show("held", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
