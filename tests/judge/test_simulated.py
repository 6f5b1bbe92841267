"""Against simulated runs: no false alarm on a correct resource, and what brute force finds, is found."""

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.history import Decision, History, Row
from harness.judge.checkers import run_checks, verdict_of
from harness.judge.checkers.realtime import regressions
from tests.judge.mutations import well_behaved_history


def simulate(seed: int, *, fence: bool, keys: int = 2) -> History:
    """A lock that excludes as it promises, but whose leases run out under sleeping holders, before a
    resource that loses requests and replies and, with `fence`, enforces the fences."""
    rng = random.Random(seed)
    rows = _held(rng, keys)
    log: list[Decision] = []
    marks = dict.fromkeys(map(str, range(keys)), 0)
    versions = dict.fromkeys(marks, 0)
    arriving = [(row, (row.write_sent or 0) + rng.randrange(1, 5)) for row in rows if row.write != "unknown"]
    for row, decided in sorted(arriving, key=lambda arriving: arriving[1]):
        assert row.fence is not None
        accepted = not fence or row.fence > marks[row.key]
        versions[row.key] += accepted
        log.append(
            Decision(
                *(row.key, len(log) + 1, row.fence, 0),
                *("accepted" if accepted else "stale", marks[row.key], versions[row.key]),
                *(row.write_sent or 0, decided, row.owner),
            )
        )
        if rng.random() < 0.1:
            row.write, row.outcome = "unknown", "failed"  # the reply was lost
        else:
            row.write_done = decided + rng.randrange(1, 3)
            row.write, row.outcome = ("accepted", "ok") if accepted else ("stale", "stale")
            row.outcome = "lost" if row.paused and accepted else row.outcome
            row.seen = None if accepted else marks[row.key]
        marks[row.key] = max(marks[row.key], row.fence)
    rng.shuffle(rows)
    return History(rows, log)


def _held(rng: random.Random, keys: int) -> list[Row]:
    """One hold after the other on each key, up to the write; one in ten requests is lost."""
    ttl = 300
    rows: list[Row] = []
    sleepy = rng.choice([0, 0.1, 0.5])
    for key in map(str, range(keys)):
        free = 0
        fence = 0
        for at in sorted(rng.randrange(2_000) for _ in range(rng.randrange(1, 20))):
            number = len(rows)
            row = Row(number, 0, number % 7, key, at, at, at, owner=f"owner-{number}")
            row.granted = max(at + rng.randrange(1, 100), free + rng.randrange(5))
            fence += rng.randrange(1, 4)
            row.fence, row.valid_until = fence, row.granted + ttl - 1
            row.write_sent = row.granted + rng.randrange(50)
            row.paused = rng.random() < sleepy
            if row.paused:
                row.write_sent += rng.randrange(400, 2_000)
            row.releasing = row.released = row.write_sent + 10
            free = row.granted + ttl if row.paused else row.released
            if rng.random() < 0.1:
                row.write, row.outcome = "unknown", "failed"  # it never arrived
            rows.append(row)
    return rows


@given(st.integers(0, 1 << 32))
@settings(max_examples=150)
def test_a_resource_that_enforces_fences_is_never_accused(seed: int) -> None:
    history = simulate(seed, fence=True)
    for name, result in run_checks(history).items():
        if name != "completeness":  # in a small run nobody may have written
            assert result.verdict == "ok", (name, result.findings)


@given(st.integers(0, 1 << 32))
@settings(max_examples=150)
def test_two_writers_are_found_exactly_where_brute_force_finds_them(seed: int) -> None:
    history = simulate(seed, fence=False)
    assert history.log is not None
    two_writers = any(
        early.key == late.key and early.token >= late.token
        for early, late in combinations([decision for decision in history.log if decision.accepted], 2)
    )
    results = run_checks(history)
    assert (results["exclusion"].verdict == "violated") == two_writers
    assert (results["stale_writes"].verdict == "violated") == two_writers
    for name in ("fence_order", "holders", "lost_updates", "agreement"):
        assert results[name].verdict == "ok", results[name].findings


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15), st.integers(1, 12)), max_size=25),
)
def test_regressions_are_what_comparing_all_pairs_gives(grants: list[tuple[int, int, int]]) -> None:
    starts = [start for start, _, _ in grants]
    ends = [start + length for start, length, _ in grants]
    fences = [fence for _, _, fence in grants]
    everyone = range(len(grants))
    expected = {
        later
        for earlier in everyone
        for later in everyone
        if ends[earlier] < starts[later] and fences[earlier] >= fences[later]
    }
    found = list(regressions(starts, ends, fences))
    assert {later for _, later in found} == expected
    for earlier, later in found:
        assert ends[earlier] < starts[later]
        assert fences[earlier] == max(fences[one] for one in everyone if ends[one] < starts[later])


def test_simulated_runs_are_of_both_kinds() -> None:
    verdicts = {verdict_of(run_checks(simulate(seed, fence=False))) for seed in range(40)}
    assert verdicts >= {"ok", "violated"}
    refused = sum(
        decision.outcome == "stale" for seed in range(40) for decision in simulate(seed, fence=True).log or ()
    )
    assert refused > 20


def test_a_hot_key_with_fifty_thousand_arrivals_is_checked_without_comparing_all_pairs() -> None:
    """Comparing all pairs would be over a billion steps, and run into the time limit of the test."""
    history = well_behaved_history(50_000, keys=1)
    history.rows[40_000].fence, history.rows[10].fence = history.rows[10].fence, history.rows[40_000].fence
    results = run_checks(history)
    assert results["fence_order"].verdict == "violated"
    assert len(results["fence_order"].findings) == 21
    assert results["stale_writes"].verdict == "ok"
