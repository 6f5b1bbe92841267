"""python -m bench.harness: what the whole harness carries, and what each part of it costs.

Real runs of `python -m harness`, each in processes of its own, for a quiet machine:

- *many keys*: `redis`, 10,000 keys and contenders, offered at its capacity and at twice that, by one and by
  two generator processes. The capacity is found first, by offering more until a tenth is not served.
- *hot key*: `redis-queue`, one key, offered more than it can do.
- *the parts alone*: wrk writing to the resource, and the lock's raw scripts, each with nothing beside it.

`--before PATH` measures another checkout by the same commands, interleaved round by round, offered the
same rates. CPU is per served section: of the generators while they offer load, of the resource and the
lock server from their start, less what they take in a run with next to no load. Each figure is the median
of the rounds. Written into bench/results only with `--publish`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from bench import surroundings
from bench.parts import lock_alone, resource_alone
from bench.save import add_output, show

_HERE = Path(__file__).parents[1]
_CONTENDERS = 10_000
_HOT_RATE = 8_000
_FIRST_RATE = 2_000.0
_STEP = 1.4
_SERVED = 0.9
_LOOK_EVERY = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """What is offered in a run."""

    name: str
    rate: float
    backend: str = "redis"
    keys: int = 10_000
    contenders: int = _CONTENDERS
    processes: int = 1

    def words(self, seconds: float) -> list[str]:
        return [
            *("--backend", self.backend, "--keys", str(self.keys), "--contenders", str(self.contenders)),
            *("--rate", f"{self.rate:.0f}", "--duration", f"{seconds:g}", "--processes", str(self.processes)),
        ]


@dataclass(frozen=True, slots=True)
class Figures:
    """One run."""

    sections_per_s: float
    client_us: float
    resource_us: float
    server_us: float
    lag_p50_ms: float
    lag_p99_ms: float
    lag_p999_ms: float
    lag_max_ms: float
    write_p50_ms: float
    full_collections: float
    """Of the generators; -1 where a version does not count them."""


async def run(checkout: Path, load: Load, seconds: float, idle: Mapping[str, float]) -> Figures:
    """One run of `checkout`; `idle` is the CPU that its servers take without load.

    :raises RuntimeError: it left no summary; carries what it said.
    """
    summary, cpu = await _harness(checkout, load, seconds)
    lag, took = summary["latency_ms"]["schedule_lag"], summary["duration_s"]
    served = max(summary["arrivals"]["acquired"], 1)
    certificate = summary["certificate"]
    return Figures(
        served / took,
        sum(certificate["cpu"]) * took / served * 1e6,
        max(cpu["resource"] - idle["resource"], 0.0) / served * 1e6,
        max(cpu["server"] - idle["server"], 0.0) / served * 1e6,
        lag["p50"],
        lag["p99"],
        lag["p999"],
        lag["max"],
        summary["latency_ms"]["write"]["p50"],
        certificate.get("gc_full_pauses", {}).get("count", -1),
    )


async def idle_cpu(checkout: Path) -> dict[str, float]:
    """CPU seconds that resource and lock server take to start and to serve next to nothing."""
    return (await _harness(checkout, Load("idle", 10), 1.0))[1]


async def _harness(checkout: Path, load: Load, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
    """Run the harness of a checkout: its summary, and the CPU seconds of its servers."""
    with tempfile.TemporaryDirectory() as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harness", "--quiet", "--out", out, *load.words(seconds)),
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        cpu = {"resource": 0.0, "server": 0.0}
        watching = asyncio.create_task(_watch(process.pid, cpu))
        try:
            said, _ = await process.communicate()
        finally:
            watching.cancel()
        return _summary(Path(out), said.decode()), cpu


def _summary(folder: Path, said: str) -> dict[str, Any]:
    for path in folder.glob("*/summary.json"):
        summary: dict[str, Any] = json.loads(path.read_text())
        return summary
    raise RuntimeError(f"a run left no summary: {said[-1000:]}")


async def _watch(pid: int, cpu: dict[str, float]) -> None:
    """Keep `cpu` at what the servers of a run had used when a generator was last seen."""
    while True:
        seen = {"resource": 0.0, "server": 0.0}
        generating = False
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                words = " ".join(child.cmdline())
                if "harness.load.member" in words or "harness.member" in words:
                    generating = True
                elif words:
                    kind = "resource" if "harness resource" in words else "server"
                    seen[kind] += sum(child.cpu_times()[:2])
            if generating:
                cpu.update(seen)
        await asyncio.sleep(_LOOK_EVERY)


async def capacity(checkout: Path, seconds: float, idle: Mapping[str, float]) -> float:
    """Sections per second beyond which more is offered than served: the most that was served."""
    rate, best = _FIRST_RATE, 0.0
    while True:
        figures = await run(checkout, Load("capacity", rate), seconds, idle)
        best = max(best, figures.sections_per_s)
        say(f"  offered {rate:,.0f}/s, served {figures.sections_per_s:,.0f}/s")
        if figures.sections_per_s < _SERVED * rate * seconds / (seconds + 1):
            return best
        rate *= _STEP


async def measure(rounds: int, seconds: float, before: Path | None) -> dict[str, Any]:
    checkouts = {"now": _HERE} | ({"before": before} if before else {})
    where = surroundings.describe()
    idle = {name: await idle_cpu(checkout) for name, checkout in checkouts.items()}
    say("looking for the capacity")
    limit = await capacity(_HERE, seconds, idle["now"])
    loads = [
        Load("at capacity", limit),
        Load("at twice the capacity", 2 * limit),
        Load("at capacity, two generators", limit, processes=2),
        Load("at twice the capacity, two generators", 2 * limit, processes=2),
        Load("hot key", _HOT_RATE, backend="redis-queue", keys=1, contenders=200),
    ]
    results: dict[str, dict[str, list[Figures]]] = {
        load.name: {name: [] for name in checkouts} for load in loads
    }
    alone: dict[str, list[float]] = {"resource": [], "lock": []}
    with tempfile.TemporaryDirectory() as name:
        for number in range(rounds):
            order = list(checkouts.items())
            if number % 2:
                order.reverse()
            for load in loads:
                for version, checkout in order:
                    figures = await run(checkout, load, seconds, idle[version])
                    results[load.name][version].append(figures)
                    say(f"round {number + 1}: {load.name}, {version}: {figures.sections_per_s:,.0f}/s")
            puts = await resource_alone(seconds, Path(name))
            alone["resource"] += [] if puts is None else [puts]
            alone["lock"].append(await lock_alone(min(seconds, 3.0)))
    return {
        "command": " ".join(["python -m bench.harness", *sys.argv[1:]]),
        "environment": where | {"load_average_at_end": os.getloadavg()},
        "rounds": rounds,
        "seconds": seconds,
        "capacity": limit,
        "offered": {load.name: load.rate for load in loads},
        "runs": {
            name: {version: [asdict(one) for one in runs] for version, runs in versions.items()}
            for name, versions in results.items()
        },
        "alone": alone,
    }


_COLUMNS = (
    ("sections/s", "sections_per_s", "{:,.0f}"),
    ("client µs", "client_us", "{:.0f}"),
    ("resource µs", "resource_us", "{:.0f}"),
    ("server µs", "server_us", "{:.0f}"),
    ("lag p50 ms", "lag_p50_ms", "{:.3f}"),
    ("p99", "lag_p99_ms", "{:.2f}"),
    ("p99.9", "lag_p999_ms", "{:.2f}"),
    ("max", "lag_max_ms", "{:.1f}"),
    ("write p50 ms", "write_p50_ms", "{:.2f}"),
    ("full collections", "full_collections", "{:.0f}"),
)


def markdown(outcome: Mapping[str, Any]) -> Iterable[str]:
    where = outcome["environment"]
    yield "# The harness, end to end"
    yield ""
    yield (
        f"`{outcome['command']}`: medians of {outcome['rounds']} rounds of {outcome['seconds']:g} s. "
        f"{surroundings.in_words(where)} CPU is per served section. Full collections: -1 where the version "
        "does not count them."
    )
    yield ""
    yield "| load | offered/s | version | " + " | ".join(title for title, _, _ in _COLUMNS) + " | spread |"
    yield "|---|---|---|" + "---|" * (len(_COLUMNS) + 1)
    for name, versions in outcome["runs"].items():
        for version, runs in versions.items():
            cells = [form.format(statistics.median(one[key] for one in runs)) for _, key, form in _COLUMNS]
            rates = [one["sections_per_s"] for one in runs]
            spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
            offered = f"{outcome['offered'][name]:,.0f}"
            yield f"| {name} | {offered} | {version} | " + " | ".join(cells) + f" | {spread} |"
    yield ""
    yield _second_generator(outcome)
    yield ""
    yield "| a part alone | per second |"
    yield "|---|---|"
    for title, key in (("fenced PUTs, wrk on the resource", "resource"), ("raw lock cycles", "lock")):
        values = outcome["alone"][key]
        yield f"| {title} | {f'{statistics.median(values):,.0f}' if values else 'not measured: no wrk'} |"


def _second_generator(outcome: Mapping[str, Any]) -> str:
    """What a second generator brought, beside what the machine's cores leave to it."""

    def median(load: str, figure: str) -> float:
        return float(statistics.median(one[figure] for one in outcome["runs"][load]["now"]))

    one, two = "at twice the capacity", "at twice the capacity, two generators"
    served = median(one, "sections_per_s")
    cores = outcome["environment"]["cpus"]
    section_us = sum(median(one, f"{part}_us") for part in ("client", "resource", "server"))
    most = cores * 1e6 / section_us
    return (
        f"Two generators served {median(two, 'sections_per_s') / served:.2f} times what one did. A section "
        f"takes {section_us:.0f} µs of CPU, so {cores} cores carry {most:,.0f} of them per second at most, "
        f"{most / served:.2f} times what one generator served: no second one can bring more than that here."
    )


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.harness", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="for how long a run offers load")
    parser.add_argument("--before", type=Path, metavar="PATH", help="another checkout to measure beside")
    add_output(parser)
    options = parser.parse_args()
    outcome = asyncio.run(
        measure(options.rounds, options.seconds, options.before and options.before.resolve())
    )
    show("harness", outcome, markdown(outcome), options)


if __name__ == "__main__":
    main()
