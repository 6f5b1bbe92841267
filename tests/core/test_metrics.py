"""The metrics, as a scraper sees them."""

import asyncio
import shutil
import subprocess
import sys
import threading

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

import asyncdlock
from asyncdlock.metrics import Histogram, register_in

EXPECTED = {
    "asyncdlock_acquire_attempts": "counter",
    "asyncdlock_acquired": "counter",
    "asyncdlock_acquire_timeouts": "counter",
    "asyncdlock_acquire_seconds": "histogram",
    "asyncdlock_held_seconds": "histogram",
    "asyncdlock_renewals": "counter",
    "asyncdlock_lost": "counter",
    "asyncdlock_release_by_non_owner": "counter",
    "asyncdlock_waiters": "gauge",
}


async def work(key: str) -> None:
    async with asyncdlock.connect("memory://metrics") as locks:
        async with locks.hold(key):
            with pytest.raises(asyncdlock.AcquireTimeout):
                await locks.acquire(key, timeout=0)
        handle = await locks.acquire(key)
        await handle.renew()
        await handle.release()
        await handle.release()


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("outcome", "")): sample.value
        for family in text_string_to_metric_families(text)
        if family.name.startswith("asyncdlock_")
        for sample in family.samples
        if sample.labels.get("backend") == "memory" and "le" not in sample.labels
    }


async def test_the_default_registry_exposes_the_promised_metrics(key: str) -> None:
    await work(key)
    before = samples(prometheus_client.generate_latest().decode())
    await work(key)
    text = prometheus_client.generate_latest().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name, kind in EXPECTED.items():
        assert families[name].type == kind
        assert families[name].documentation
        for sample in families[name].samples:
            assert set(sample.labels) <= {"backend", "outcome", "le"}, "no label per key"
    after = samples(text)
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    grown = {name: by for name, by in grown.items() if not name[0].endswith("_sum")}
    assert grown == {
        ("asyncdlock_acquire_attempts_total", ""): 3.0,
        ("asyncdlock_acquired_total", ""): 2.0,
        ("asyncdlock_acquire_timeouts_total", ""): 1.0,
        ("asyncdlock_acquire_seconds_count", ""): 2.0,
        ("asyncdlock_held_seconds_count", ""): 2.0,
        ("asyncdlock_renewals_total", "renewed"): 1.0,
        ("asyncdlock_release_by_non_owner_total", ""): 1.0,
    }


async def test_promtool_finds_nothing_to_complain_about(key: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    await work(key)
    registry = prometheus_client.CollectorRegistry()
    register_in(registry)
    checked = subprocess.run(
        [promtool, "check", "metrics"],
        input=prometheus_client.generate_latest(registry),
        capture_output=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr.decode()
    assert checked.stderr == b""


async def count_in(metrics: bool | prometheus_client.CollectorRegistry, key: str) -> None:
    async with asyncdlock.connect("memory://metrics", metrics=metrics) as locks:
        async with locks.hold(key):
            pass


async def test_another_registry_gets_the_counts_and_the_default_one_does_not(key: str) -> None:
    mine = prometheus_client.CollectorRegistry()
    await work(key)
    before = samples(prometheus_client.generate_latest().decode())
    for _ in range(2):  # the second client finds the registry in use, and adds to it
        await count_in(mine, key)
    assert samples(prometheus_client.generate_latest().decode()) == before
    assert samples(prometheus_client.generate_latest(mine).decode())["asyncdlock_acquired_total", ""] == 2.0


async def test_nothing_is_counted_in_public_if_that_is_not_wanted(key: str) -> None:
    await work(key)
    before = samples(prometheus_client.generate_latest().decode())
    await count_in(False, key)
    assert samples(prometheus_client.generate_latest().decode()) == before


def test_who_says_no_leaves_the_default_registry_alone() -> None:
    program = """
import asyncdlock, prometheus_client
asyncdlock.connect("memory://", metrics=False)
asyncdlock.connect("memory://", metrics=prometheus_client.CollectorRegistry())
assert b"asyncdlock" not in prometheus_client.generate_latest()
asyncdlock.connect("memory://")
assert b"asyncdlock" in prometheus_client.generate_latest()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_was_observed_is_counted_once_whoever_counts() -> None:
    """The loop that observes, the watchdog and a scrape in another thread do not disturb each other."""
    histogram = Histogram()
    over = threading.Event()

    def scrape() -> None:
        while not over.is_set():
            histogram.buckets()

    scraping = threading.Thread(target=scrape)
    scraping.start()
    for number in range(200_000):
        histogram.observe(0.001 * (number % 4))
        if number % 1000 == 0:
            histogram.count()
    over.set()
    scraping.join()
    assert sum(histogram.counts) == 200_000
    assert histogram.total == pytest.approx(200_000 * 0.0015)
    assert histogram.counts[:5] == [50_000, 50_000, 50_000, 50_000, 0]


async def test_observations_do_not_pile_up_while_nobody_scrapes() -> None:
    async with asyncdlock.connect("memory://", metrics=False) as client:
        noted = client._metrics.acquire_seconds._noted
        grants = counted = 0
        async with asyncio.timeout(60):
            while counted < 3:
                before = len(noted)
                handle = await client.acquire("key")
                await handle.release()
                grants += 1
                counted += len(noted) <= before
        assert sum(client._metrics.acquire_seconds.counts) == grants
