"""What a package index shows: a README whose links lead somewhere, and addresses that a release fills in."""

import email
import re
import shutil
import subprocess
import sys
import tomllib
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RELATIVE = re.compile(r"\]\((?!https?://|#)")
BUILD = "import sys; from hatchling.build import prepare_metadata_for_build_wheel as it; it(sys.argv[1])"


def metadata(folder: Path, repository: str) -> Message:
    """Of a wheel that is built from a copy of the sources, released from there."""
    tree = folder / "tree"
    for package in ("asyncdlock", "harness"):
        (tree / package).mkdir(parents=True)
        shutil.copy(ROOT / package / "__init__.py", tree / package)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    project = tree / "pyproject.toml"
    text = project.read_text("utf-8")
    assert text.count('\nrepository = ""') == 1, "the one place that a release fills in"
    project.write_text(text.replace('\nrepository = ""', f'\nrepository = "{repository}"'), "utf-8")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=tree, check=True, capture_output=True)
    found = next(folder.glob("*.dist-info/METADATA"))
    return email.message_from_string(found.read_text("utf-8"))


def test_until_it_is_released_no_address_is_invented(tmp_path: Path) -> None:
    told = metadata(tmp_path, "")
    readme = told.get_payload()
    assert isinstance(readme, str)
    assert told.get_all("Project-URL") is None
    assert RELATIVE.search(readme) is None
    assert "![" not in readme
    assert "python -m harness --contenders 1000 --rate 500" in readme


def test_a_release_makes_every_link_and_image_absolute(tmp_path: Path) -> None:
    """At the tag of the version, so that an old release's page shows what it described."""
    told = metadata(tmp_path, "https://forge.invalid/who/asyncdlock")
    readme = told.get_payload()
    assert isinstance(readme, str)
    assert RELATIVE.search(readme) is None
    here = f"https://forge.invalid/who/asyncdlock/{{}}/v{told['Version']}/"
    assert f"({here.format('blob')}docs/safety.md)" in readme
    assert f"({here.format('raw')}docs/images/run.svg)" in readme
    assert all("https://forge.invalid/" in url for url in told.get_all("Project-URL") or [""])
    for target in re.findall(r"forge\.invalid/who/asyncdlock/(?:raw|blob)/v[^/]+/([^)#]+)", readme):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize(
    "extra", ["etcd", "zookeeper", "postgres", "s3", "tracing", "fleet", "trace", "clock"]
)
def test_dev_brings_every_extra(extra: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    def brought(name: str) -> set[str]:
        inner = [re.findall(r"asyncdlock\[(.*)\]", one) for one in extras[name]]
        names = {part for found in inner for group in found for part in group.split(",")}
        return {name}.union(*(brought(one) for one in names))

    assert extra in brought("dev")
    assert ("clock" in brought("harness")) is False, "libfaketime is GPL: nobody gets it unasked"
