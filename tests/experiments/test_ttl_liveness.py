"""Experiment 6: a killed holder blocks for its lease, and a short TTL is safe with a fence."""

from pathlib import Path

import pytest

from harness.experiments import ttl_liveness
from harness.experiments.ttl_liveness import NOT_POSSIBLE
from tests.experiments.labs import UnfencedLab, quick_lab

pytestmark = pytest.mark.faults


@pytest.fixture
def on_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two backends only, to be quick; `python -m harness experiment 6` runs all."""
    monkeypatch.setattr(ttl_liveness, "SHARED", ("redis", "redis-queue"))


@pytest.mark.usefixtures("on_redis")
async def test_a_killed_holder_blocks_for_its_lease_and_no_longer(tmp_path: Path) -> None:
    async with quick_lab(tmp_path) as lab:
        outcome = await ttl_liveness.run(lab)
    assert outcome.as_predicted, {case.name: (case.observed, case.reason) for case in outcome.cases}
    for backend in ("redis", "redis-queue"):
        blocked = [
            float(str(outcome.figures["blocked_s"][f"{backend}, TTL {ttl}"]).removesuffix(" s"))
            for ttl in ("500 ms", "2 s")
        ]
        assert blocked[0] < blocked[1], "the shorter TTL is the shorter wait"
    refused = [case for case in outcome.cases if case.name.endswith("slow holder")]
    assert all(str(case.facts["slow holder was told"]).startswith("409") for case in refused)
    assert (tmp_path / "timeline.svg").is_file()


@pytest.mark.usefixtures("on_redis")
async def test_a_slow_holder_that_is_let_through_is_noticed(tmp_path: Path) -> None:
    async with UnfencedLab(tmp_path) as lab:
        case = await ttl_liveness._slow_holder(lab, "redis", "redis, slow holder", (0.5,))
    assert case.observed == "violated"


async def test_a_ttl_that_a_backend_cannot_do_is_reported_and_nothing_is_sent() -> None:
    nobody = "etcd://127.0.0.1:1"
    case = await ttl_liveness._impossible(nobody, "etcd, TTL 500 ms", 0.5)
    assert case is not None
    assert case.expected == case.observed == NOT_POSSIBLE
    assert "the shortest is 2 s" in case.reason
    assert await ttl_liveness._impossible(nobody, "etcd, TTL 2 s", 2.0) is None
