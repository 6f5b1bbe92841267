"""Reports in a real browser: they show their charts and the numbers of the run, and load nothing else."""

import json
import struct
from pathlib import Path

from harness.config import RunConfig
from harness.load.run import run_load
from harness.report.charts import Series, lines
from harness.report.html_experiment import write_experiment_html
from harness.report.summary_json import to_json
from tests.browser.chromium import browser

_CHARTS = ["percentiles", "latency", "throughput", "queue", "order", "lag"]


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


async def test_the_report_of_a_real_run_shows_its_charts_and_its_numbers(tmp_path: Path) -> None:
    config = RunConfig(contenders=50, rate=200, duration=1.0, out=str(tmp_path / "runs"))
    finished = await run_load(config)
    summary = to_json(finished.summary)
    async with browser(tmp_path) as page:
        await page.open((finished.folder / "report.html").as_uri())
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith("file:")] == [], "it loads nothing else"

        shown = json.loads(
            await page.evaluate(
                "JSON.stringify(Object.fromEntries([...document.querySelectorAll('[data-figure]')]"
                ".map(e => [e.dataset.figure, e.dataset.value])))"
            )
        )
        assert shown["verdict"] == summary["verdict"]
        assert float(shown["throughput_per_s"]) == summary["throughput_per_s"]
        assert int(shown["acquired"]) == summary["arrivals"]["acquired"] > 0
        p99 = summary["latency_ms"]["arrival_to_grant"]["p99"]
        assert float(shown["arrival_to_grant_p99"]) == p99

        charts = await page.evaluate(
            "[...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)"
        )
        assert charts == _CHARTS
        widths = await page.evaluate(
            "[...document.querySelectorAll('svg.chart')].map(e => e.getBoundingClientRect().width)"
        )
        assert min(widths) > 300, "every chart takes part in the page"

        drawn = await page.evaluate("document.getElementById('timeline').dataset.drawn")
        assert int(drawn) == summary["arrivals"]["acquired"]
        width, height = size_of(await page.screenshot(tmp_path / "report.png"))
        assert width >= 1000
        assert height >= 1000


async def test_the_timeline_zooms_where_the_wheel_turns_and_comes_back(tmp_path: Path) -> None:
    finished = await run_load(RunConfig(contenders=20, rate=100, duration=0.5, out=str(tmp_path / "runs")))
    async with browser(tmp_path) as page:
        await page.open((finished.folder / "report.html").as_uri())
        await page.evaluate("document.getElementById('timeline').scrollIntoView()")
        box = json.loads(
            await page.evaluate(
                "JSON.stringify(document.querySelector('#timeline canvas').getBoundingClientRect())"
            )
        )
        view = "(({from, to}) => [+from, +to])(document.getElementById('timeline').dataset)"
        start, end = await page.evaluate(view)
        await page.wheel(box["x"] + box["width"] / 2, box["y"] + 40, -120)
        await page.evaluate("new Promise(requestAnimationFrame) && 0")
        zoomed = await page.evaluate(view)
        assert start < zoomed[0] < zoomed[1] < end
        await page.evaluate("document.querySelector('#timeline button').click()")
        assert await page.evaluate(view) == [start, end]
        assert page.errors == []


async def test_the_report_of_an_experiment_shows_its_answer_and_its_charts(tmp_path: Path) -> None:
    case = {"name": "one", "expected": "ok", "observed": "ok", "as_predicted": True, "facts": {"rate": 12.5}}
    summary = {
        "experiment": {"number": 99, "name": "example"},
        "question": "Why?",
        "expectation": "Because.",
        "answer": "**Bold** words.",
        "as_predicted": True,
        "command": "python -m harness experiment example",
        "started": "2026-01-01T00:00:00+00:00",
        "duration_s": 1.0,
        "environment": {},
        "cases": [case | {"reason": "", "findings": []}],
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    picture = lines("A curve", [Series("a", [(1, 1), (2, 2)])], x_label="x", y_label="y")
    (tmp_path / "curve.svg").write_text(picture)
    async with browser(tmp_path) as page:
        await page.open(write_experiment_html(tmp_path).as_uri())
        assert await page.evaluate("document.querySelector('.verdict').textContent") == "ok"
        assert await page.evaluate("document.querySelectorAll('svg.chart path.line').length") == 1
        colour = await page.evaluate("getComputedStyle(document.querySelector('path.line')).stroke")
        assert colour not in ("none", ""), "the style sheet reached the picture"
        assert await page.evaluate("document.querySelector('table td:last-child').textContent") == "12.5"


async def test_a_violation_is_red_where_it_happened_and_the_page_begins_there(tmp_path: Path) -> None:
    config = RunConfig(
        fence=False, ttl=0.3, pause=1.0, contenders=60, rate=60, duration=1.5, out=str(tmp_path / "runs")
    )
    finished = await run_load(config)
    assert finished.summary.verdict == "violated"
    async with browser(tmp_path) as page:
        await page.open((finished.folder / "report.html").as_uri())
        assert page.errors == []
        told = json.loads(await page.evaluate("JSON.stringify(document.getElementById('timeline').dataset)"))
        assert int(told["violations"]) >= 1
        assert 0 < float(told["from"]) < float(told["to"])
        red = await page.evaluate(
            "(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0"
            ";for (let i = 0; i < d.length; i += 4) n += d[i] > 190 && d[i+1] < 60 && d[i+2] < 70; return n})"
            "(document.querySelector('#timeline canvas'))"
        )
        assert red > 1000, "red where it happened"
        for width in (1280, 400):
            await page.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            clipped = await page.evaluate(
                "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1)"
                ".map(e => e.textContent.slice(0, 40)).join()"
            )
            assert not clipped, f"tables wrap, nothing is hidden at their right at {width} pixels"
            broken = await page.evaluate(
                "[...document.querySelectorAll('td.good, td.bad')].filter(e => "
                "{ const r = document.createRange(); r.selectNodeContents(e); "
                "return r.getClientRects().length > 1 }).map(e => e.textContent).join()"
            )
            assert not broken, f"a verdict stands in one line at {width} pixels"
