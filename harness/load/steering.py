"""Steers a run that is under way: its rate, and what is broken; and says how to repeat it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harness.config import MAX_RATE, RunConfig, UsageError, in_stages
from harness.durations import format_duration
from harness.faults.plan import FaultSpec, breakable, check_faults
from harness.load.clock import now
from harness.load.disturbance import Disturbance
from harness.load.fleet import Fleet
from harness.load.pacer import NANOSECONDS
from harness.servers.catalogue import INSTALLATIONS

_NOTICE = 0.2
"""Seconds from an order until it holds: every generator must have read it by then."""
_OURS = ("--rate", "--duration", "--stages", "--fault", "--faults", "--live")


class NotNow(Exception):
    """The run is not under way, or cannot do this; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class _UnderWay:
    config: RunConfig
    fleet: Fleet
    disturbance: Disturbance
    start: int
    end: Callable[[], None]


class Steering:
    """The controls of one run, for whoever steers it."""

    def __init__(self, tell: Callable[[float, str], None] = lambda at, what: None) -> None:
        """`tell` gets what was ordered, and when in the run it holds."""
        self._tell = tell
        self._run: _UnderWay | None = None
        self._steps: list[tuple[float, float]] = []
        self._faults: list[FaultSpec] = []
        self._steered = False

    def begin(
        self,
        config: RunConfig,
        fleet: Fleet,
        disturbance: Disturbance,
        start: int,
        end: Callable[[], None],
    ) -> None:
        """The run is under way; `end` breaks it off."""
        self._run = _UnderWay(config, fleet, disturbance, start, end)
        self._steps = config.steps
        self._faults = list(disturbance.plan)

    def over(self) -> None:
        """Nothing can be changed any more."""
        self._run = None

    def change_rate(self, rate: float) -> None:
        """From now on; 0 lets nobody come.

        :raises NotNow: it cannot be done.
        """
        if not 0 <= rate <= MAX_RATE:
            raise NotNow(f"write a rate of at most {MAX_RATE:,.0f} arrivals a second")
        run, at = self._now()
        since = at - run.config.warmup
        if since < 0:
            raise NotNow("the run warms up: its rate can be changed when it has begun")
        self._steps = [*_until(self._steps, since), (rate, round(run.config.duration - since, 3))]
        run.fleet.change_rate(rate, at=at, stage=len(self._steps) - 1 + bool(run.config.warmup))
        self._steered = True
        self._tell(at, f"{rate:,.10g} arrivals/s" if rate else "no arrivals")

    def strike(self, what: str, seconds: float | None) -> None:
        """Break something, as `--fault what@now+seconds` would.

        :raises NotNow: it cannot be done.
        """
        run, at = self._now()
        length = "" if seconds is None else f"+{seconds}s"
        try:
            fault = FaultSpec.parse(f"{what}@{at}s{length}")
            check_faults(run.config, [*self._faults, fault])
        except (ValueError, UsageError) as refused:
            raise NotNow(str(refused)) from None
        self._faults.append(fault)
        if fault.target == "holder":
            run.fleet.freeze(fault)
        else:
            run.disturbance.add(fault)
        self._steered = True
        lasting = "for good" if seconds is None else f"for {format_duration(seconds)}"
        self._tell(at, f"{what} {lasting}")

    def end(self) -> None:
        """Break the run off.

        :raises NotNow: it is over.
        """
        run, at = self._now()
        run.end()
        self._tell(at, "the end")

    def _now(self) -> tuple[_UnderWay, float]:
        """The run, and when in it an order of now will hold, in whole milliseconds."""
        if self._run is None:
            raise NotNow("the run is not under way")
        at = math.ceil((now() - self._run.start) / NANOSECONDS * 1e3 + _NOTICE * 1e3) / 1e3
        if at >= self._run.config.span:
            raise NotNow("the last arrivals have come")
        return self._run, max(at, 0.0)

    def carried_out(self, config: RunConfig) -> RunConfig:
        """The run as it was: what was changed meanwhile as its stages and faults."""
        if not self._steered:
            return config
        stages = tuple(f"{rate:.10g}/{seconds:.10g}s" for rate, seconds in self._steps if seconds > 0)
        faults = tuple(map(str, sorted(self._faults, key=lambda fault: fault.at)))
        return in_stages(replace(config, stages=stages, faults=faults, fault_seed=None))

    def repeating(self, command: Sequence[str], config: RunConfig) -> list[str]:
        """The command that does it again without being steered; `config` is what was carried out."""
        if not self._steered:
            return list(command)
        words: list[str] = []
        rest = iter(command)
        for word in rest:
            name, equals, _ = word.partition("=")
            if name == "--steer":
                continue
            if name not in _OURS:
                words.append(word)
            elif not equals and name != "--live":
                next(rest, None)
        words += ["--stages", ",".join(config.stages)]
        return [*words, *(word for fault in config.faults for word in ("--fault", fault))]


def what_can_break(config: RunConfig) -> list[str]:
    """What `strike` can be asked for in this run."""
    nodes = INSTALLATIONS[config.backend].votes
    found = []
    for kind, target in breakable(config):
        found.append(f"{kind}:{target}")
        if target == "server" and nodes > 1:
            found += (f"{kind}:{target}{number}" for number in range(1, nodes + 1))
    return found


def _until(steps: Sequence[tuple[float, float]], end: float) -> list[tuple[float, float]]:
    """The steps, cut off at a time."""
    kept = []
    for rate, seconds in steps:
        if end <= 0:
            break
        kept.append((rate, round(min(seconds, end), 3)))
        end -= seconds
    return kept
