"""What a package index is told: the README with links that work there, and the project's addresses.

A release fills in one place, `repository` under `[tool.hatch.metadata.hooks.custom]` in pyproject.toml. Then
every link and image of the README that is relative here is absolute there, at the tag of this version. While
it is empty, nothing is invented: links to files become plain text, and images are left out.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?://|mailto:|#)([^()\s]+)\)")


def for_an_index(readme: str, repository: str, version: str) -> str:
    """The README as it can be read away from the repository."""

    def link(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        if repository:
            return f"{image}[{text}]({repository}/{'raw' if image else 'blob'}/v{version}/{target})"
        return "" if image else text

    return _LINK.sub(link, readme)


class CustomMetadataHook(MetadataHookInterface):
    """Called by hatchling for whatever is declared `dynamic`."""

    def update(self, metadata: dict[str, object]) -> None:
        """Fill in `readme` and `urls`."""
        repository = str(self.config.get("repository", "")).rstrip("/")
        version = str(metadata["version"])
        readme = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": for_an_index(readme, repository, version),
        }
        at_tag = f"{repository}/blob/v{version}"
        metadata["urls"] = {
            "Source": repository,
            "Documentation": f"{at_tag}/docs/index.md",
            "Changelog": f"{at_tag}/CHANGELOG.md",
            "Issues": f"{repository}/issues",
        }
        if not repository:
            metadata["urls"] = {}
