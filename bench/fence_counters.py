"""python -m bench.fence_counters: what short-lived locks leave in Redis, for each `fence_counter=`.

Every key is locked once, by the library's script; then all leases and all counters that expire are waited
for. What the server stores beyond what it did when it was empty is left behind. Writes
bench/results/fence-counters.{json,md}. Ten million keys take some minutes and 3 GiB.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import uvloop

from bench.save import add_output, show
from bench.surroundings import describe, in_words
from harness import servers
from harness.experiments.fence_counters.numberings import LIFE, NUMBERINGS, Numbering, requests
from harness.lab.scale.expiry import sample
from harness.lab.scale.fill import BATCH
from harness.lab.scale.pipe import open_pipe

_TTL = 5.0
_MIB = 2**20


async def measure(numbering: Numbering, keys: int) -> dict[str, Any]:
    """On a server of its own."""
    async with servers.redis() as node, open_pipe(node.url) as pipe:
        empty = await sample(pipe)
        began = time.perf_counter()
        await pipe.send(await requests(pipe, numbering, keys, ttl_ms=round(_TTL * 1000)), BATCH)
        filled = time.perf_counter() - began
        left = await sample(pipe)
        while left.with_ttl:
            await asyncio.sleep(0.5)
            left = await sample(pipe)
        return {
            "locks_per_s": keys / filled,
            "gone_after_s": time.perf_counter() - began - filled,
            "keys_left": left.keys,
            "bytes_left": left.used_memory - empty.used_memory,
        }


async def compare(keys: int, only: str) -> dict[str, Any]:
    """One after the other."""
    described = describe()
    figures: dict[str, Any] = {}
    for numbering in NUMBERINGS:
        if only not in numbering.counter.kind:
            continue
        print(numbering.counter.kind, file=sys.stderr)
        figures[numbering.counter.kind] = await measure(numbering, keys)
    return {
        "command": " ".join(["python -m bench.fence_counters", *sys.argv[1:]]),
        "environment": described,
        "keys": keys,
        "ttl_s": _TTL,
        "fence_life_s": LIFE,
        "figures": figures,
    }


def markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    yield "# Fence counters: what short-lived locks leave behind"
    yield ""
    yield (
        f"`{outcome['command']}`: {outcome['keys']:,} keys locked once each, for {outcome['ttl_s']:g} s; "
        f"`fence_life` {outcome['fence_life_s']:g} s. One pipelined connection: its client limits the rate."
    )
    yield in_words(outcome["environment"])
    yield from (
        "",
        "| `fence_counter` | keys left | MiB left | bytes a key | locks/s |",
        "|---|---|---|---|---|",
    )
    for kind, one in outcome["figures"].items():
        yield (
            f"| `{kind}` | {one['keys_left']:,} | {one['bytes_left'] / _MIB:,.1f} "
            f"| {one['bytes_left'] / outcome['keys']:,.1f} | {one['locks_per_s']:,.0f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.fence_counters", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--keys", type=int, default=1_000_000, help="a multiple of 1,000")
    parser.add_argument("--only", default="", metavar="WORD", help="counters whose name contains WORD")
    add_output(parser)
    options = parser.parse_args()
    outcome = uvloop.run(compare(options.keys // BATCH * BATCH, options.only))
    show("fence-counters", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
