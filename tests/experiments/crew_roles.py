"""What members of a crew do in tests."""

import os
import time
from typing import Any

from harness.experiments.trials.nursery import Line


def echo(spec: Any, line: Line) -> None:
    """Says who it is, then what it hears, until nobody talks to it any more."""
    line.say("started", pid=os.getpid(), spec=spec)
    while (message := line.hear()) is not None:
        line.say("heard", message=message)


def sleep(spec: Any, line: Line) -> None:
    line.say("asleep")
    time.sleep(600)
