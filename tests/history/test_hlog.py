"""latency.hlog is read by hdrhistogram's own reader and by an independent decoder, with equal figures."""

import base64
import random
import struct
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader

from harness.history.distribution import HIGHEST_NS, SIGNIFICANT_FIGURES, Distribution
from harness.history.hlog import write_hlog
from harness.history.recorder import LATENCIES, Recording

STARTED = datetime(2024, 5, 17, 12, 30, 15, 250_000, tzinfo=UTC)
PERCENTS = (50.0, 90.0, 99.0, 99.9, 100.0)


def recording() -> Recording:
    """Three seconds with a quiet one between them, each latency on its own scale."""
    rng = random.Random(20)
    whole = Recording()
    for second in (0, 1, 3):
        whole.packed[second] = {}
        for scale, name in enumerate(LATENCIES, start=1):
            values = Distribution(int(rng.lognormvariate(5 + 2 * scale, 2)) for _ in range(400))
            whole.packed[second][name] = values.pack()
            whole.total[name].merge(values)
    return whole


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "latency.hlog"
    write_hlog(path, recording(), started=STARTED)
    return path


def percentiles_of(counts: dict[int, int]) -> list[int]:
    """Percentiles straight from the definition, over the highest value of each bucket."""
    flat = [value for value in sorted(counts) for _ in range(counts[value])]
    return [flat[max(int(percent * len(flat) / 100 + 0.5), 1) - 1] for percent in PERCENTS]


def decode(payload: str) -> dict[int, int]:
    """The V2 compressed encoding, from its specification: highest value of a bucket -> count."""
    raw = base64.b64decode(payload)
    cookie, length = struct.unpack_from(">II", raw)
    assert cookie & ~0xF0 == 0x1C849304 and length == len(raw) - 8
    body = zlib.decompress(raw[8:])
    cookie, length, offset, digits, lowest, highest, ratio = struct.unpack_from(">IIIIQQd", body)
    assert cookie & ~0xF0 == 0x1C849303 and length == len(body) - 40
    assert (offset, digits, lowest, ratio) == (0, SIGNIFICANT_FIGURES, 1, 1.0)
    assert highest == HIGHEST_NS
    counts: dict[int, int] = {}
    index = 0
    for word in zigzag_leb128(body[40:]):
        if word < 0:
            index -= word  # so many empty buckets
            continue
        # 2,048 sub-buckets: the first bucket holds all of them, every further one the upper half.
        bucket, sub = (0, index) if index < 2048 else (index // 1024 - 1, index % 1024 + 1024)
        counts[((sub + 1) << bucket) - 1] = word
        index += 1
    return counts


def zigzag_leb128(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        word = shift = 0
        while True:
            byte = data[position]
            position += 1
            if shift == 56:  # the ninth byte carries eight bits
                word |= byte << shift
                break
            word |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
        yield (word >> 1) ^ -(word & 1)


def test_hdrhistograms_reader_finds_every_tag_with_the_same_percentiles(log: Path) -> None:
    reader = HistogramLogReader(str(log), HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_FIGURES))
    merged: dict[str, HdrHistogram] = {}
    starts: list[float] = []
    while histogram := reader.get_next_interval_histogram():
        starts.append(histogram.get_start_time_stamp())
        tag = histogram.get_tag()
        merged.setdefault(tag, HdrHistogram(1, HIGHEST_NS, SIGNIFICANT_FIGURES)).add(histogram)
    reader.close()
    assert reader.get_start_time_sec() == STARTED.timestamp()
    assert sorted(set(starts)) == [1000 * (STARTED.timestamp() + second) for second in (0, 1, 3)]
    assert tuple(merged) == LATENCIES
    for name, total in recording().total.items():
        theirs = [merged[name].get_value_at_percentile(percent) for percent in PERCENTS[:-1]]
        assert theirs == total.percentiles(*PERCENTS[:-1])
        assert merged[name].get_total_count() == total.count
        assert merged[name].values_are_equivalent(merged[name].get_max_value(), total.max)


def test_an_independent_decoder_finds_the_same_percentiles(log: Path) -> None:
    lines = log.read_text().splitlines()
    assert [line for line in lines if not line.startswith(("#", '"', "Tag="))] == []
    merged: dict[str, dict[int, int]] = {}
    for line in lines:
        if line.startswith("Tag="):
            tag, _start, _length, longest, payload = line.removeprefix("Tag=").split(",")
            counts = decode(payload)
            assert max(counts) / 1e6 * 0.998 <= float(longest) + 0.001
            for value, count in counts.items():
                merged.setdefault(tag, {})
                merged[tag][value] = merged[tag].get(value, 0) + count
    for name, total in recording().total.items():
        # Never above the largest value that was really recorded, which the buckets do not know.
        mine = [min(value, total.max) for value in percentiles_of(merged[name])]
        assert mine == total.percentiles(*PERCENTS)


def test_the_head_says_when_and_in_which_format(log: Path) -> None:
    head = [line for line in log.read_text().splitlines() if not line.startswith("Tag=")]
    assert "#[Histogram log format version 1.3]" in head
    assert "#[StartTime: 1715949015.250 (seconds since epoch), 2024-05-17 12:30:15 UTC]" in head
    assert "#[BaseTime: 1715949015.250 (seconds since epoch)]" in head
    assert head[-1] == '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'


def test_early_arrivals_and_values_beyond_a_day_still_give_a_readable_log(tmp_path: Path) -> None:
    whole = Recording()
    values = Distribution([-5_000, -1, 7, HIGHEST_NS * 40])
    whole.packed[0] = {"schedule_lag": values.pack()}
    path = tmp_path / "latency.hlog"
    write_hlog(path, whole, started=STARTED)
    payload = path.read_text().splitlines()[-1].split(",")[-1]
    counts = decode(payload)
    assert sum(counts.values()) == 4
    assert counts[0] == 2
    assert (values.negative, values.min, values.max) == (2, -5_000, HIGHEST_NS * 40)
