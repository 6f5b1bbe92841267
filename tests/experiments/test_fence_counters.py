"""Experiment 11, and the scripts that it counts with."""

from pathlib import Path

from rich.console import Console

from harness import servers
from harness.cli.experiment import perform
from harness.experiments.fence_counters.numberings import NUMBERINGS, take
from harness.lab.registry import find
from harness.lab.scale.pipe import open_pipe


async def test_every_numbering_increases_for_each_key(
    redis_server: servers.RedisNode,
) -> None:
    async with open_pipe(redis_server.url) as pipe:
        for numbering in NUMBERINGS:
            fences = []
            for key in ("a", "b", "a", "b", "a"):
                fence = await take(pipe, numbering, key)
                fences.append((key, fence))
                await pipe.ask("DEL", key)
            for key in ("a", "b"):
                of_key = [fence for name, fence in fences if name == key]
                assert of_key == sorted(set(of_key)), numbering.name
                assert of_key[0] > 0


async def test_lost_counters_are_safe_and_only_those_above_the_clock_go_on(tmp_path: Path) -> None:
    console = Console(quiet=True)
    outcome, folder = await perform(find("fence-counters"), console, out=tmp_path, quick=True, seed=1)
    assert outcome.as_predicted, {case.name: case.observed for case in outcome.ran}
    found = outcome.figures["numberings"]
    assert found["per key"]["counters_left"] == outcome.figures["keys"]
    assert found["per shard"]["counters_left"] < outcome.figures["keys"]
    assert found["per key, expiring"]["counters_left"] == 0
    assert found["per key"]["fence_after_loss"] < found["per key"]["fence_before_loss"]
    assert not found["per key"]["accepted_after_loss"]
    assert found["per shard"]["accepted_after_loss"]
    assert found["per key, expiring"]["accepted_after_loss"]
    assert (folder / "bytes-for-ever.svg").is_file()
