"""A backend beside its alternatives on one server: what the modules `*_reference` of two workloads share."""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from bench.contest import run_in_process
from bench.figures import Figures, figures, medians
from bench.save import add_output, show
from bench.subject import Subject
from bench.surroundings import describe, in_words
from bench.work import Work
from harness.servers.catalogue import Started


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What is compared, on what, and with whom."""

    name: str
    """Of the results, and of the module: `python -m bench.NAME_reference`."""
    title: str
    server: Callable[[], AbstractAsyncContextManager[Started]]
    subjects: Sequence[type[Subject]]
    peer: type[Subject]
    """Whose figures are one in the column of ratios."""
    limits: Sequence[type[Subject]] = ()
    """No locks: what a hot key is bound by."""
    packages: Sequence[str]
    """Whose versions are named."""
    contenders: int

    @property
    def _workloads(self) -> Mapping[str, bool]:
        return {
            f"own keys, {self.contenders} contenders": False,
            f"hot key, {self.contenders} contenders": True,
        }

    def main(self, about: str) -> None:
        """The program: measure, save, show."""
        parser = argparse.ArgumentParser(prog=f"python -m bench.{self.name}_reference", description=about)
        parser.add_argument("--rounds", type=int, default=3)
        parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
        add_output(parser)
        options = parser.parse_args()
        outcome = asyncio.run(self._compare(options.rounds, options.seconds))
        show(self.name, outcome, self._markdown(outcome), options)

    async def _compare(self, rounds: int, seconds: float) -> dict[str, Any]:
        """Every subject on every workload; a round of one is followed by a round of the next."""
        described = describe()
        measured: dict[tuple[str, str], list[Figures]] = defaultdict(list)
        for number in range(rounds):
            for workload, hot in self._workloads.items():
                for subject in (*self.subjects, *(self.limits if hot else ())):
                    print(f"{workload}: round {number + 1} of {rounds}: {subject.name}", file=sys.stderr)
                    measured[workload, subject.name].append(await self._round(subject, hot, seconds))
        table: dict[str, Any] = {}
        for (workload, name), done in measured.items():
            table.setdefault(workload, {})[name] = medians(done)
        return {
            "command": " ".join([f"python -m bench.{self.name}_reference", *sys.argv[1:]]),
            "environment": described,
            "rounds": rounds,
            "seconds_per_round": seconds,
            "figures": table,
        }

    async def _round(self, subject: type[Subject], hot: bool, seconds: float) -> Figures:
        # On a server of its own: a process that ended without a word leaves its locks behind.
        async with self.server() as server:
            job = Work(
                subject=subject.name,
                url=server.url,
                contenders=self.contenders,
                seconds=seconds,
                hot=hot,
                ramp=1.0,
            )
            tally = await run_in_process(job, f"bench.{self.name}_subjects:ALL")
        return figures([tally], hot=hot, server_cpu=0.0, server_commands=0)

    def _markdown(self, outcome: Mapping[str, Any]) -> Iterator[str]:
        where = outcome["environment"]
        yield f"# {self.title}"
        yield ""
        rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']:g} s, interleaved"
        yield f"`{outcome['command']}`: {rounds}. CPU: per section."
        versions = ", ".join(f"{name} {where['packages'].get(name, '?')}" for name in self.packages)
        yield f"{versions}. {in_words(where)}"
        yield "Overtaken: the share of sections that began after one that was called for later."
        for workload, subjects in outcome["figures"].items():
            yield from ("", f"## {workload.capitalize()}", "")
            columns = ("wait p50 ms", "p99 ms", "Jain", "overtaken", "client CPU µs")
            yield f"| | sections/s | × {self.peer.name} | {' | '.join(columns)} |"
            yield "|---" * (3 + len(columns)) + "|"
            theirs = subjects[self.peer.name]["sections_per_s"]
            for name, one in sorted(subjects.items(), key=lambda item: -item[1]["sections_per_s"]):
                ratio = f"{one['sections_per_s'] / theirs:.1f}" if theirs else "–"
                overtaken = "–" if one["overtaken"] is None else f"{one['overtaken']:.1%}"
                yield (
                    f"| {name} | {one['sections_per_s']:,.0f} | {ratio} "
                    f"| {one['wait_p50_ms']:.1f} | {one['wait_p99_ms']:.1f} | {one['jain']:.3f} "
                    f"| {overtaken} | {one['client_cpu_us']:,.0f} |"
                )
