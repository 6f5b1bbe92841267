"""The site builds without a warning, finds things without a network, and its reference leaves nothing out."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import asyncdlock
from tests.browser.chromium import browser
from tests.docs.blocks import ROOT

REFERENCE = (ROOT / "docs/reference.md").read_text("utf-8")
_HITS = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"


def test_every_public_name_is_in_the_reference() -> None:
    assert set(re.findall(r"^::: asyncdlock\.(\w+)$", REFERENCE, re.MULTILINE)) == set(asyncdlock.__all__)


def test_every_guard_is_in_the_reference() -> None:
    listed = set(re.findall(r"^::: asyncdlock\.fencing\.(\w+)\.\w+$", REFERENCE, re.MULTILINE))
    modules = {path.stem for path in (ROOT / "asyncdlock/fencing").glob("[a-z]*.py")}
    assert listed == modules


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a warning is an error."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    assert any("wait_lost" in entry["title"] for entry in index["docs"])
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(https?:[^"]+)"', page.read_text("utf-8")
        )
        assert loaded == [], page


async def test_a_site_that_is_opened_from_its_folder_can_be_searched(site: Path, tmp_path: Path) -> None:
    """Without a web server: browsers refuse workers there, in which the search usually runs."""
    async with browser(tmp_path) as page:
        await page.open(f"{(site / 'tutorials/fastapi.html').as_uri()}?q=wait_lost")
        async with asyncio.timeout(60):
            while not (hits := await page.evaluate(_HITS)):
                await asyncio.sleep(0.1)
        assert any("reference.html" in hit for hit in hits)
        assert page.errors == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:", "about:"))] == []
