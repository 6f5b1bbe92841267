"""Experiment 7: what many short-lived locks cost, and what they leave behind."""

from pathlib import Path

from rich.console import Console

from harness.cli.experiment import perform
from harness.lab.registry import find
from harness.lab.scale.expiry import Sample, Watch


def test_the_end_of_the_keys_is_looked_for_after_their_peak() -> None:
    counts = [0, 1, 500, 1000, 400, 1, 1]
    watch = Watch(0.0, [Sample(at, count, count, 0, 0, 0) for at, count in enumerate(counts)])
    assert watch.first(2) == 5
    assert watch.first(1) is None
    assert Watch().first(2) is None


async def test_locks_go_and_fences_stay(tmp_path: Path) -> None:
    console = Console(quiet=True)
    outcome, folder = await perform(find("key-space"), console, out=tmp_path, quick=True, seed=1)
    observed = {case.name: case for case in outcome.ran}
    for name in ("active expiry", "fence counters", "live lock", "lazy expiry"):
        assert observed[name].as_predicted, observed[name]
    # A share of two rates on a busy machine: told, and asserted where the machine is quiet.
    assert outcome.figures["share_of_limit"] > 0.2
    assert outcome.figures["keys_left"] == outcome.figures["keys"]
    assert outcome.figures["lazy"]["left_after_touch"] == 0
    assert outcome.figures["bytes_per_lock_and_fence"] > 0
    if "etcd" in outcome.figures:
        sizes = outcome.figures["etcd"]["sizes"]
        assert sizes["defragmented"]["file"] < sizes["compacted"]["file"]
    assert (folder / "memory.svg").is_file()
