"""What many short trials rest on: forked processes, honest intervals, and a set that shows lost updates."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from harness.experiments.lab.track import NeverHappened
from harness.experiments.trials.crew import open_crew
from harness.experiments.trials.intervals import rule_of_three, share, wilson
from harness.experiments.trials.shared_set import CONFLICT, RESOURCE_FENCE, Mode, SharedSet, lost
from harness.resource.process import spawn

ROLES = "tests.experiments.crew_roles"


async def test_a_member_is_a_process_of_its_own_that_hears_and_is_heard(tmp_path: Path) -> None:
    said: list[Mapping[str, Any]] = []
    async with open_crew(ROLES, log=tmp_path / "log") as crew:
        async with crew.member("one", f"{ROLES}:echo", {"a": 1}, said.append) as member:
            assert member.pid != os.getpid()
            member.tell({"b": 2})
            member.hang_up()
            await member.ended()
    assert [message["event"] for message in said] == ["started", "heard"]
    assert said[0]["spec"] == {"a": 1}
    assert said[0]["pid"] == member.pid
    assert said[1]["message"] == {"b": 2}


@pytest.mark.faults
async def test_kill_9_is_noticed_and_what_was_said_before_is_heard(tmp_path: Path) -> None:
    said: list[Mapping[str, Any]] = []
    async with open_crew(ROLES, log=tmp_path / "log") as crew:
        async with crew.member("one", f"{ROLES}:sleep", None, said.append) as member:
            while not said:
                await asyncio.sleep(0.01)
            os.kill(member.pid, signal.SIGKILL)
            await member.ended()
    assert [message["event"] for message in said] == ["asleep"]


@pytest.mark.faults
async def test_no_member_outlives_its_crew_not_even_a_frozen_one(tmp_path: Path) -> None:
    async with open_crew(ROLES, log=tmp_path / "log") as crew:
        async with (
            crew.member("one", f"{ROLES}:sleep", None, lambda message: None) as one,
            crew.member("two", f"{ROLES}:sleep", None, lambda message: None) as two,
        ):
            os.kill(two.pid, signal.SIGSTOP)
            pids = [one.pid, two.pid]
    async with asyncio.timeout(30):
        while any(psutil.pid_exists(pid) for pid in pids):
            await asyncio.sleep(0.01)


async def test_a_crew_that_cannot_load_says_why_at_once(tmp_path: Path) -> None:
    with pytest.raises(NeverHappened, match="no_such_module"):
        async with open_crew("no_such_module", log=tmp_path / "log"):
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
    async with spawn(fence=RESOURCE_FENCE[mode]) as resource, aiohttp.ClientSession() as session:
        shared = SharedSet(resource.url, session, mode)
        older, younger = await shared.read("k", 33), await shared.read("k", 34)
        first = await shared.write("k", older, "33's", fence=33, owner="A")
        second = await shared.write("k", younger, "34's", fence=34, owner="B")
        assert [first.write, second.write] == told
        acknowledged = [
            name for name, reply in (("33's", first), ("34's", second)) if reply.write == "accepted"
        ]
        missing = lost(acknowledged, (await shared.read("k")).elements)
        assert missing == (["33's"] if mode in ("none", "writes only") else [])
        assert (second.error == CONFLICT) is (mode == "check-and-set")
