"""`python -m tests.mutants`: plant every bug in a copy of the tree, and see its test fail.

Exit codes: 0 all were killed, 1 one survived or does not apply any more, 2 there is none of that name.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.trial import Outcome, Verdict, attempt, copy_of_the_tree, run


def main() -> int:
    arguments = _arguments()
    chosen = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    if not chosen:
        print(f"no planted bug has {arguments.only!r} in its name", file=sys.stderr)
        return 2
    if arguments.list:
        for mutant in chosen:
            print(f"{mutant.name}\n    {mutant.test}")
        return 0
    with copy_of_the_tree() as copy:
        if not arguments.no_baseline and (trouble := _trouble_without_bugs(chosen)):
            print(trouble, file=sys.stderr)
            return 1
        outcomes = []
        for mutant in chosen:
            started = time.monotonic()
            outcome = attempt(mutant, copy, arguments.timeout)
            outcomes.append(outcome)
            _show(mutant, outcome, time.monotonic() - started)
    counts = Counter(outcome.verdict for outcome in outcomes)
    print(", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict))
    return 0 if counts[Verdict.KILLED] == len(chosen) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="NAME", default="", help="those with NAME in their name")
    parser.add_argument("--list", action="store_true", help="name them and their tests, and run nothing")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=60.0,
        help="seconds for each test (60), three times what it takes without the bug at least; a hang is a kill",
    )
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not run the tests without the bugs first"
    )
    return parser.parse_args()


def _trouble_without_bugs(chosen: Sequence[Mutant]) -> str:
    """A test that fails anyway kills nothing: what is wrong with the tests as they are."""
    tests = list(dict.fromkeys(mutant.test for mutant in chosen))
    with copy_of_the_tree() as copy:
        code, said = run(tests, copy, limit=3600)
    return "" if code == 0 else f"the tests fail without any bug:\n{said[-4000:]}"


def _show(mutant: Mutant, outcome: Outcome, seconds: float) -> None:
    detail = f" ({outcome.detail})" if outcome.detail else ""
    print(f"{outcome.verdict.value:>14} {seconds:5.1f} s  {mutant.name}{detail}", flush=True)
    if outcome.verdict is Verdict.SURVIVED:
        print(f"{'':>24}{mutant.test}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
