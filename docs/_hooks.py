"""Puts pages from outside docs/ on the site, and makes links that are right on disk right there.

A page on disk links to its neighbours in the repository, so that it also reads well without a site. Here
`docs/` is the root: links into it and to what is published beside it are rewritten, links to source files
become plain text, and a link to nothing is left for `mkdocs build --strict` to refuse.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
BESIDE = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *(path for path in sorted((ROOT / "bench/results").rglob("*")) if path.is_file()),
]
"""Files from outside docs/ that the site shows under their own paths."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in BESIDE:
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = Path(str(page.file.abs_src_path))
    here = Path(page.file.src_uri).parent

    def rewrite(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups(default="")
        path = (source.parent / target).resolve()
        if path.is_relative_to(ROOT / "docs"):
            name = path.relative_to(ROOT / "docs")
        elif path in BESIDE:
            name = path.relative_to(ROOT)
        elif path.exists() and path.is_relative_to(ROOT):
            return text
        else:
            return link[0]
        return f"{image}[{text}]({Path(os.path.relpath(name, here)).as_posix()}{anchor})"

    return _LINK.sub(rewrite, markdown)
