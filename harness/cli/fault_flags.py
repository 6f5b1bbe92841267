"""The flags that break things on purpose."""

import argparse

from harness.cli.flags import flag, repeatable
from harness.faults.plan import FaultSpec, parse_seed


def add_to(group: argparse._ArgumentGroup) -> None:
    repeatable(
        group,
        "--fault SPEC",
        "faults",
        lambda text: str(FaultSpec.parse(text)),
        "kill:server@5s (for good) or @5s+2s (started again), pause:holder@6s+2s, pause:server|resource@…, "
        "partition[:server|resource]@8s+2s; server2 is a second node",
    )
    about = "draw two to four such faults, the same ones for the same seed"
    flag(group, "--faults", parse_seed, about, dest="fault_seed", metavar="random:SEED")
