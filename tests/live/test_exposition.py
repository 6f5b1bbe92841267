"""/metrics over several processes: what members export adds up to one exposition."""

import json
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from harness.config import UsageError
from harness.history.distribution import Distribution
from harness.history.recorder import Counters
from harness.live.exposition import export, merge
from harness.live.metrics import HarnessCollector, MetricsServer, registry_of
from harness.load.fleet import Progress


def member(amount: int) -> list[list[object]]:
    registry = CollectorRegistry()
    counter = Counter("asyncdlock_tries", "Tries.", ["backend"], registry=registry)
    counter.labels("redis").inc(amount)
    histogram = Histogram("asyncdlock_seconds", "Time.", buckets=(1, 2), registry=registry)
    for _ in range(amount):
        histogram.observe(1.5)
    Counter("unrelated", "Not ours.", registry=registry)
    exported: list[list[object]] = json.loads(json.dumps(export(registry)))
    return exported


def test_samples_of_equal_name_and_labels_add_up() -> None:
    families = {family.name: family for family in merge([member(2), member(3)])}
    assert set(families) == {"asyncdlock_tries", "asyncdlock_seconds"}
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert values["asyncdlock_tries_total", "redis"] == 5
    assert values["asyncdlock_seconds_bucket", "1.0"] == 0
    assert values["asyncdlock_seconds_bucket", "2.0"] == 5
    assert values["asyncdlock_seconds_count",] == 5
    assert values["asyncdlock_seconds_sum",] == 7.5


def test_the_harness_serves_its_progress_and_the_library_s_metrics() -> None:
    collector = HarnessCollector()
    collector.progress = Progress(
        counters=Counters(offered=9, stale=2, backlog=4),
        recent={"acquire": Distribution([1_000_000] * 3)},
        metrics=[member(1)],
    )
    server = MetricsServer(0, registry_of(collector))
    try:
        with urllib.request.urlopen(server.url) as reply:
            text = reply.read().decode()
    finally:
        server.close()
    assert "harness_offered_total 9.0" in text
    assert "harness_stale_total 2.0" in text
    assert "harness_backlog 4.0" in text
    assert 'harness_recent_latency_seconds{latency="acquire",percentile="99"} 0.001' in text
    assert 'asyncdlock_tries_total{backend="redis"} 1.0' in text


def test_before_the_first_report_there_is_an_exposition_too() -> None:
    assert b"harness_offered_total 0.0" in generate_latest(registry_of(HarnessCollector()))


def test_a_taken_port_is_one_sentence() -> None:
    first = MetricsServer(0, CollectorRegistry())
    try:
        with pytest.raises(UsageError, match="choose another --metrics-port"):
            MetricsServer(int(first.url.rsplit(":", 1)[1].split("/")[0]), CollectorRegistry())
    finally:
        first.close()
