"""Report pages: what they say can be read by a program, and they need nothing from elsewhere."""

import html
import json
import re
from pathlib import Path
from typing import Any

from harness.config import RunConfig
from harness.history import HISTORY_FILE, RESOURCE_FILE, Decision, HistoryWriter, Row
from harness.judge.checkers.registry import questions
from harness.report.html import write_html
from harness.report.html_charts import charts_of, holders_of
from harness.report.html_experiment import markdown, write_experiment_html
from harness.report.model import Summary
from harness.report.summary_json import to_json
from tests.report.test_summary import example

_MS = 1_000_000


def row(number: int, *, key: str = "hot", **values: Any) -> Row:
    at = number * 10 * _MS
    times: dict[str, Any] = {
        "dispatched": at,
        "called": at,
        "granted": at + 5 * _MS,
        "write_sent": at + 6 * _MS,
        "write_done": at + 7 * _MS,
        "released": at + 8 * _MS,
        "fence": number + 1,
        "owner": f"owner-{number}",
        "outcome": "ok",
        "write": "accepted",
    }
    return Row(number, 0, number % 3, key, at, **(times | values))


def written(folder: Path, rows: list[Row], **changes: Any) -> str:
    (folder / "summary.json").write_text(json.dumps(to_json(example()) | changes))
    with HistoryWriter(folder / HISTORY_FILE, Row, origin_ns=0) as writer:
        writer.write(rows)
    return write_html(folder).read_text()


def timeline(page: str) -> dict[str, Any]:
    found = re.search(r'id="timeline-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_shows_every_chart_and_leaves_them_as_files(tmp_path: Path) -> None:
    page = written(tmp_path, [row(number) for number in range(50)])
    for name in ("percentiles", "latency", "throughput", "queue", "order"):
        assert f'data-chart="{name}"' in page
        assert (tmp_path / "charts" / f"{name}.svg").read_text().startswith("<svg")
    assert "http" not in page, "nothing is loaded from elsewhere"


def test_figures_can_be_read_from_the_page(tmp_path: Path) -> None:
    page = written(tmp_path, [row(number) for number in range(5)], throughput_per_s=123.5)
    assert 'data-figure="throughput_per_s" data-value="123.5"' in page
    assert 'data-figure="verdict" data-value="ok"' in page


def test_a_verdict_stands_before_the_numbers(tmp_path: Path) -> None:
    checks = {"exclusion": {"verdict": "violated", "findings": ["two writers at once"]}}
    page = written(tmp_path, [row(0)], verdict="violated", checks=checks)
    assert page.index("two writers at once") < page.index('data-figure="throughput_per_s"')


def test_the_timeline_tells_of_the_most_wanted_key(tmp_path: Path) -> None:
    rows = [row(0, key="cold"), *(row(number) for number in range(1, 4))]
    rows[2] = row(2, write="stale", paused=True)
    data = timeline(written(tmp_path, rows))
    assert data["key"] == "hot"
    assert [entry[3] for entry in data["rows"]] == [2, 3, 4]
    assert [entry[4:6] for entry in data["rows"]] == [[0, 0], [1, 1], [0, 0]]


def test_a_key_cannot_end_the_script_that_carries_it(tmp_path: Path) -> None:
    key = "</script><script>alert(1)</script>"
    page = written(tmp_path, [row(number, key=key) for number in range(3)])
    assert "<script>alert" not in page
    assert timeline(page)["key"] == key


def test_a_long_run_says_what_its_timeline_leaves_out() -> None:
    data = holders_of(row(number) for number in range(5000))
    assert len(data["rows"]) + data["left_out"] == 5000


def test_a_run_in_which_nothing_was_granted_has_a_page(tmp_path: Path) -> None:
    nothing: dict[str, Any] = {
        "called": None,
        "granted": None,
        "write_sent": None,
        "write_done": None,
        "released": None,
    }
    page = written(
        tmp_path, [row(number, outcome="timed_out", write="none", **nothing) for number in range(3)]
    )
    assert 'data-chart="queue"' in page
    assert 'id="timeline"' not in page


def test_a_queue_ends_when_those_in_it_gave_up() -> None:
    summary = Summary(schema="", config=RunConfig(timeout=1.0))
    rows = [Row(number, 0, -1, "hot", number * _MS, outcome="timed_out") for number in range(10)]
    assert set(charts_of(rows, summary)) == {"throughput", "queue"}


def test_an_experiment_has_a_page_with_its_cases_and_charts(tmp_path: Path) -> None:
    case = {"name": "a <case>", "expected": "ok", "as_predicted": True, "findings": [], "folder": None}
    summary = {
        "experiment": {"number": 99, "name": "example"},
        "question": "Why?",
        "expectation": "Because.",
        "answer": "So.\n\n- **one** and `two`",
        "as_predicted": False,
        "command": "python -m harness experiment example",
        "started": "2026-01-01T00:00:00+00:00",
        "duration_s": 1.0,
        "environment": {"python": "3"},
        "cases": [
            case | {"observed": "ok", "reason": "", "facts": {"rate": 1234.5}},
            case | {"observed": "skipped", "reason": "no such server", "facts": {}},
            case | {"observed": "otherwise", "as_predicted": False, "reason": "", "facts": {}},
        ],
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "curve.svg").write_text('<svg class="chart"><style></style></svg>')
    page = write_experiment_html(tmp_path).read_text()
    assert "1 of 2 cases came out as predicted." in page
    assert "was skipped: no such server" in page
    assert "a &lt;case&gt;" in page
    assert "1,234" in page
    assert 'data-chart="curve"' in page
    assert "<li><b>one</b> and <code>two</code></li>" in page


def test_markdown_is_escaped() -> None:
    assert markdown("<b> & **x**") == "<p>&lt;b&gt; &amp; <b>x</b></p>"


def broken_run(folder: Path) -> str:
    """The frozen holder of fence 1 writes after that of fence 2: two writers, both accepted."""
    rows = [row(0, released=40 * _MS, write_done=39 * _MS, write_sent=38 * _MS, paused=True), row(1), row(2)]
    with HistoryWriter(folder / RESOURCE_FILE, Decision, origin_ns=0) as writer:
        order = [(1, 17), (0, 39), (2, 27)]
        writer.write(
            Decision("hot", seq, fence + 1, decided=at * _MS, owner=f"owner-{fence}")
            for seq, (fence, at) in enumerate(order, 1)
        )
    broken = {"verdict": "violated", "findings": ["two writers"], "figures": {}, "unseen": []}
    return written(folder, rows, verdict="violated", checks={"exclusion": broken})


def test_a_violation_is_marked_where_it_happened_and_shown_first(tmp_path: Path) -> None:
    data = timeline(broken_run(tmp_path))
    marks = {entry[6]: entry[7:] for entry in data["rows"] if entry[7]}
    assert marks == {0: ["wrote with fence 1 after fence 2 had written", 39.0]}
    start, end = data["focus"]
    assert start < 39.0 < end


def test_a_run_without_violations_marks_nothing(tmp_path: Path) -> None:
    data = timeline(written(tmp_path, [row(number) for number in range(5)]))
    assert data["focus"] is None
    assert not any(entry[7] for entry in data["rows"])


def test_every_check_says_what_it_asks_and_every_figure_has_its_unit(tmp_path: Path) -> None:
    assert all(question.endswith(".") for question in questions().values())
    page = broken_run(tmp_path)
    assert html.escape(questions()["exclusion"]) in page
    assert '<td class="bad">violated</td>' in page
    assert "<td>ttl</td><td>10 s</td>" in page
    assert "<td>rate</td><td>500 arrivals/s</td>" in page
    assert "To repeat it:" in page


def test_faults_are_bands_in_the_charts_and_on_the_timeline(tmp_path: Path) -> None:
    fault = {"name": "server frozen", "at_s": 0.1, "until_s": 0.2, "details": {"who": "redis <1>"}}
    page = written(tmp_path, [row(number) for number in range(50)], faults=[fault])
    assert page.count('class="band"') == 3
    assert timeline(page)["faults"] == [["server frozen (redis <1>)", 100.0, 200.0]]
    assert "redis <1>" not in page.partition("timeline-data")[0], "escaped"
