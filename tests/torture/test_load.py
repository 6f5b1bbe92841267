"""A process of the load outlives what the nemesis does to it from the moment it is ready."""

import asyncio
from pathlib import Path

import pytest

from harness.faults import FaultJournal
from harness.faults.process import cancel_storm
from harness.lab.event import Event
from harness.lab.participant import open_forkserver
from harness.torture.load import load

pytestmark = pytest.mark.faults


async def test_a_cancel_storm_before_it_was_told_to_begin_does_not_end_it(tmp_path: Path) -> None:
    ready, done = asyncio.Event(), asyncio.Event()
    told = {"ready": ready, "done": done}
    spec = {
        "backend": "memory",
        "url": "memory://torture",
        "resource": "http://127.0.0.1:9",  # nobody answers there
        "seed": 1,
        "process": 0,
        "life": 0,
        "ttl": 0.3,
    }

    def heard(event: Event) -> None:
        if event.name in told:
            told[event.name].set()

    async with open_forkserver(tmp_path / "log") as forkserver:
        async with forkserver.participant("process 0", load, spec, heard) as participant:
            await asyncio.wait_for(ready.wait(), 60)
            cancel_storm(FaultJournal(0), participant.pid)
            participant.go()
            participant.tell("stop")
            await asyncio.wait_for(participant.over.wait(), 60)
    assert done.is_set(), "it came to its end"
