"""Drives asyncdlock under contention, injects faults, and judges from the recorded history.

`contend` runs it from a program of yours; `python -m harness` is the command line.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.embedding import Contention, contend

__all__ = ["Contention", "contend"]


def __getattr__(name: str) -> object:
    """What is embedded is loaded when it is asked for: the package itself stays light."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from harness import embedding

    return getattr(embedding, name)
