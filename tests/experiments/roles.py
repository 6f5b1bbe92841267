"""What participants do in tests."""

import os
import time
from collections.abc import Mapping
from typing import Any

from harness.lab.forkserver import Channel


def echo(spec: Mapping[str, Any], channel: Channel) -> None:
    """Says who it is, then what it hears, until nobody talks to it any more."""
    channel.say("started", pid=os.getpid(), spec=spec)
    while (event := channel.hear()) is not None:
        channel.say("heard", name=event.name, message=event.details)


def sleep(spec: Mapping[str, Any], channel: Channel) -> None:
    channel.say("asleep")
    time.sleep(600)
