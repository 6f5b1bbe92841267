"""python -m bench.generator: how punctual the harness is, and what a waiting contender costs.

Two measurements of the generator itself, for a quiet machine:

- *arrivals*: one process offers 20,000 arrivals a second to contenders that do nothing. The lag is
  how late each arrival was admitted, against the schedule; a control run records no history.
- *waiting*: a real run in which 5,000 contenders wait for one lock at once; the memory of their process.

Writes bench/results/generator.json and generator.md, in about 30 seconds.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import uvloop

from bench.save import add_output, show
from bench.surroundings import describe, in_words
from harness.config import RunConfig
from harness.history import HistoryWriter, Row
from harness.history.distribution import Distribution
from harness.history.recorder import Recorder
from harness.load import pacer
from harness.load.clock import now
from harness.load.fleet import Progress
from harness.load.run import run_load
from harness.load.runner import Runner

_MEGABYTE = 1_000_000


async def arrivals(rate: int, seconds: float, folder: Path, *, history: bool) -> dict[str, Any]:
    """Lag of one process at `rate`, with contenders that return at once."""
    start = now() + 100_000_000
    writer = HistoryWriter(folder / f"{history}.jsonl.gz", Row, origin_ns=start, config={})
    recorder = Recorder(writer, origin_ns=start)
    lags: list[int] = []

    async def idle(contender: int, number: int, due: int) -> None:
        if history:
            recorder.record(Row(number, 0, contender, "idle", due, dispatched=now() - start))

    runner = Runner(idle, lambda number, due, outcome: None, contenders=1000, observe_lag=lags.append)
    recorder.between = runner.keep_up
    gc.collect()
    gc.freeze()
    folding = asyncio.create_task(recorder.keep_up())
    cpu = time.process_time()
    await runner.run(enumerate(pacer.offsets(rate, seconds)), start=start)
    cpu = time.process_time() - cpu
    folding.cancel()
    recorder.close()
    gc.unfreeze()
    late = Distribution(lags)
    p50, p99, p999 = (value / 1e6 for value in late.percentiles(50, 99, 99.9))
    return {
        "rate": rate,
        "history": history,
        "offered": runner.offered,
        "backlog_max": runner.backlog_max,
        "lag_ms": {"p50": p50, "p99": p99, "p999": p999, "max": max(lags) / 1e6},
        "cpu_share": cpu / seconds,
    }


async def waiting(contenders: int, folder: Path) -> dict[str, Any]:
    """The memory of the process in which so many contenders wait at once, in a real run."""
    peak = {"waiting": 0, "megabytes": 0.0}

    def look(progress: Progress) -> None:
        if progress.waiting < peak["waiting"]:
            return
        members = [
            child
            for child in psutil.Process().children(recursive=True)
            if "harness.load.member" in " ".join(child.cmdline())
        ]
        memory = sum(member.memory_info().rss for member in members) / _MEGABYTE
        peak.update(waiting=progress.waiting, megabytes=max(memory, peak["megabytes"]))

    config = RunConfig(
        backend="redis-queue",
        contenders=contenders,
        rate=contenders / 2,
        duration=2.0,
        work=1.0,
        timeout=6.0,
        out=str(folder),
    )
    finished = await run_load(config, observe=look)
    summary = finished.summary
    return {
        "contenders": contenders,
        **peak,
        "arrivals": asdict(summary.arrivals),
        "verdict": summary.verdict,
    }


async def measure(rate: int, seconds: float, contenders: int) -> dict[str, Any]:
    described = describe()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lag = [await arrivals(rate, seconds, folder, history=history) for history in (True, False)]
        return {
            "command": " ".join(["python -m bench.generator", *sys.argv[1:]]),
            "environment": described,
            "arrivals": lag,
            "waiting": await waiting(contenders, folder),
        }


def markdown(outcome: dict[str, Any]) -> list[str]:
    where = outcome["environment"]
    lines = [
        "# The generator",
        "",
        f"`{outcome['command']}`. {in_words(where)} The contenders idle: it is the pacer and the "
        "recorder that are measured.",
        "",
        "| arrivals/s offered | history | lag p50 ms | p99 ms | p99.9 ms | max ms | share of a core |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in outcome["arrivals"]:
        lag = run["lag_ms"]
        lines.append(
            f"| {run['rate']:,} | {'written' if run['history'] else 'none'} | {lag['p50']:.3f} "
            f"| {lag['p99']:.3f} | {lag['p999']:.3f} | {lag['max']:.2f} | {run['cpu_share']:.0%} |"
        )
    crowd = outcome["waiting"]
    lines += [
        "",
        f"{crowd['waiting']:,} of {crowd['contenders']:,} contenders waiting at once in one process: "
        f"{crowd['megabytes']:,.0f} MB resident (verdict {crowd['verdict']}).",
    ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.generator", description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=20_000, help="arrivals per second")
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a measurement")
    parser.add_argument("--contenders", type=int, default=5_000, help="how many wait at once")
    add_output(parser)
    options = parser.parse_args()
    outcome = uvloop.run(measure(options.rate, options.seconds, options.contenders))
    show("generator", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
