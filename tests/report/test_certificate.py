"""The generator's certificate: it tells lateness with its sign, and what held the generator up."""

import asyncio
import contextlib
import gc
import time
from typing import Any

from harness.history.distribution import Distribution
from harness.load.pauses import PauseCounts, Pauses, Tally
from harness.report import model
from harness.report.certificate import certificate, lag_histogram
from harness.report.model import Certificate

_MS = 1_000_000
_CALM = PauseCounts()


def made(**changes: Any) -> Certificate:
    arguments: dict[str, Any] = {
        "cpu": [0.5],
        "seconds": 10.0,
        "dropped": 0,
        "pauses": [_CALM],
        "failures": [],
    }
    return certificate(Distribution([_MS] * 100), **(arguments | changes))


def test_early_arrivals_are_told_apart_from_late_ones() -> None:
    lag = Distribution([-_MS, -1, 0, _MS // 20, 3 * _MS, 700 * _MS])
    counts = lag_histogram(lag)
    assert counts["early"] == 2
    assert counts["<0.1 ms"] == 2
    assert counts["<5 ms"] == 1
    assert counts["later"] == 1
    assert sum(counts.values()) == lag.count


def test_no_arrivals_make_an_empty_histogram() -> None:
    assert set(lag_histogram(Distribution()).values()) == {0}


def test_a_calm_generator_is_trustworthy() -> None:
    assert made().trustworthy is True


def test_what_is_known_against_a_run_is_in_its_certificate() -> None:
    found = made(failures=["the lock server died"])
    assert found.trustworthy is False
    assert found.reasons == ("the lock server died",)


def test_a_collector_that_takes_a_tenth_of_the_run_is_a_reason_not_to_trust_it() -> None:
    busy = PauseCounts(collections=Tally(30, 1.2, 0.4))
    found = made(pauses=[busy])
    assert found.trustworthy is False
    assert "garbage collector" in found.reasons[0]
    assert made(pauses=[busy, _CALM]).trustworthy is True, "of two processes it is less than a tenth"


def test_pauses_of_several_processes_add_up() -> None:
    one = PauseCounts(stalls=Tally(2, 0.05, 0.03))
    other = PauseCounts(stalls=Tally(1, 0.02, 0.02))
    assert made(pauses=[one, other]).loop_stalls == model.Pauses(count=3, total_ms=70.0, longest_ms=30.0)


async def test_a_blocked_loop_and_a_collection_are_noticed() -> None:
    pauses = Pauses()
    watch = asyncio.create_task(pauses.watch())
    await asyncio.sleep(0.05)
    time.sleep(0.1)
    gc.collect()
    await asyncio.sleep(0.05)
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch
    assert pauses.stalls.count >= 1
    assert pauses.stalls.longest > 0.05
    assert pauses.collections.count >= 1
    before = pauses.collections.count
    gc.collect()
    assert pauses.collections.count == before, "the hook is gone"
