"""No order of callbacks, no cancellation and no lost request breaks what the library promises."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from asyncdlock._cleanup import Cleanup
from asyncdlock._local_queue import LocalQueue
from asyncdlock.types import LeaseState
from tests.schedules.interleavings import PROGRAMS, Program, explored, hand_off, renewal
from tests.schedules.loop import virtual_time
from tests.schedules.paths import Path, explore
from tests.schedules.store import Store


@pytest.fixture(autouse=True)
def _virtual_time() -> Iterator[None]:
    with virtual_time():
        yield


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_interleaving_holds(program: Program) -> None:
    found = explore(explored(program), deviations=2, most=50_000)
    assert found.violation == "", found.path
    assert found.paths > 1000


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "program", "broken"),
    [
        pytest.param(
            *(Cleanup, "give_back", lambda *_, **__: None, hand_off, "is left at the backend"),
            id="nothing is given back",
        ),
        pytest.param(
            *(LocalQueue, "_pass_turn", lambda *_: None, hand_off, "no place is left"),
            id="the turn is not passed",
        ),
        pytest.param(
            *(Store, "serve", lambda *_: None, hand_off, "nobody waits for ever"),
            id="a server that grants nothing",
        ),
        pytest.param(
            *(Store, "_renew", lambda *_: LeaseState.RENEWED, renewal, "one holder at a time"),
            id="a renewal that extends nothing",
        ),
    ],
)
def test_a_defect_is_found_and_its_path_replays(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    wrong: Callable[..., Any],
    program: Program,
    broken: str,
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    run = explored(program)
    found = explore(run, deviations=1, most=50_000)
    assert broken in found.violation
    assert run(Path(found.path))[1] == found.violation


@pytest.mark.parametrize(("deviations", "paths"), [(0, 1), (1, 6), (2, 12), (3, 12)])
def test_each_path_is_taken_once(deviations: int, paths: int) -> None:
    """Two choices of three and of four: 12 paths, 5 of them with one deviation."""
    taken: set[tuple[int, ...]] = set()

    def run(path: Path) -> tuple[int, str]:
        taken.add((path.choose(3), path.choose(4)))
        return 1, ""

    assert explore(run, deviations=deviations, most=100).paths == len(taken) == paths


def test_a_search_that_does_not_end_shows_nothing() -> None:
    with pytest.raises(RuntimeError, match="more than 2 paths"):
        explore(lambda path: (path.choose(3), ""), deviations=1, most=2)
