"""`python -m tests.schedules`: random programs over a network that fails them, for so many steps.

Exit codes: 0 every program kept what the library promises, 1 one did not: its seed and its plan are printed.
"""

import argparse
import sys
import time

from tests.schedules.loop import virtual_time
from tests.schedules.wire_programs import draw, run, shrunk


def main() -> int:
    arguments = _arguments()
    clock = time.monotonic  # inside, it is the programs' own
    began = reported = clock()
    seed, steps = arguments.seed, 0
    with virtual_time():
        while steps < arguments.steps:
            took, broken = run(draw(seed))
            if broken:
                smallest = shrunk(draw(seed), lambda plan: bool(run(plan)[1]))
                print(f"seed {seed}: {broken}\n{smallest}\n{run(smallest)[1]}")
                return 1
            seed, steps = seed + 1, steps + took
            if clock() > reported + 60:
                reported = clock()
                print(f"{seed - arguments.seed:,} programs, {steps:,} steps", file=sys.stderr, flush=True)
    seconds = clock() - began
    print(f"{seed - arguments.seed:,} programs, {steps:,} steps in {seconds:.0f} s: nothing was broken")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.schedules", description=__doc__.partition("\n")[0].partition(": ")[2]
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="so many at least (1,000,000)")
    parser.add_argument("--seed", type=int, default=0, help="of the first program (0)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
