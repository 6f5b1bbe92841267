"""What is to break during a run, and when: `kill:server@5s`, `partition@8s+2s`, or drawn from a seed."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf
from typing import Literal, cast

from harness.config import RunConfig, UsageError
from harness.durations import parse_duration, parse_positive_duration
from harness.servers.catalogue import INSTALLATIONS

Kind = Literal["kill", "pause", "partition"]
Target = Literal["server", "resource", "holder"]

EXAMPLES = "kill:server@5s, kill:resource@5s+1s, pause:holder@6s+2s, pause:server@6s+2s or partition@8s+2s"
_KINDS: dict[Kind, tuple[Target, ...]] = {
    "kill": ("server", "resource"),
    "pause": ("holder", "server", "resource"),
    "partition": ("server", "resource"),
}
_SPEC = re.compile(r"(?P<kind>[a-z]+)(:(?P<target>[a-z]+)(?P<node>\d+)?)?@(?P<at>[^+]+)(\+(?P<seconds>.+))?")

# When drawn: in this part of the run, one after the other, so that what each of them did can be told apart.
_FIRST, _LAST = 0.1, 0.85
_LONGEST = 2.5  # TTLs


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpec:
    """Something that is to break."""

    kind: Kind
    target: Target
    at: float
    """Seconds after the first arrival is due."""
    seconds: float | None = None
    """How long it lasts; `None`: a killed process stays dead."""
    node: int | None = None
    """Of a lock server with several nodes, which one, counted from 1; `None`: all of them."""

    @classmethod
    def parse(cls, text: str) -> "FaultSpec":
        """:raises ValueError: it is none; the message shows how one is written."""
        found = _SPEC.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a fault: write {EXAMPLES}")
        kind = cast(Kind, found["kind"])
        if kind not in _KINDS:
            raise ValueError(f"{text!r}: there is no fault {kind!r}; write {EXAMPLES}")
        target = cast(Target, found["target"] or ("server" if kind == "partition" else ""))
        if target not in _KINDS[kind]:
            raise ValueError(f"{text!r}: {kind} takes {' or '.join(_KINDS[kind])}; write {EXAMPLES}")
        if found["node"] and (target != "server" or int(found["node"]) < 1):
            raise ValueError(f"{text!r}: nodes are those of the lock server, counted from 1: kill:server2@5s")
        try:
            at = parse_duration(found["at"])
            seconds = None if found["seconds"] is None else parse_positive_duration(found["seconds"])
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from None
        if seconds is None and kind != "kill":
            raise ValueError(f"{text!r}: a {kind} needs a length, as in {kind}:{target}@{found['at']}+2s")
        node = int(found["node"]) if found["node"] else None
        return cls(kind=kind, target=target, at=at, seconds=seconds, node=node)

    def __str__(self) -> str:
        length = "" if self.seconds is None else f"+{self.seconds:g}s"
        return f"{self.kind}:{self.target}{self.node or ''}@{self.at:g}s{length}"

    @property
    def until(self) -> float:
        return inf if self.seconds is None else self.at + self.seconds

    def clashes_with(self, other: "FaultSpec") -> bool:
        """Whether one of them would undo the other."""
        return (
            self.target == other.target != "holder"
            and (self.kind == "partition") == (other.kind == "partition")
            and (self.node == other.node or None in (self.node, other.node))
            and self.at < other.until
            and other.at < self.until
        )


def parse_seed(text: str) -> int:
    """The seed of `random:SEED`.

    :raises ValueError: it is written otherwise.
    """
    kind, _, seed = text.partition(":")
    if kind != "random" or not seed.isdecimal():
        raise ValueError(f"{text!r} is not a way to choose faults: write random:1, or any other seed")
    return int(seed)


def faults_of(config: RunConfig) -> list[FaultSpec]:
    """All that is to break in this run, in the order of time.

    :raises UsageError: something cannot be broken here, or two faults would undo each other.
    """
    faults = [FaultSpec.parse(text) for text in config.faults]
    nodes = INSTALLATIONS[config.backend].votes
    if config.fault_seed is not None:
        faults += _draw(config, nodes)
    faults.sort(key=lambda fault: fault.at)
    check_faults(config, faults)
    return faults


def check_faults(config: RunConfig, faults: Sequence[FaultSpec]) -> None:
    """:raises UsageError: something cannot be broken here, or two faults would undo each other."""
    nodes = INSTALLATIONS[config.backend].votes
    targets = {target for _, target in breakable(config)}
    for fault in faults:
        if fault.target not in targets:
            raise UsageError(f"--fault {fault}: {_WHY_NOT[fault.target]}")
        if fault.at >= config.duration:
            raise UsageError(f"--fault {fault} comes after the last arrival, {config.duration:g} s")
        if (fault.node or 0) > nodes:
            raise UsageError(f"--fault {fault}: the lock server has {nodes} node{'s' * (nodes > 1)}")
    for one, other in combinations(faults, 2):
        if one.clashes_with(other):
            raise UsageError(
                f"--fault {one} and --fault {other} overlap: let one end before the other begins"
            )


_WHY_NOT: dict[Target, str] = {
    "server": "only a lock server that the harness starts can be broken: leave out --url, and choose a "
    "--backend that is a server",
    "resource": "only a resource that the harness starts can be broken: leave out --resource-url",
}


def breakable(config: RunConfig) -> Iterator[tuple[Kind, Target]]:
    """What can be done to whom in this run."""
    yield "pause", "holder"
    for target, ours in (
        ("resource", config.resource_url is None),
        ("server", not (config.url or config.client) and config.backend != "memory"),
    ):
        if ours:
            yield from ((kind, target) for kind in _KINDS if target in _KINDS[kind])


def _draw(config: RunConfig, nodes: int) -> list[FaultSpec]:
    rng = random.Random(f"faults {config.fault_seed}")
    choices = list(breakable(config))
    drawn = rng.sample(choices, min(rng.choice((2, 3, 3, 4)), len(choices)))
    slot = config.duration * (_LAST - _FIRST) / len(drawn)
    faults = []
    for place, (kind, target) in enumerate(drawn):
        at = config.duration * _FIRST + slot * (place + rng.uniform(0.0, 0.4))
        seconds = min(slot * rng.uniform(0.15, 0.5), _LONGEST * config.ttl)
        node = rng.randint(1, nodes) if target == "server" and nodes > 1 else None
        faults.append(
            FaultSpec(kind=kind, target=target, at=round(at, 3), seconds=round(seconds, 3), node=node)
        )
    return faults
