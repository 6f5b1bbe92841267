"""The flags that break things on purpose."""

import argparse

from harness.cli.flags import flag
from harness.faults.plan import FaultSpec, parse_seed


def add_to(group: argparse._ArgumentGroup) -> None:
    flag(
        group,
        "--fault",
        lambda text: str(FaultSpec.parse(text)),
        "kill:server@5s (for good) or @5s+2s (started again), pause:holder@6s+2s, pause:server|resource@…, "
        "partition[:server|resource]@8s+2s; server2 is a second node; may be repeated",
        dest="faults",
        action="append",
        default=[],
        metavar="SPEC",
    )
    flag(
        group,
        "--faults",
        parse_seed,
        "draw two to four such faults, the same ones for the same seed",
        dest="fault_seed",
        metavar="random:SEED",
    )
