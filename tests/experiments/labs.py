"""Labs for tests: quick, silent, and one that has been tampered with."""

from pathlib import Path

from harness.lab import Lab
from harness.lab.resource_view import ResourceView
from harness.resource.process import Fence


def quick_lab(folder: Path, *, seed: int = 1) -> Lab:
    return Lab(folder, quick=True, seed=seed, say=lambda text: None)


class UnfencedLab(Lab):
    """Its resources compare nothing, whatever they were asked for: every protected case must notice."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, quick=True, seed=1, say=lambda text: None)

    async def resource(self, fence: Fence = "on") -> ResourceView:
        return await super().resource("off")
