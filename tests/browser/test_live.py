"""--live: a run seen in a real browser while it happens."""

import asyncio
import json
from pathlib import Path

from tests.browser.chromium import Page, browser
from tests.cli.program import PATIENCE, Program, started

_FIGURES = (
    "JSON.stringify(Object.fromEntries([...document.querySelectorAll('[data-figure]')]"
    ".map(e => [e.dataset.figure, e.dataset.value])))"
)
_DRAWN = "[...document.querySelectorAll('svg.live polyline')].map(e => e.getAttribute('points').length)"


async def address_of(program: Program) -> str:
    async with asyncio.timeout(PATIENCE):
        while not (found := [line for line in program.err if "watch this run at" in line]):
            await asyncio.sleep(0.05)
    return found[0].rpartition(" ")[2]


async def until(page: Page, condition: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await page.evaluate(condition):
            await asyncio.sleep(0.1)


async def test_the_page_follows_the_run_and_ends_with_its_verdict(tmp_path: Path) -> None:
    flags = (
        "--contenders",
        "20",
        "--rate",
        "100",
        "--duration",
        "6s",
        "--fault",
        "pause:resource@1s+1s",
        "--live",
        "--out",
        str(tmp_path / "runs"),
    )
    async with browser(tmp_path) as page, started(*flags) as program:
        address = await address_of(program)
        await page.open(address)
        await until(page, "Number(document.querySelector('[data-figure=acquired]').dataset.value) > 0")
        figures = json.loads(await page.evaluate(_FIGURES))
        assert float(figures["p99"]) >= float(figures["p50"]) > 0
        assert len(lengths := await page.evaluate(_DRAWN)) == 7
        assert min(lengths) > 0, "every line has points"
        await until(page, "Number(document.getElementById('lanes').dataset.drawn) > 0")
        await until(page, "document.querySelectorAll('svg.live rect.band').length === 4")
        await until(page, "Number(document.getElementById('heat').dataset.cells) > 0")
        assert {url for url in page.requests if not url.startswith(address)} == set(), "it loads nothing else"
        await until(page, "document.getElementById('elapsed').textContent.includes('report.html')")
        await program.ended()
        (summary,) = (json.loads(path.read_text()) for path in tmp_path.glob("runs/*/summary.json"))
        assert await page.evaluate("document.getElementById('state').textContent") == summary["verdict"]
        assert program.code == summary["exit_code"]
        report = (
            "fetch(document.getElementById('report').href).then(r => r.text()).then(t => window.got = t), 0"
        )
        await page.evaluate(report)
        await until(page, "window.got !== undefined")
        assert await page.evaluate("window.got.includes('Who held the lock')"), "after the run has gone"
        assert page.errors == []
