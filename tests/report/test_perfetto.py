"""Traces: parsed back, they tell who held what, who came after whom, and what was broken."""

import sys
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from harness.cli.main import main
from harness.config import UsageError
from harness.history import HISTORY_FILE, Fault, HistoryWriter, Row
from harness.report.perfetto import write_perfetto
from tests.cli.program import harness
from tests.report.test_html import row

_MS = 1_000_000
BEGIN, END, INSTANT = TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END, TrackEvent.TYPE_INSTANT


def parsed(path: Path) -> tuple[dict[int, str], list[Any]]:
    """Names of the lanes, and the packets with events."""
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    lanes = {
        p.track_descriptor.uuid: p.track_descriptor.name
        for p in trace.packet
        if p.HasField("track_descriptor")
    }
    return lanes, [packet for packet in trace.packet if packet.HasField("track_event")]


def write_history(folder: Path, rows: list[Row], faults: tuple[Fault, ...] = ()) -> Path:
    with HistoryWriter(folder / HISTORY_FILE, Row, origin_ns=0) as writer:
        writer.write(rows)
        for fault in faults:
            writer.fault(fault)
    return write_perfetto(folder)


def test_each_holder_is_a_slice_with_its_fence_on_the_lane_of_its_key(tmp_path: Path) -> None:
    lanes, packets = parsed(write_history(tmp_path, [row(0), row(1), row(2, key="other")]))
    assert sorted(lanes.values()) == ["hot", "other"]
    begins = [p for p in packets if p.track_event.type == BEGIN]
    assert [(lanes[p.track_event.track_uuid], p.track_event.name, p.timestamp) for p in begins] == [
        ("hot", "fence 1", 5 * _MS),
        ("hot", "fence 2", 15 * _MS),
        ("other", "fence 3", 25 * _MS),
    ]
    notes = {note.name: note for note in begins[1].track_event.debug_annotations}
    assert notes["arrival"].int_value == 1
    assert notes["waited_ms"].double_value == 5.0


def test_an_arrow_leads_from_each_release_to_the_next_grant_of_its_key(tmp_path: Path) -> None:
    _, packets = parsed(write_history(tmp_path, [row(0), row(1), row(2), row(3, key="other")]))
    from_release = {flow: p.timestamp for p in packets for flow in p.track_event.flow_ids}
    arrows = [
        (from_release[flow], p.timestamp) for p in packets for flow in p.track_event.terminating_flow_ids
    ]
    assert arrows == [(8 * _MS, 15 * _MS), (18 * _MS, 25 * _MS)]


def test_two_holders_at_once_have_a_lane_each(tmp_path: Path) -> None:
    """On one lane their slices would cross, which no trace viewer can show."""
    lanes, packets = parsed(write_history(tmp_path, [row(0, released=100 * _MS), row(1), row(2)]))
    assert list(lanes.values()) == ["hot", "hot"]
    for lane in lanes:
        times = [p.timestamp for p in packets if p.track_event.track_uuid == lane]
        kinds = [p.track_event.type for p in packets if p.track_event.track_uuid == lane]
        assert times == sorted(times)
        assert kinds == [BEGIN, END] * (len(kinds) // 2)


def test_refused_writes_and_faults_are_instants(tmp_path: Path) -> None:
    faults = (
        Fault("server frozen", 20 * _MS, 40 * _MS, {"who": "redis"}),
        Fault("partition", 30 * _MS, 50 * _MS),
        Fault("process killed", 60 * _MS, 60 * _MS),
    )
    lanes, packets = parsed(write_history(tmp_path, [row(0, write="stale", seen=9)], faults))
    instants = {
        (lanes[p.track_event.track_uuid], p.track_event.name, p.timestamp)
        for p in packets
        if p.track_event.type == INSTANT
    }
    assert instants == {
        ("hot", "write refused: fence 1, and 9 was seen", 7 * _MS),
        ("faults", "server frozen", 20 * _MS),
        ("faults", "partition", 30 * _MS),
        ("faults", "process killed", 60 * _MS),
    }
    assert list(lanes.values()).count("faults") == 2, "two of them overlap"


async def test_a_real_run_with_a_fault_becomes_a_trace_and_latest_finds_it(tmp_path: Path) -> None:
    words = (
        "--backend",
        "redis-queue",
        "--rate",
        "60",
        "--contenders",
        "30",
        "--duration",
        "1500ms",
        "--ttl",
        "300ms",
    )
    run = await harness(*words, "--fault", "pause:holder@500ms+600ms", "--out", str(tmp_path))
    run.assert_well()
    assert run.out[-1].split() == ["report", str(run.folder() / "report.html")], (
        "the last line leads to the page"
    )
    (tmp_path / "9999-half-written").mkdir()
    again = await harness("report", "latest", "--perfetto", "--out", str(tmp_path))
    assert again.code == run.code
    assert again.folder() == run.folder()
    lanes, packets = parsed(run.folder() / "trace.perfetto-trace")
    names = [p.track_event.name for p in packets if p.track_event.type == INSTANT]
    assert "holder frozen" in names
    assert sum(name.startswith("write refused") for name in names) == 1
    slices = [p for p in packets if p.track_event.type == BEGIN and lanes[p.track_event.track_uuid] == "hot"]
    assert len(slices) == run.summary()["arrivals"]["acquired"]


def test_a_browser_is_shown_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real `webbrowser`, with a browser that writes down what it was asked to show."""
    assert main(
        [
            "--backend",
            "memory",
            "--rate",
            "20",
            "--duration",
            "300ms",
            "--quiet",
            "--out",
            str(tmp_path / "runs"),
        ]
    ) in (0, 3)
    asked = tmp_path / "asked"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {asked}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    assert main(["report", "latest", "--open", "--out", str(tmp_path / "runs")]) in (0, 3)
    (page,) = (tmp_path / "runs").glob("*/report.html")
    assert asked.read_text().strip() == page.as_uri()


def test_without_its_package_a_trace_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(UsageError, match=r"pip install 'asyncdlock\[trace\]'"):
        write_history(tmp_path, [row(0)])


def test_latest_of_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "latest", "--out", str(tmp_path)]) == 2
    assert "holds no finished run" in capsys.readouterr().err
