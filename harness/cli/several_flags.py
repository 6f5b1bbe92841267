"""The flags of a run in several stages, or by several generators."""

import argparse

from harness.cli.flags import settings
from harness.config import parse_stage
from harness.load.dask_fleet import parse_fleet

_LAST_MOMENT = 253_402_300_799.0
"""The end of the year 9999."""


def stages(text: str) -> tuple[str, ...]:
    named = tuple(stage.strip() for stage in text.split(","))
    if not sum(parse_stage(stage)[0] for stage in named):
        raise ValueError(f"nobody arrives in {text!r}: give one of the stages a rate above 0")
    return named


def share(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"{text!r} is not a share: write 1/4 for the first of four")
    return int(number) - 1, int(count)


def moment(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LAST_MOMENT:
        raise ValueError(f"{text!r} is no time: write seconds since 1970, as 'date +%s' does")
    return seconds


def add_to(group: argparse._ArgumentGroup) -> None:
    settings(
        group,
        {
            "--stages R/D,…": (
                stages,
                "rates that follow each other, instead of --rate and --duration: 500/10s,2000/30s",
            ),
            "--fleet local:N|tcp://…": (
                parse_fleet,
                "spread the run over Dask workers, a share each: local:4 starts them here, tcp://host:8786 "
                "names a scheduler (pip install 'asyncdlock[fleet]')",
            ),
            "--share I/N": (
                share,
                "this is the Ith of N generators that make one run together, on the servers of --url and "
                "--resource-url: rate, contenders and duration are those of the whole run; 'merge' joins "
                "their folders",
            ),
            "--start-at T": (
                moment,
                "begin at this time, in seconds since 1970, so that generators start together",
            ),
        },
    )
