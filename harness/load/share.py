"""One share of a run that several generators make together: what it leaves for `merge`.

A share offers its part of one and the same schedule, so that numbers of arrivals and processes are unique
over all shares. It is not judged by itself: the resource's log has the writes of all.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.config import RunConfig, UsageError
from harness.history import Fault
from harness.history.recording import Recording
from harness.judge.checkers.result import CheckResult
from harness.load.pauses import PauseCounts
from harness.load.result import FleetResult

SHARE_FILE = "share.json"
WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Share:
    """What one generator found, and where its history is."""

    folder: Path
    config: RunConfig
    started: datetime
    environment: Mapping[str, Any]
    result: FleetResult
    failures: list[str]
    reported: int | None

    @property
    def number(self) -> int:
        """Counted from 1."""
        return self.config.share[0] + 1


def not_judged(config: RunConfig) -> dict[str, CheckResult]:
    """The checks of a share: there is one, and it says where to look."""
    index, count = config.share
    sentence = f"this is share {index + 1} of {count}: 'python -m harness merge' judges the whole run"
    return {WHOLE: CheckResult("unknown", [sentence])}


def write_share(share: Share) -> None:
    """:raises OSError: the file cannot be written."""
    result = share.result
    measured = {
        name: value
        for name, value in asdict(result).items()
        if name not in ("recording", "histories", "faults")
    }
    document = {
        "config": share.config.to_json(),
        "started": share.started.isoformat(),
        "environment": dict(share.environment),
        "failures": share.failures,
        "reported": share.reported,
        "result": measured,
        "faults": [asdict(fault) for fault in result.faults],
        "recording": result.recording.to_json(),
    }
    (share.folder / SHARE_FILE).write_text(json.dumps(document))


def read_share(folder: Path) -> Share:
    """:raises UsageError: the folder holds no share of a run."""
    try:
        document = json.loads((folder / SHARE_FILE).read_text())
        measured = document["result"]
        pauses = [PauseCounts.from_json(one) for one in measured.pop("pauses")]
        result = FleetResult(
            recording=Recording.from_json(document["recording"]),
            histories=[],
            faults=[Fault(**fault) for fault in document["faults"]],
            pauses=pauses,
            **measured,
        )
        return Share(
            folder,
            RunConfig.from_json(document["config"]),
            datetime.fromisoformat(document["started"]),
            document["environment"],
            result,
            document["failures"],
            document["reported"],
        )
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is no share of a run: merge joins runs that were made with --share I/N or --fleet"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {folder / SHARE_FILE}: {reason}") from None
