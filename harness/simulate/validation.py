"""The model compared with a measured run: parameters from one run, a prediction of another."""

from dataclasses import dataclass
from pathlib import Path

from harness.config import RunConfig
from harness.history import load_run
from harness.report.model import Summary
from harness.report.summary_json import read_summary
from harness.simulate.model import Settings, simulate
from harness.simulate.parameters import Parameters, discipline_of, measured

TOLERANCE = 0.2


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure, measured and simulated."""

    name: str
    unit: str
    measured: float
    simulated: float

    @property
    def apart(self) -> float:
        """By which share of the measured value they differ."""
        if not self.measured:
            return 0.0 if not self.simulated else float("inf")
        return abs(self.simulated - self.measured) / self.measured

    @property
    def agrees(self) -> bool:
        return self.apart <= TOLERANCE


def parameters_of(run: Path, service: float) -> Parameters:
    """:raises NoSummary, HistoryError, UsageError: there is no run there that could be measured from."""
    summary = read_summary(run)
    return measured(load_run(run).rows, discipline_of(summary), service)


def settings_of(summary: Summary) -> Settings:
    """What a measured run was asked to do, for the model."""
    config: RunConfig = summary.config
    return Settings(
        hosts=config.processes,
        contenders=config.contenders,
        rate=config.rate,
        duration=config.duration,
        keys=config.keys,
        arrivals=config.arrivals,
        timeout=config.timeout,
        discipline=discipline_of(summary),
        seed=config.seed,
    )


def compare(run: Path, parameters: Parameters) -> list[Compared]:
    """The measured run and the model's prediction of it.

    :raises NoSummary: there is no finished run.
    """
    summary = read_summary(run)
    outcome = simulate(settings_of(summary), parameters)
    waits = summary.latency_ms.arrival_to_grant.survivors
    return [
        Compared("throughput", "/s", summary.throughput_per_s, outcome.throughput),
        Compared("arrival to grant p50", "ms", waits.p50, outcome.wait(50) * 1e3),
        Compared("arrival to grant p99", "ms", waits.p99, outcome.wait(99) * 1e3),
    ]
