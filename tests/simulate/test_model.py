"""The model: deterministic, and right where the answer can be worked out by hand."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.config import RunConfig, UsageError
from harness.history import Row
from harness.report.model import Summary
from harness.report.summary_json import write_summary
from harness.simulate.model import Settings, simulate
from harness.simulate.parameters import DEFAULTS, Discipline, Samples, always, discipline_of, measured
from harness.simulate.validation import Compared
from tests.cli.program import harness

HOLD, EXCHANGE, HANDOFF, LOCAL, SERVICE = 1e-3, 200e-6, 300e-6, 20e-6, 10e-6
COSTS = replace(
    DEFAULTS,
    hold=always(HOLD),
    exchange=always(EXCHANGE),
    handoff=always(HANDOFF),
    local=always(LOCAL),
    service=SERVICE,
)
CROWD = Settings(rate=5000, duration=2.0)


@pytest.mark.parametrize("discipline", ["queue", "local", "poll"])
def test_the_same_settings_give_the_same_outcome_and_everybody_is_accounted_for(
    discipline: Discipline,
) -> None:
    settings = replace(CROWD, discipline=discipline, timeout=0.5, contenders=200, hosts=4, arrivals="poisson")
    one, two = simulate(settings, COSTS), simulate(settings, COSTS)
    assert one == two
    assert one.acquired + one.gave_up == one.offered
    assert one.gave_up > 0
    assert one.waits[-1] <= 0.5
    assert simulate(replace(settings, seed=2), COSTS) != one


@pytest.mark.parametrize("rtt", [0.0, 0.002])
def test_a_hot_key_does_one_cycle_after_the_other(rtt: float) -> None:
    outcome = simulate(replace(CROWD, rtt=rtt), COSTS)
    assert outcome.throughput == pytest.approx(1 / (HOLD + HANDOFF + rtt), rel=0.01)


def test_local_handoff_takes_the_network_out_of_most_cycles() -> None:
    far = replace(CROWD, rtt=0.01, hosts=2, discipline="local", block=64)
    outcome = simulate(far, COSTS)
    turn = 65 * HOLD + 64 * LOCAL + EXCHANGE + far.rtt
    # Another host's turn begins with a message from the server, which costs a hand-off.
    turn += HANDOFF - EXCHANGE
    assert outcome.throughput == pytest.approx(65 / turn, rel=0.02)
    strict = simulate(replace(far, discipline="queue"), COSTS)
    assert outcome.throughput > 5 * strict.throughput
    assert outcome.requests < strict.requests / 20


def test_an_idle_lock_costs_an_exchange_and_the_network() -> None:
    outcome = simulate(Settings(rate=50, duration=2.0, rtt=0.001), COSTS)
    assert outcome.wait(50) == pytest.approx(EXCHANGE + 0.001)
    assert outcome.wait(99) == pytest.approx(EXCHANGE + 0.001)
    assert outcome.queue == 1


def test_many_keys_are_bounded_by_the_servers_one_thread() -> None:
    outcome = simulate(Settings(rate=200_000, duration=0.5, keys=100_000, hosts=1000, rtt=0.001), COSTS)
    assert outcome.server == pytest.approx(1.0, abs=0.02)
    # While the first requests come in, releases have not: a little more than one in two requests is granted.
    assert outcome.acquired / (outcome.requests * SERVICE) == pytest.approx(1 / (2 * SERVICE), rel=0.01)


def test_those_who_poll_cost_the_server_more_for_less() -> None:
    crowd = replace(CROWD, contenders=500, timeout=5.0)
    queue, poll = simulate(crowd, COSTS), simulate(replace(crowd, discipline="poll"), COSTS)
    assert poll.throughput <= queue.throughput * 1.2
    assert poll.requests / poll.acquired > 2 * queue.requests / queue.acquired


def test_measured_values_keep_their_mean_and_their_order_in_stretches() -> None:

    draw = Samples([float(number) for number in range(10_000)]).stream(random.Random(1))
    drawn = [draw() for _ in range(5_000)]
    steps = [after - before for before, after in pairwise(drawn)]
    assert sum(step == 1.0 for step in steps) > 4_900


def _rows(cycles: int) -> list[Row]:
    """Every second holder waits for the one before it: 1 ms holds, 300 µs hand-offs, 200 µs exchanges."""
    rows = []
    for number in range(cycles):
        base = number * 10_000_000
        first = Row(2 * number, 0, 0, "k", base, base, base, base + 200_000, releasing=base + 1_200_000)
        first.released = base + 1_250_000
        second = Row(2 * number + 1, 0, 1, "k", base, base, base + 500_000, base + 1_500_000)
        second.releasing, second.released = base + 2_500_000, base + 2_600_000
        rows += [first, second]
    return rows


def test_costs_are_taken_from_the_rows_of_a_run() -> None:
    found = measured(_rows(40), "queue", SERVICE)
    assert set(found.hold.values) == {1e-3}
    assert set(found.exchange.values) == {200e-6}
    assert set(found.handoff.values) == {300e-6}
    with pytest.raises(UsageError, match="too few locks were held"):
        measured(_rows(2), "queue", SERVICE)


@pytest.mark.parametrize(
    ("config", "discipline"),
    [
        (RunConfig(backend="redis"), "poll"),
        (RunConfig(backend="redis-queue"), "local"),
        (RunConfig(backend="redis-queue", options=("local_handoffs=0",)), "queue"),
        (RunConfig(url="redis-queue://h?local_handoffs=0"), "queue"),
        (RunConfig(backend="redis-queue", options=("local_queue=off",)), "queue"),
        (RunConfig(backend="postgres"), "local"),
        (RunConfig(url="postgresql://h/d"), "local"),
        (RunConfig(url="postgress://h/d?local_handoffs=0"), "queue"),
        (RunConfig(backend="zookeeper", options=("local_handoffs=16",)), "local"),
        (RunConfig(backend="etcd"), "queue"),
        (RunConfig(backend="redlock"), "queue"),
        (RunConfig(backend="redlock", options=("local_queue=off",)), "poll"),
    ],
)
def test_the_discipline_is_that_of_the_measured_lock(config: RunConfig, discipline: str) -> None:
    assert discipline_of(Summary(schema="asyncdlock-summary/1", config=config)) == discipline


def test_a_figure_agrees_within_a_fifth() -> None:
    assert Compared("x", "", 100, 119).agrees
    assert not Compared("x", "", 100, 121).agrees
    assert not Compared("x", "", 0, 1).agrees


def test_the_command_prints_a_sweep_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--rate", "2000", "--hold", "1ms", "--sweep", "rtt=1ms,10ms,80ms"]
    assert main([*words, "--svg", str(tmp_path / "rtt.svg")]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["1", "10", "80"]
    assert (tmp_path / "rtt.svg").read_text().startswith("<svg")
    assert main([*words, "--json"]) == 0
    points = json.loads(capsys.readouterr().out)
    assert points[0]["throughput_per_s"] > points[1]["throughput_per_s"] > points[2]["throughput_per_s"]


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--sweep", "colour=1,2"), "is not a sweep"),
        (("--sweep", "hosts=1,none"), "is not a whole number"),
        (("--svg", "x.svg"), "--svg draws a sweep"),
        (("--rtt", "far"), "is not a duration"),
        (("--from", "no-such-run"), "name the folder of a finished run"),
    ],
)
async def test_what_cannot_be_simulated_is_said(words: tuple[str, ...], because: str) -> None:
    run = await harness("simulate", *words)
    assert run.code == 2
    assert because in run.stderr
    assert len(run.err) == 1


async def test_a_measured_run_can_be_held_against_the_model(tmp_path: Path) -> None:
    """How near they are is a matter of the machine: here it only has to be told."""
    words = ("--backend", "redis-queue", "--arrivals", "poisson", "--work", "2ms", "--duration", "3s")
    run = await harness(*words, "--rate", "200", "--option", "local_handoffs=0", "--out", str(tmp_path))
    folder = str(run.folder())
    compared = await harness("simulate", "--from", folder, "--against", folder)
    assert compared.code in (0, 4)
    assert [line.split()[0] for line in compared.out] == ["throughput", "arrival", "arrival"]
    told = await harness("simulate", "--from", folder, "--against", folder, "--json")
    throughput = json.loads(told.stdout)[0]
    assert throughput["measured"] == run.summary()["throughput_per_s"]
    assert throughput["simulated"] > 0


def test_costs_come_from_no_run_without_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(tmp_path, Summary(schema="asyncdlock-summary/1"))
    assert main(["simulate", "--from", str(tmp_path)]) == 2
    assert "holds no history.jsonl.gz" in capsys.readouterr().err
