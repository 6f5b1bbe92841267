"""What is to break in a run: how it is written, drawn, and refused."""

import pytest

from harness.config import RunConfig, UsageError
from harness.faults.plan import FaultSpec, faults_of


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill:server@5s", FaultSpec(kind="kill", target="server", at=5.0)),
        ("kill:server2@5s+1s", FaultSpec(kind="kill", target="server", at=5.0, seconds=1.0, node=2)),
        ("partition@8s+2s", FaultSpec(kind="partition", target="server", at=8.0, seconds=2.0)),
        ("pause:holder@500ms+2m", FaultSpec(kind="pause", target="holder", at=0.5, seconds=120.0)),
    ],
)
def test_a_fault_is_read_as_it_is_written(text: str, fault: FaultSpec) -> None:
    assert FaultSpec.parse(text) == fault == FaultSpec.parse(str(fault))


def test_faults_come_in_the_order_of_time() -> None:
    config = RunConfig(faults=("partition@8s+2s", "kill:server@5s+1s", "pause:holder@6s+2s"))
    assert [fault.at for fault in faults_of(config)] == [5.0, 6.0, 8.0]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("backend", ["redis", "redlock", "memory"])
def test_drawn_faults_fit_the_run_and_leave_it_time_to_recover(seed: int, backend: str) -> None:
    config = RunConfig(backend=backend, fault_seed=seed, duration=10.0, ttl=1.0)
    drawn = faults_of(config)
    assert drawn == faults_of(config), "the same seed, the same faults"
    assert 2 <= len(drawn) <= 4
    assert all(fault.until <= 0.9 * config.duration for fault in drawn)
    assert not any(fault.target == "server" for fault in drawn if backend == "memory")
    assert all(
        1 <= (fault.node or 0) <= 5 for fault in drawn if backend == "redlock" and fault.target == "server"
    )


def test_seeds_differ() -> None:
    plans = {str(faults_of(RunConfig(fault_seed=seed))) for seed in range(20)}
    assert len(plans) == 20


@pytest.mark.parametrize(
    ("config", "because"),
    [
        (RunConfig(faults=("kill:server@1s",), url="redis://127.0.0.1"), "leave out --url"),
        (RunConfig(faults=("kill:server@1s",), backend="memory"), "choose a --backend"),
        (RunConfig(faults=("pause:resource@1s+1s",), resource_url="http://h"), "leave out --resource-url"),
        (RunConfig(faults=("kill:server@20s",)), "after the last arrival"),
        (RunConfig(faults=("kill:server2@1s",)), "has 1 node"),
        (RunConfig(faults=("kill:server@1s", "pause:server@3s+1s")), "overlap"),
        (RunConfig(faults=("partition@1s+2s", "partition:server@2s+2s")), "overlap"),
    ],
)
def test_what_cannot_be_broken_here_is_refused(config: RunConfig, because: str) -> None:
    with pytest.raises(UsageError, match=because):
        faults_of(config)


def test_a_partition_may_meet_a_kill_and_one_node_another() -> None:
    both = ("kill:server1@1s+2s", "partition@1s+2s", "kill:server2@1s+2s", "kill:resource@1s+2s")
    assert len(faults_of(RunConfig(backend="redlock", faults=both))) == 4
