"""History files: what is written is read, a killed writer leaves its prefix, parts merge."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.history import (
    HISTORY_FILE,
    RESOURCE_FILE,
    Decision,
    End,
    Fault,
    Header,
    HistoryError,
    HistoryWriter,
    Row,
    load,
    load_run,
    merge,
    read,
)

strings = st.text(max_size=20) | st.sampled_from(["],[", "]\n[", '"', "\\", "☃", "\udc80", "\x00"])
texts = st.none() | strings
times = st.none() | st.integers(-(1 << 62), 1 << 62)
rows = st.builds(
    Row,
    id=st.integers(0, 1 << 40),
    process=st.integers(0, 100),
    contender=st.integers(-1, 100_000),
    key=strings,
    intended=st.integers(0, 1 << 62),
    dispatched=times,
    called=times,
    granted=times,
    write_sent=times,
    write_done=times,
    released=times,
    owner=texts,
    fence=st.none() | st.integers(1, (1 << 63) - 1),
    outcome=st.sampled_from(["ok", "timed_out", "failed", "lost", "stale", "abandoned"]),
    write=st.sampled_from(["accepted", "stale", "unknown", "failed", "none"]),
    seen=st.none() | st.integers(0, (1 << 63) - 1),
    paused=st.booleans(),
    error=texts,
)


def some_rows(count: int, *, process: int = 0) -> list[Row]:
    return [
        Row(1000 * process + number, process, number, "account:42", number * 1000, owner=f"o-{number}")
        for number in range(count)
    ]


@given(st.lists(rows, max_size=10), st.sampled_from([".jsonl", ".jsonl.gz"]))
def test_any_rows_are_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, written: list[Row], suffix: str
) -> None:
    path = tmp_path_factory.mktemp("history") / f"h{suffix}"
    with HistoryWriter(path, Row, origin_ns=5, config={"rate": 500}, process=2) as writer:
        writer.write(written[:3])
        writer.write(written[3:])
    lines = list(read(path))
    assert isinstance(lines[0], Header)
    assert (lines[0].origin_ns, lines[0].process, lines[0].config) == (5, 2, {"rate": 500})
    assert lines[1:-1] == written
    assert lines[-1] == End(len(written))


def test_decisions_faults_and_notes_are_read_back(tmp_path: Path) -> None:
    decision = Decision("k", 1, 33, 0, "stale", 34, 7, 100, 105, "owner", "abc")
    fault = Fault("pause", 10, 20, {"arrival": 3})
    path = tmp_path / "r.jsonl.gz"
    with HistoryWriter(path, Decision, origin_ns=0) as writer:
        writer.write([decision])
        writer.fault(fault)
        writer.note("by hand")
    history = load(path)
    assert history.log == [decision]
    assert history.faults == [fault]
    assert history.notes == ["by hand"]
    assert history.complete


def test_every_line_is_json_of_its_own_for_other_tools(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl.gz"
    rows = some_rows(100)
    rows[50].key = "a],[b"
    with HistoryWriter(path, Row, origin_ns=0) as writer:
        writer.write(rows)
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    assert len(lines) == 102
    assert [line[3] for line in lines[1:-1]] == [row.key for row in rows]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_file_cut_off_anywhere_gives_what_came_before_the_cut(tmp_path: Path, suffix: str) -> None:
    whole = tmp_path / f"whole{suffix}"
    with HistoryWriter(whole, Row, origin_ns=0) as writer:
        for row in some_rows(60):
            writer.write([row])
            writer.sync()
    content = whole.read_bytes()
    found = set()
    cut = tmp_path / f"cut{suffix}"
    for length in range(1, len(content), 11):
        cut.write_bytes(content[:length])
        got = [line for line in read(cut) if isinstance(line, Row)]
        assert got == some_rows(60)[: len(got)]
        if length < len(content) - 40:
            assert not any(isinstance(line, End) for line in read(cut))
        found.add(len(got))
    assert len(found) > 40, "most of the prefix is readable"


def test_a_killed_writer_leaves_a_readable_prefix_that_is_not_complete(tmp_path: Path) -> None:
    """A real process, killed with SIGKILL while it writes."""
    path = tmp_path / "killed.jsonl.gz"
    program = (
        "import sys, time; from pathlib import Path; from harness.history import HistoryWriter, Row\n"
        "writer = HistoryWriter(Path(sys.argv[1]), Row, origin_ns=0)\n"
        "for number in range(10**9):\n"
        "    writer.write([Row(number, 0, 0, 'k', number)])\n"
        "    if number % 100 == 99: writer.sync(); print(number + 1, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        promised = 0
        while promised < 500:
            promised = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    history = load(path)
    assert len(history.rows) >= promised
    assert [row.id for row in history.rows] == list(range(len(history.rows)))
    assert not history.complete


def test_writing_flushes_by_itself_every_second_or_so(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl.gz"
    writer = HistoryWriter(path, Row, origin_ns=0)
    deadline = time.monotonic() + 30
    written = 0
    while not (written and any(isinstance(line, Row) for line in read(path))):
        assert time.monotonic() < deadline, "nothing reached the file"
        writer.write(some_rows(1))
        written += 1
        time.sleep(0.05)
    writer.close()


def test_parts_of_several_processes_merge_into_one_file(tmp_path: Path) -> None:
    parts = []
    for process in range(3):
        part = tmp_path / f"part-{process}.jsonl.gz"
        with HistoryWriter(part, Row, origin_ns=77, config={"seed": 1}, process=process) as writer:
            writer.write(some_rows(100, process=process))
            writer.fault(Fault("pause", process))
        parts.append(part)
    assert merge(parts, tmp_path / HISTORY_FILE) == 300
    history = load_run(tmp_path)
    assert history.complete
    assert {row.id for row in history.rows} == {1000 * p + n for p in range(3) for n in range(100)}
    assert [fault.at for fault in history.faults] == [0, 1, 2]
    assert history.config == {"seed": 1}
    assert load(*parts).rows == history.rows


def test_merging_a_killed_processs_part_keeps_its_prefix_and_says_so(tmp_path: Path) -> None:
    parts = [tmp_path / "0.jsonl.gz", tmp_path / "1.jsonl.gz"]
    for process, part in enumerate(parts):
        with HistoryWriter(part, Row, origin_ns=0) as writer:
            writer.write(some_rows(50, process=process))
            writer.sync()
            writer.write(some_rows(1, process=9))
    parts[0].write_bytes(parts[0].read_bytes()[:-30])
    merge(parts, tmp_path / HISTORY_FILE)
    history = load_run(tmp_path)
    assert not history.complete
    assert len(history.rows) >= 100


def test_the_resources_clock_is_moved_to_the_runs_start(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / HISTORY_FILE, Row, origin_ns=1_000_000) as arrivals:
        arrivals.write(some_rows(1))
    resource = HistoryWriter(
        tmp_path / RESOURCE_FILE, Decision, origin_ns=0, times="monotonic", config={"after": 10}
    )
    with resource as log:
        log.write([Decision("k", 12, 5, started=1_000_300, decided=1_000_400), Decision("k", 11, 4)])
    history = load_run(tmp_path)
    assert history.log is not None
    assert history.log_after == 10
    assert [decision.seq for decision in history.log] == [11, 12], "in the resource's order"
    assert (history.log[1].started, history.log[1].decided) == (300, 400)


def test_an_empty_log_is_a_log_and_no_log_is_none(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / HISTORY_FILE, Row, origin_ns=0) as arrivals:
        arrivals.write(some_rows(1))
    assert load_run(tmp_path).log is None
    HistoryWriter(tmp_path / RESOURCE_FILE, Decision, origin_ns=0).close()
    assert load_run(tmp_path).log == []


@pytest.mark.parametrize("broken", [HISTORY_FILE, RESOURCE_FILE])
def test_a_run_is_complete_only_if_each_of_its_files_is(tmp_path: Path, broken: str) -> None:
    HistoryWriter(tmp_path / HISTORY_FILE, Row, origin_ns=0).close()
    HistoryWriter(tmp_path / RESOURCE_FILE, Decision, origin_ns=0).close()
    assert load_run(tmp_path).complete
    content = (tmp_path / broken).read_bytes()
    (tmp_path / broken).write_bytes(content[:-12])
    assert not load_run(tmp_path).complete


def test_a_row_by_hand_needs_only_what_has_no_default(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(
        '{"schema": "asyncdlock-history/1"}\n\n'
        '{"id": 1, "key": "k", "intended": 0}\n'
        '{"seq": 1, "key": "k", "token": 3, "accepted": false}\n'
        '{"end": 2}'
    )
    history = load(path)
    assert history.rows == [Row(1, 0, -1, "k", 0)]
    assert history.log == [Decision("k", 1, 3, outcome="stale")]
    assert not history.log[0].accepted


def test_columns_that_a_newer_version_added_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(
        '{"schema": "asyncdlock-history/1", "weather": "fine", "columns": ["id", "mood", "key", "intended"]}'
        "\n"
        '[4, "sunny", "k", 9]\n'
    )
    assert load(path).rows == [Row(4, 0, -1, "k", 9)]


HEAD = '{"schema": "asyncdlock-history/1", "columns": ["id", "key", "intended"]}\n'


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is empty"),
        ("hello\nworld\n", "line 1: not JSON"),
        (HEAD + '[1,"k",0]\nrubbish\n[2,"k",0]\n', "line 3: not JSON"),
        ('[1,"k",0]\n', "line 1: a row before the header"),
        (HEAD + '[1,"k"]\n', "line 2: "),
        (HEAD + '{"id": 4}\n', "line 2: a row without key, intended"),
        (HEAD + '{"who": 4}\n', "line 2: unknown kind of line with who"),
        (HEAD + "7\n", "line 2: expected a JSON array or object"),
        ('{"schema": "asyncdlock-history/99"}\n', "line 1: written as 'asyncdlock-history/99'"),
        ('{"schema": "asyncdlock-history/1", "kind": "breakfast"}\n', "line 1: a header of 'breakfast'"),
        (HEAD + "[" * 100_000 + "]" * 100_000 + "\n", "line 2: not JSON"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_line(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text(content)
    with pytest.raises(HistoryError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert complaint in str(caught.value)


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"holds no history\.jsonl\.gz"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    "spoil", [lambda text: "x" + text, lambda text: text.replace("intended", "inclined")]
)
def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    good, bad = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    HistoryWriter(good, Row, origin_ns=0).close()
    bad.write_text(spoil(good.read_text()))
    with pytest.raises(HistoryError):
        merge([good, bad], tmp_path / "out.jsonl.gz")


def test_closing_twice_is_harmless_and_an_unwritable_folder_is_an_os_error(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path / "h.jsonl.gz", Row, origin_ns=0)
    writer.close()
    writer.close()
    with pytest.raises(OSError):
        HistoryWriter(tmp_path / "absent" / "h.jsonl.gz", Row, origin_ns=0)
