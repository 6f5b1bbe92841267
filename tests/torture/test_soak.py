"""A soak tells what is flat from what rises, and neither from what was too short to tell."""

import math
from pathlib import Path

import pytest

from harness.lab.participant import open_forkserver
from harness.torture.soak import Gauge, GaugeSamples, soak, trend_of
from tests.cli.program import harness
from tests.torture.roles import end_while_soaking, leak_while_soaking

pytestmark = pytest.mark.faults

HOUR = 3600.0
MEMORY = Gauge("process 0", "memory", "MiB", 2.0)


def series(hours: float, per_hour: float, *, wobble: float = 0.0, warm_up: float = 0.0) -> GaugeSamples:
    """240 samples that grow so fast, with a wobble, and besides by `warm_up` in the first minutes."""
    times = [hours * HOUR * number / 239 for number in range(240)]
    values = [
        50.0
        + per_hour * at / HOUR
        + wobble * math.sin(at)
        + warm_up * (1 - math.exp(-at / (0.03 * hours * HOUR)))
        for at in times
    ]
    return GaugeSamples(times, values)


@pytest.mark.parametrize(
    ("shown", "verdict"),
    [
        pytest.param(series(1.0, 0.0, wobble=0.1), "ok", id="flat"),
        pytest.param(series(1.0, -5.0), "ok", id="falling"),
        pytest.param(series(1.0, 0.0, warm_up=20.0), "ok", id="a heap that fills at first"),
        pytest.param(series(1.0, 4.0, wobble=0.1), "violated", id="rising"),
        pytest.param(series(0.01, 100.0), "unknown", id="rising, but for half a minute"),
        pytest.param(series(1.0, 0.0, wobble=40.0), "unknown", id="too noisy"),
        pytest.param(GaugeSamples([0.0, 1.0], [1.0, 1.0]), "unknown", id="two samples"),
        pytest.param(GaugeSamples(), "unknown", id="nothing"),
    ],
)
def test_what_is_said_of_a_figure(shown: GaugeSamples, verdict: str) -> None:
    assert trend_of(MEMORY, shown).verdict == verdict


async def test_what_a_client_leaves_behind_is_found(tmp_path: Path) -> None:
    async with open_forkserver(tmp_path / "log") as forkserver:
        result = await soak("redis-queue", 6.0, 1, forkserver, tmp_path, role=leak_while_soaking)
    rising = {trend.figure.name for trend in result.trends() if trend.verdict == "violated"}
    assert {"process 0: descriptors", "process 1: tasks"} <= rising
    assert any("left a task behind" in finding for finding in result.findings)
    assert result.cycles


async def test_a_load_that_ends_by_itself_is_found(tmp_path: Path) -> None:
    """Also when it is gone before anybody has heard of it."""
    async with open_forkserver(tmp_path / "log") as forkserver:
        result = await soak("redis-queue", 6.0, 1, forkserver, tmp_path, role=end_while_soaking)
    assert [finding for finding in result.findings if "ended by itself" in finding]
    assert result.verdict == "violated"


async def test_a_soak_that_was_too_short_is_no_pass(tmp_path: Path) -> None:
    program = await harness("torture", "--soak", "1s", "--backend", "redis-queue", "--out", str(tmp_path))
    assert program.code == 3, program.stdout
    summary = program.summary()
    assert summary["verdict"] == "unknown"
    assert summary["findings"] == []
    assert summary["failed"] == 0
    assert {"server 0: keys", "process 1: memory", "resource: descriptors"} <= set(summary["series"])


async def test_a_soak_is_of_one_backend() -> None:
    program = await harness("torture", "--soak", "1s")
    assert program.code == 2
    assert "--backend" in program.stderr
