"""Unix sockets: where their paths may be."""

import os
import tempfile
from pathlib import Path

_LONGEST_PATH = 103  # bytes: what macOS takes; Linux takes four more


def fits(path: Path) -> bool:
    """Whether a socket can have this path."""
    return len(os.fsencode(path)) <= _LONGEST_PATH


def socket_folder(prefix: str) -> Path:
    """A new folder for temporary files in which a socket with a short name fits."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    if fits(folder / "socket"):
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
