"""Participants: forked processes that hear and are heard; intervals, and a set that shows lost updates."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from harness.judge.statistics import rule_of_three, share, wilson
from harness.lab import Track
from harness.lab.event import Event
from harness.lab.participant import Forkserver, open_forkserver
from harness.lab.resource_view import ResourceView
from harness.lab.shared_set import RESOURCE_FENCE, Mode, SharedSet
from harness.lab.track import NeverHappened
from harness.resource.client import ResourceClient
from harness.resource.process import spawn
from tests.experiments.roles import echo, sleep


def test_an_event_is_the_same_after_a_journey() -> None:
    event = Event.happened("granted", fence=3, owner="ö\n", error=None)
    assert event.details == {"fence": 3, "owner": "ö\n"}
    assert event.line().count(b"\n") == 1
    assert Event.parse(event.line()) == event
    assert event.since(event.at).at == 0


async def test_a_folder_for_temporary_files_with_a_long_path_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (far := tmp_path / ("far" * 40)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    async with open_forkserver(tmp_path / "log") as forkserver:
        assert forkserver.loaded.is_set()
    assert not list(far.iterdir())


async def test_a_participant_is_a_process_of_its_own_that_hears_and_is_heard(tmp_path: Path) -> None:
    said: list[Event] = []
    async with open_forkserver(tmp_path / "log") as forkserver:
        async with forkserver.participant("one", echo, {"a": 1}, said.append) as participant:
            assert participant.pid != os.getpid()
            participant.tell("trial", b=2)
            participant.hang_up()
            await participant.ended()
    assert [event.name for event in said] == ["started", "heard"]
    assert said[0].details == {"spec": {"a": 1}, "pid": participant.pid}
    assert said[1].details == {"name": "trial", "message": {"b": 2}}


async def test_a_participant_that_nobody_waits_for_may_have_ended(tmp_path: Path) -> None:
    """At Ctrl-C: it says hello, and ends with the forkserver before that is read."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    forkserver, cancelled = Forkserver(tmp_path / "log"), asyncio.get_running_loop().create_future()
    cancelled.cancel()
    forkserver._expected[1] = cancelled
    reader, writer = asyncio.StreamReader(), Mock(spec=asyncio.StreamWriter)
    reader.feed_data(Event.happened("hello", id=1, pid=ended.pid).line())
    await forkserver.accept(reader, writer)
    writer.close.assert_called_once()


@pytest.mark.faults
async def test_kill_9_is_noticed_and_what_was_said_before_is_heard(tmp_path: Path) -> None:
    track = Track("one", "key")
    async with open_forkserver(tmp_path / "log") as forkserver:
        async with forkserver.participant("one", sleep, {}, track.add, track) as participant:
            await track.until("asleep")
            os.kill(participant.pid, signal.SIGKILL)
            await participant.ended()
    assert [event.name for event in track.events] == ["asleep"]
    with pytest.raises(NeverHappened, match="one ended before it was granted"):
        await track.until("granted")


@pytest.mark.faults
async def test_no_participant_outlives_its_forkserver_not_even_a_frozen_one(tmp_path: Path) -> None:
    async with open_forkserver(tmp_path / "log") as forkserver:
        async with (
            forkserver.participant("one", sleep, {}, lambda event: None) as one,
            forkserver.participant("two", sleep, {}, lambda event: None) as two,
        ):
            os.kill(two.pid, signal.SIGSTOP)
            pids = [one.pid, two.pid]
    async with asyncio.timeout(30):
        while any(psutil.pid_exists(pid) for pid in pids):
            await asyncio.sleep(0.01)


@pytest.mark.faults
async def test_a_forkserver_that_was_killed_is_noticed_at_once(tmp_path: Path) -> None:
    """By whoever waits for a participant, whoever asks for another one, and those who no longer wait."""
    async with open_forkserver(tmp_path / "log") as forkserver:
        async with forkserver.participant("one", sleep, {}, lambda event: None) as one:
            parent = psutil.Process(one.pid).parent()
            assert parent is not None
            parent.suspend()

            async def ask() -> None:
                async with forkserver.participant("two", sleep, {}, lambda event: None):
                    pass

            waiting, cancelled = asyncio.create_task(ask()), asyncio.create_task(ask())
            await asyncio.sleep(0)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            parent.kill()
            with pytest.raises(NeverHappened, match="no processes could be prepared"):
                await waiting
            with pytest.raises(NeverHappened, match="no processes could be prepared"):
                await ask()
            await one.ended()


async def test_a_role_that_cannot_be_loaded_says_why_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(echo, "__module__", "no_such_module")
    async with open_forkserver(tmp_path / "log") as forkserver:
        with pytest.raises(NeverHappened, match="no_such_module"):
            async with forkserver.participant("one", echo, {}, lambda event: None):
                pass


def test_wilsons_interval_agrees_with_published_values() -> None:
    # Brown, Cai, DasGupta (2001) and every statistics package.
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(18, 100) == pytest.approx((0.1170, 0.2667), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    assert share(18, 100) == "18 of 100 (18 %, 95 %: 12 % to 27 %)"


def test_none_in_200_is_a_bound_of_one_and_a_half_percent() -> None:
    assert rule_of_three(200) == pytest.approx(0.015)
    assert (1 - rule_of_three(200)) ** 200 == pytest.approx(0.05, abs=0.002)
    assert rule_of_three(0) == 1.0


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("none", ["accepted", "accepted"]),
        ("writes only", ["accepted", "accepted"]),
        ("every operation", ["stale", "accepted"]),
        ("check-and-set", ["accepted", "failed"]),
    ],
)
async def test_both_read_then_the_older_writes_then_the_younger(mode: Mode, told: list[str]) -> None:
    async with spawn(fence=RESOURCE_FENCE[mode]) as resource, ResourceClient(resource.url) as client:
        shared = SharedSet(ResourceView(client), mode)
        older, younger = await shared.read("k", 33), await shared.read("k", 34)
        first = await shared.write("k", older, "33's", fence=33, owner="A")
        second = await shared.write("k", younger, "34's", fence=34, owner="B")
        assert [first.write, second.write] == told
        acknowledged = [
            name for name, reply in (("33's", first), ("34's", second)) if reply.write == "accepted"
        ]
        missing = await shared.lost("k", acknowledged)
        assert missing == (["33's"] if mode in ("none", "writes only") else [])
        assert second.conflict is (mode == "check-and-set")
