"""Bugs in what judges a run: checkers, trust, the resource's log."""

from tests.mutants.mutant import Mutant

_CHECKERS = "harness/judge/checkers/"
_OF_JUDGE = "tests/judge/"
_GOLDEN = _OF_JUDGE + "test_golden.py::test_a_golden_history_gets_the_verdicts_that_it_states"
_DOCTORED = _OF_JUDGE + "test_doctored.py::test_a_doctored_run_gets_its_right_verdict"

MUTANTS = [
    Mutant(
        "exclusion: a lower fence after a higher one passes",
        _CHECKERS + "exclusion.py",
        "            if latest is None or decision.token > latest.token:\n",
        "            if True:\n",
        _OF_JUDGE + "test_golden.py::test_the_log_alone_condemns_two_writers",
    ),
    Mutant(
        "exclusion: two owners under one fence pass",
        _CHECKERS + "exclusion.py",
        "            elif decision.owner != latest.owner and None not in (decision.owner, latest.owner):\n",
        "            elif False:\n",
        _GOLDEN,
    ),
    Mutant(
        "stale writes: a forgotten mark passes",
        _CHECKERS + "stale_writes.py",
        "            if decision.seen < mark:\n",
        "            if False:\n",
        _GOLDEN,
    ),
    Mutant(
        "stale writes: a write below the mark passes",
        _CHECKERS + "stale_writes.py",
        "if decision.token < mark or this <= highest.get(key, (0, 0)):",
        "if False:",
        _GOLDEN,
    ),
    Mutant(
        "lost updates: an acknowledged write may be missing",
        _CHECKERS + "lost_updates.py",
        '            if "accepted" not in outcomes:\n',
        "            if False:\n",
        _GOLDEN,
    ),
    Mutant(
        "lost updates: a write may be applied twice",
        _CHECKERS + "lost_updates.py",
        "        if identity in applied and decision.token:\n",
        "        if False:\n",
        _GOLDEN,
    ),
    Mutant(
        "lost updates: a version may fall back",
        _CHECKERS + "lost_updates.py",
        "        if after.version <= before.version:\n",
        "        if False:\n",
        _GOLDEN,
    ),
    Mutant(
        "fence order: a fence may be granted twice",
        _CHECKERS + "fence_order.py",
        "        if len(ids) > 1:\n",
        "        if False:\n",
        _GOLDEN,
    ),
    Mutant(
        "fence order: a fence may go back",
        _CHECKERS + "fence_order.py",
        "        if earlier.fence != later.fence:  # a fence granted twice is named as that\n",
        "        if False:\n",
        _GOLDEN,
    ),
    Mutant(
        "holders: two at once pass",
        _CHECKERS + "holders.py",
        "        if last is not None and start < last[0]:\n            yield last[1], hold\n",
        "",
        _DOCTORED,
    ),
    Mutant(
        "completeness: an empty run is ok",
        _CHECKERS + "completeness.py",
        "    if not history.rows:\n",
        "    if False:\n",
        _DOCTORED,
    ),
    Mutant(
        "completeness: a log with a hole is ok",
        _CHECKERS + "completeness.py",
        "            if after.seq > before.seq + 1:\n",
        "            if False:\n",
        _DOCTORED,
    ),
    Mutant(
        "contents: other bytes than were sent pass",
        _CHECKERS + "contents.py",
        "                if decision.digest != digest(body_of(row)):\n",
        "                if False:\n",
        _DOCTORED,
    ),
    Mutant(
        "agreement: a refusal for no reason passes",
        _CHECKERS + "agreement.py",
        "if token > seen or nothing_before:",
        "if False:",
        _GOLDEN,
    ),
    Mutant(
        "registry: a checker that crashes has passed",
        _CHECKERS + "registry.py",
        'return CheckResult("unknown", [f"the checker itself failed',
        'return CheckResult("ok", [f"the checker itself failed',
        _OF_JUDGE + "test_registry.py::test_a_checker_that_crashes_is_unknown_and_so_is_the_run",
    ),
    Mutant(
        "trust: a generator that was late is trusted",
        "harness/judge/trust.py",
        "        if late > limit * 1e6:\n",
        "        if False:\n",
        _OF_JUDGE + "test_trust.py::test_lateness_is_held_against_absolute_bounds",
    ),
]
