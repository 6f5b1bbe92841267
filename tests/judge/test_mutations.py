"""A changed bad history is still caught; a good one made bad is caught as what it is."""

from collections.abc import Callable, Iterator

import pytest

from harness.history import History
from harness.judge.checkers import run_checks, verdict_of
from tests.judge.golden import BAD, GOOD, Golden
from tests.judge.mutations import (
    CONFUSING,
    HARMFUL,
    HARMLESS,
    Harmless,
    sparse_fences,
    well_behaved_history,
    without_versions,
)

Mutation = Callable[[History], Iterator[History]]


def violated(history: History) -> set[str]:
    return {name for name, result in run_checks(history).items() if result.verdict == "violated"}


def good_histories() -> Iterator[History]:
    for golden in GOOD:
        yield golden.load()
    yield well_behaved_history(12, keys=3)


HEALED = {
    ("violated-version-fell-back", without_versions),  # nothing else shows it
    ("violated-other-bytes-stored", without_versions),  # which write was read back?
    ("violated-fence-of-zero", sparse_fences),  # it is no longer zero
}


@pytest.mark.parametrize(
    ("golden", "mutation"),
    [
        pytest.param(golden, mutation, id=f"{golden.name}-{mutation.__name__}")
        for golden in BAD
        for mutation in HARMLESS
        if (golden.name, mutation) not in HEALED
    ],
)
def test_a_bad_history_stays_bad_whatever_surrounds_it(golden: Golden, mutation: Harmless) -> None:
    expected = {name for name, verdict in golden.expected.items() if verdict == "violated"}
    history = golden.load()
    mutation(history)
    assert violated(history) == expected


@pytest.mark.parametrize("golden", GOOD, ids=lambda golden: golden.name)
@pytest.mark.parametrize("mutation", HARMLESS, ids=lambda mutation: mutation.__name__)
def test_a_good_history_stays_good_whatever_surrounds_it(golden: Golden, mutation: Harmless) -> None:
    history = golden.load()
    mutation(history)
    results = run_checks(history)
    assert verdict_of(results) == "ok", {name: result.findings for name, result in results.items()}


@pytest.mark.parametrize("mutation", HARMFUL, ids=lambda mutation: mutation.__name__)
def test_a_good_history_made_bad_is_caught_wherever_it_is_changed(mutation: Mutation) -> None:
    mutants = [mutant for history in good_histories() for mutant in mutation(history)]
    assert len(mutants) >= 3, "the mutation applies nowhere: this test shows nothing"
    for mutant in mutants:
        assert violated(mutant) & HARMFUL[mutation], (mutant.notes, mutant.rows, mutant.log)


@pytest.mark.parametrize("mutation", CONFUSING, ids=lambda mutation: mutation.__name__)
def test_a_history_that_contradicts_itself_never_passes(mutation: Mutation) -> None:
    for history in good_histories():
        for mutant in mutation(history):
            assert verdict_of(run_checks(mutant)) == "unknown"
