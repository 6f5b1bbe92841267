"""--live: a run seen in a real browser while it happens."""

import asyncio
import json
from pathlib import Path

from harness.cli import flags as cli_flags
from harness.cli.main import Parser
from harness.config import RunConfig
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


def flags_of(words: list[str]) -> RunConfig:
    parser = Parser(allow_abbrev=False)
    cli_flags.add_arguments(parser)
    return cli_flags.from_arguments(parser.parse_args(words))


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
        assert await page.evaluate("document.getElementById('state').textContent") in ("starting", "running")
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


def pressed(button: str, **values: str) -> str:
    """JavaScript: fill these fields, then press the button."""
    filled = (f"document.getElementById('{name}').value = '{value}';" for name, value in values.items())
    return f"{''.join(filled)} document.getElementById('{button}').click()"


async def test_a_run_is_steered_from_the_page_and_can_be_repeated_without(tmp_path: Path) -> None:
    """Its rate is changed, arrivals stop and start, a holder and the server are struck, and it is ended."""
    flags = ("--contenders", "20", "--rate", "50", "--duration", "5m", "--ttl", "2s", "--processes", "2")
    offered = "Number(document.querySelector('[data-figure=offered]').dataset.value)"
    orders = "[...document.getElementById('orders').children].map(e => e.textContent)"
    async with (
        browser(tmp_path) as page,
        started(*flags, "--steer", "--out", str(tmp_path / "runs")) as program,
    ):
        await page.open(await address_of(program))
        await until(page, f"{offered} > 0")
        await page.evaluate(pressed("change", rate="150"))
        await until(page, f"{offered} > 130")
        await page.evaluate(pressed("break", fault="pause:server", seconds=""))
        await until(page, "document.getElementById('refusal').textContent.includes('needs a length')")
        await page.evaluate(pressed("break", fault="pause:holder", seconds="0.2"))
        await until(page, f"{orders}.length === 2")
        await page.evaluate(pressed("break", fault="partition:server", seconds="0.3"))
        await until(page, "document.querySelectorAll('svg.live rect.band').length === 4")
        await page.evaluate(pressed("stop"))
        await until(page, f"{offered} === 0")
        await page.evaluate(pressed("start", rate="40"))
        await until(page, f"{offered} > 20")
        assert [line.partition(": ")[2] for line in reversed(await page.evaluate(orders))] == [
            "150 arrivals/s",
            "pause:holder for 200 ms",
            "partition:server for 300 ms",
            "no arrivals",
            "40 arrivals/s",
        ]
        await page.evaluate(pressed("end"))
        await until(page, "document.getElementById('elapsed').textContent.includes('report.html')")
        await program.ended()
        assert page.errors == []
    assert program.code == 130
    (summary,) = (json.loads(path.read_text()) for path in tmp_path.glob("runs/*/summary.json"))
    assert [stage["rate"] for stage in summary["stages"]] == [50, 150, 0, 40]
    assert all(stage["offered"] for stage in summary["stages"] if stage["rate"])
    assert not summary["stages"][2]["offered"]
    assert {fault["name"] for fault in summary["faults"]} == {"holder frozen", "partition"}
    assert not {check["verdict"] for check in summary["checks"].values()} & {"violated"}
    repeated = flags_of(summary["command"][3:])
    assert repeated.stages == tuple(summary["config"]["stages"])
    assert list(repeated.faults) == summary["config"]["faults"]
    assert (repeated.live, repeated.steer, repeated.processes) == (None, False, 2)
