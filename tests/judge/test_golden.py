"""Every golden history gets exactly the verdicts that it states."""

import pytest

from harness.judge.checkers import run_checks, verdict_of
from harness.judge.checkers.registry import checkers
from tests.judge.golden import BAD, GOLDEN, GOOD, Golden

each = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)


@each
def test_a_golden_history_gets_the_verdicts_that_it_states(golden: Golden) -> None:
    results = run_checks(golden.load())
    found = {name: result.verdict for name, result in results.items()}
    assert found == golden.expected, {name: result.findings for name, result in results.items()}
    assert verdict_of(results) == golden.verdict


@each
def test_every_verdict_but_ok_comes_with_a_finding_and_ok_with_none(golden: Golden) -> None:
    for result in run_checks(golden.load()).values():
        assert bool(result.findings) == (result.verdict != "ok")


def test_there_are_histories_of_every_kind() -> None:
    assert len(GOOD) > 5
    condemned = {name for golden in BAD for name, verdict in golden.expected.items() if verdict == "violated"}
    # Completeness condemns nothing: what is missing proves nothing.
    assert condemned == set(checkers()) - {"completeness"}, "a check without a history that it must condemn"


@pytest.mark.parametrize(
    ("name", "displaced"),
    [
        ("one-after-the-other", 0),
        ("overlapping-calls", 0),
        ("displaced-but-in-order", 1),
        ("stale-write-refused", 1),
    ],
)
def test_holders_that_wrote_after_their_time_are_counted_also_where_the_resource_coped(
    name: str, displaced: int
) -> None:
    (golden,) = (golden for golden in GOOD if golden.name == f"ok-{name}")
    assert run_checks(golden.load())["exclusion"].figures["displaced_writers"] == displaced


def test_the_log_alone_condemns_two_writers() -> None:
    """Whatever the clients were told: a holder that is killed after its write says nothing."""
    (golden,) = (golden for golden in BAD if golden.name == "violated-two-writers")
    history = golden.load()
    for row in history.rows:
        row.outcome, row.write, row.write_done = "failed", "unknown", None
    assert run_checks(history)["exclusion"].verdict == "violated"


def test_writes_without_a_reply_are_settled_by_the_log() -> None:
    happened = {}
    for golden in GOOD:
        figures = run_checks(golden.load())["agreement"].figures
        happened[golden.name] = (figures["told_nothing"], figures["of_these_happened"])
    assert happened["ok-no-reply-and-not-written"] == (1, 0)
    assert happened["ok-no-reply-but-written"] == (1, 1)
