"""The site builds without a warning, finds things without a network, and its reference leaves nothing out."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import asyncdlock
from tests.docs.blocks import ROOT

REFERENCE = (ROOT / "docs/reference.md").read_text("utf-8")


def test_every_public_name_is_in_the_reference() -> None:
    assert set(re.findall(r"^::: asyncdlock\.(\w+)$", REFERENCE, re.MULTILINE)) == set(asyncdlock.__all__)


def test_every_guard_is_in_the_reference() -> None:
    listed = set(re.findall(r"^::: asyncdlock\.fencing\.(\w+)\.\w+$", REFERENCE, re.MULTILINE))
    modules = {path.stem for path in (ROOT / "asyncdlock/fencing").glob("[a-z]*.py")}
    assert listed == modules


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    index = json.loads((tmp_path / "site/search/search_index.json").read_text("utf-8"))
    assert any("wait_lost" in entry["title"] for entry in index["docs"])
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)\b[^>]*\b(?:src|href)="(https?:[^"]+)"', page.read_text("utf-8")
        )
        assert loaded == [], page
