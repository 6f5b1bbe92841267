"""`advise` sees the pauses of this host, calls none a bound, and recommends a TTL with room for them."""

import asyncio
import json
import math
import os
import signal
import sys
import time

import pytest

from harness.cli.advise import sentences
from harness.cli.main import main
from harness.judge.lease_length import advise, at_most
from harness.load.stalls import measure_stalls

PAUSE = 1.5


async def test_a_stopped_process_is_seen_and_the_advice_has_room_for_it() -> None:
    """SIGSTOP is as real as a pause gets: whoever is stopped cannot know until afterwards."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harness", "advise", "--measure", "4s", "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    assert b"watching" in await child.stderr.readline()
    os.kill(child.pid, signal.SIGSTOP)
    await asyncio.sleep(PAUSE)
    os.kill(child.pid, signal.SIGCONT)
    advice = json.loads(await child.stdout.read())
    assert await child.wait() == 0
    assert advice["longest"] > PAUSE - 0.2
    risks = {risk["ttl"]: risk for risk in advice["risks"]}
    for ttl in (0.5, 1.0):
        assert risks[ttl]["outlived"] >= 1
        assert 0 < risks[ttl]["probability"] < risks[ttl]["probability_at_most"] <= 1
    recommended = advice["recommended"]
    assert recommended is None or recommended * 2 / 3 >= 3 * advice["longest"]


async def test_a_blocked_loop_is_seen_at_its_length() -> None:
    watching = asyncio.create_task(measure_stalls(1.0))
    await asyncio.sleep(0.1)
    time.sleep(0.4)
    seen = await watching
    assert seen.longest >= 0.35
    assert seen.seconds >= 1.0
    assert seen.ticks > 0


def test_none_seen_is_a_bound_and_shrinks_with_the_time_that_was_watched() -> None:
    minute, hour = (advise([], seconds, hold=1.0).risks[0] for seconds in (60.0, 3600.0))
    assert minute.outlived == hour.outlived == 0
    assert minute.per_hour_at_most == pytest.approx(180, rel=0.02), "three in a minute might go unseen"
    assert hour.per_hour_at_most == pytest.approx(3, rel=0.02)
    assert 0 == minute.probability < hour.probability_at_most < minute.probability_at_most


def test_the_upper_bound_is_that_of_a_poisson_mean() -> None:
    """Seen so few or fewer in one case of twenty: the sum of the probabilities says it without a table."""
    for events in (0, 1, 5, 40):
        mean = at_most(events)
        seen = sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(events + 1))
        assert seen == pytest.approx(0.05, rel=0.05)


def test_longer_leases_are_outlived_less_and_block_longer() -> None:
    risks = advise([0.5, 1.0, 3.0, 8.0], 3600.0, hold=10.0).risks
    assert [risk.outlived for risk in risks] == [4, 3, 2, 1, 1, 0, 0]
    assert [risk.probability for risk in risks] == sorted((r.probability for r in risks), reverse=True)
    assert [risk.blocked for risk in risks] == sorted(risk.blocked for risk in risks)


def test_a_pause_of_two_thirds_of_the_lease_can_outlive_it() -> None:
    assert [risk.outlived for risk in advise([0.7], 60.0, hold=1.0).risks[:3]] == [1, 1, 0]


@pytest.mark.parametrize(("longest", "ttl"), [(0.01, 0.5), (0.2, 1.0), (1.0, 5.0), (12.0, 60.0)])
def test_the_recommended_lease_has_room_for_three_times_the_longest_pause(longest: float, ttl: float) -> None:
    advice = advise([longest], 60.0, hold=1.0)
    assert advice.recommended == ttl
    assert any("bound, not zero" in sentence for sentence in sentences(advice))


def test_pauses_beyond_every_lease_are_not_papered_over() -> None:
    advice = advise([30.0], 60.0, hold=1.0)
    assert advice.recommended is None
    (sentence,) = sentences(advice)
    assert "No TTL up to 60 s" in sentence


@pytest.mark.parametrize(
    "words", [["--measure", "soon"], ["--measure", "10ms"], ["--hold", "0"], ["--ttl", "1s"]]
)
def test_bad_usage_is_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["advise", *words])
    assert left.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_it_prints_a_table_and_a_recommendation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "--measure", "1s"]) == 0
    said = capsys.readouterr().out
    assert "a dead holder blocks" in said
    assert "at most" in said
    assert "Recommended: a TTL of" in said or "No TTL up to" in said
