"""Writes `latency.hlog`: every latency, second by second, as the HdrHistogram tools read it.

The format is HdrHistogram's own log, version 1.3, one line for each second and latency:

    Tag=acquire,12.000,1.000,4.231,HISTFAAA…

that is the tag, the start in seconds since `BaseTime`, the length, the largest value in milliseconds,
and the histogram in nanoseconds (V2 encoding: ZigZag LEB128 counts, deflated, base64). hdrhistogram
encodes the payload; the lines are ours, because its `HistogramLogWriter` knows no tags, its
`output_start_time` raises, and it truncates the maximum to whole milliseconds.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from harness.history.distribution import Distribution
from harness.history.recorder import INTERVAL_NS, LATENCIES, Recording

HLOG_FILE = "latency.hlog"

_LENGTH_S = INTERVAL_NS / 1e9


def write_hlog(path: Path, recording: Recording, *, started: datetime) -> None:
    """Write the recording's intervals; `started` is the wall clock at the run's start.

    :raises OSError: the file cannot be written.
    """
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.writelines(line + "\n" for line in hlog_lines(recording, started=started))


def hlog_lines(recording: Recording, *, started: datetime) -> Iterator[str]:
    """The lines of the log, in the order of time that its readers rely on."""
    epoch = started.timestamp()
    yield "#[Latencies of a harness run, in nanoseconds; one tag for each]"
    yield "#[Histogram log format version 1.3]"
    yield f"#[StartTime: {epoch:.3f} (seconds since epoch), {started.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC]"
    # Without it a reader must guess from the size of the first stamp whether stamps are absolute.
    yield f"#[BaseTime: {epoch:.3f} (seconds since epoch)]"
    yield '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
    for second in sorted(recording.packed):
        for tag in LATENCIES:
            if packed := recording.packed[second].get(tag):
                values = Distribution.unpack(packed)
                payload = values.to_hdr().encode().decode("ascii")
                start, longest = second * _LENGTH_S, max(values.max, 0) / 1e6
                yield f"Tag={tag},{start:.3f},{_LENGTH_S:.3f},{longest:.3f},{payload}"
