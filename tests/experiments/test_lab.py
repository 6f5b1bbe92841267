"""What experiments are made of: cases that are skipped, repeated or fail, tracks, stories and pictures."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import asyncdlock
from harness.faults import FaultJournal
from harness.history.rows import Decision, Fault
from harness.lab import Lab, Plan, Scene, Track
from harness.lab import lab as lab_module
from harness.lab.actor import Actor
from harness.lab.event import Event
from harness.lab.evidence import exit_code, write_evidence
from harness.lab.loading import LoadingGate
from harness.lab.outcome import Case, ExperimentResult, compare
from harness.lab.registry import Experiment, find
from harness.lab.scale.publish import publish, write_overview
from harness.lab.story import tell, two_writers
from harness.lab.track import NeverHappened, rows_of
from harness.load.clock import now
from harness.report.timeline import Arrow, Lane, Mark, Panel, Span, draw
from harness.servers import ServerFailed, ServerMissing
from harness.servers.catalogue import Installation, LockServer

SECOND = 1_000_000_000


def make_lab(folder: Path) -> Lab:
    return Lab(folder, quick=True, seed=1, say=lambda text: None)


def a_case(name: str = "case", expected: str = "ok", observed: str = "ok") -> Case:
    return Case(name=name, expected=expected, observed=observed)


# Cases


async def test_a_case_whose_server_is_missing_is_skipped_with_the_reason(tmp_path: Path) -> None:
    async def missing() -> Case:
        raise ServerMissing("No etcd found: install it.")

    async def present() -> Case:
        return a_case("present")

    async with make_lab(tmp_path) as lab:
        skipped, ran = await lab.cases([Plan("missing", "ok", missing), Plan("present", "ok", present)])
    assert skipped.skipped
    assert skipped.reason == "No etcd found: install it."
    outcome = ExperimentResult(cases=[skipped, ran], answer="")
    assert outcome.as_predicted
    assert exit_code(outcome) == 0


async def test_a_case_whose_schedule_did_not_come_about_is_repeated(tmp_path: Path) -> None:
    tries = 0

    async def late_once() -> Case:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise NeverHappened("B was too late")
        return a_case()

    async with make_lab(tmp_path) as lab:
        (case,) = await lab.cases([Plan("case", "ok", late_once)])
        outcome = ExperimentResult(cases=[case], answer="It is.")
        experiment = Experiment(99, "test", "Is it?", "It is.", lambda lab: late_once())  # type: ignore[arg-type, return-value]
        write_evidence(experiment, lab, outcome, started="2026-01-01", seconds=1.0)
    assert (case.observed, tries) == ("ok", 2)
    # Whoever reads the published result knows that it is not that of the first attempt.
    told = "- case: attempt 2, after not shown (B was too late)"
    assert told in (tmp_path / "answer.md").read_text()
    (published, *_) = publish(tmp_path, tmp_path / "results")
    kept = json.loads(published.read_text())
    assert told in kept["repeated"]
    assert kept["cases"][0]["facts"]["attempts"] == 2
    assert kept["cases"][0]["earlier"] == ["not shown (B was too late)"]
    assert told in write_overview(tmp_path / "results").read_text()


@pytest.mark.parametrize(("observed", "tries"), [("otherwise", 3), ("violated", 1)])
async def test_figures_are_measured_again_and_verdicts_stand(
    observed: str, tries: int, tmp_path: Path
) -> None:
    """A busy machine spoils a figure; it does not make a lock lose updates that it would keep."""
    tried = 0

    async def attempt() -> Case:
        nonlocal tried
        tried += 1
        return a_case(observed=observed)

    async with make_lab(tmp_path) as lab:
        (case,) = await lab.cases([Plan("case", "ok", attempt)])
    assert (case.observed, tried) == (observed, tries)


async def test_a_repeated_case_has_a_key_of_its_own(tmp_path: Path) -> None:
    lab = make_lab(tmp_path)
    keys = {lab.scene(name, ttl=1.0).key for name in ("a", "a", "b")}
    assert keys == {"job:a", "job:a:2", "job:b"}


async def test_a_case_that_never_shows_anything_is_not_as_predicted(tmp_path: Path) -> None:
    async def always_late() -> Case:
        raise NeverHappened("B was too late")

    async with make_lab(tmp_path) as lab:
        (case,) = await lab.cases([Plan("case", "ok", always_late)])
    assert case.observed == "not shown"
    assert exit_code(ExperimentResult(cases=[case], answer="")) == 1


async def test_a_case_that_breaks_down_is_repeated_and_does_not_end_the_others(tmp_path: Path) -> None:
    tries = 0

    async def broken() -> Case:
        nonlocal tries
        tries += 1
        raise ServerFailed("redis ended\nwith code 1")

    async def well() -> Case:
        await asyncio.sleep(0.01)
        return a_case("well")

    async with make_lab(tmp_path) as lab:
        failed, ran = await lab.cases([Plan("broken", "ok", broken), Plan("well", "ok", well)])
    assert (failed.observed, failed.reason) == ("failed", "redis ended with code 1")
    assert tries > 1
    assert ran.as_predicted


@pytest.mark.parametrize(
    ("cases", "code"),
    [
        ([a_case(expected="violated", observed="violated")], 0),
        ([a_case(expected="violated", observed="ok")], 1),
        ([a_case(), a_case(observed="violated")], 1),
        ([a_case(observed="skipped")], 3),
        ([compare("faster", True, prediction="faster")], 0),
        ([compare("faster", False, prediction="faster")], 1),
    ],
)
def test_a_predicted_violation_is_a_pass_and_its_absence_is_none(cases: list[Case], code: int) -> None:
    assert exit_code(ExperimentResult(cases=cases, answer="")) == code


async def test_a_server_is_started_once_for_all_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = 0

    @contextlib.asynccontextmanager
    async def build() -> AsyncIterator[LockServer]:
        nonlocal starts
        starts += 1
        await asyncio.sleep(0.01)
        yield LockServer("memory://")

    monkeypatch.setattr(
        lab_module, "INSTALLATIONS", {"fake": Installation(name="fake", about="", build=build)}
    )
    async with make_lab(tmp_path) as lab:
        found = await asyncio.gather(*(lab.lock_server("fake") for _ in range(5)))
    assert starts == 1
    assert len({id(server) for server in found}) == 1


async def test_nothing_begins_while_something_loads() -> None:
    loading = LoadingGate()
    async with loading.one():
        waiting = asyncio.ensure_future(loading.done())
        await asyncio.sleep(0.01)
        assert not waiting.done()
    await waiting


@pytest.mark.parametrize("name", ["redlock-partition", "unsafe-release", "clock-drift", "failover"])
async def test_one_seed_gives_one_schedule(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_cases(self: Lab, plans: Iterable[Plan]) -> list[Case]:
        return []

    monkeypatch.setattr(Lab, "cases", no_cases)

    async def schedule(seed: int) -> list[Mapping[str, object]]:
        async with Lab(tmp_path, quick=True, seed=seed, say=lambda text: None) as lab:
            await find(name).run(lab)
            return lab.schedule

    first = await schedule(7)
    assert first
    assert await schedule(7) == first
    assert any([await schedule(seed) != first for seed in range(8, 12)])


# Scenes


async def test_a_protected_run_in_which_nothing_happened_shows_nothing(tmp_path: Path) -> None:
    async with make_lab(tmp_path) as lab:
        scene = lab.scene("quiet", await lab.resource("on"), ttl=1.0)
        case = await scene.judge(shown={"somebody tried": False})
    assert case.observed == "not shown"
    assert case.reason == "did not happen: somebody tried"


async def test_a_violation_that_did_not_come_about_shows_nothing(tmp_path: Path) -> None:
    """It is repeated: the fault came too late, which says nothing of the prediction."""
    async with make_lab(tmp_path) as lab:
        scene = lab.scene("too late", await lab.resource("off"), ttl=1.0, expected="violated")
        case = await scene.judge(shown={"B got in": False})
    assert case.observed == "not shown"


async def test_a_scene_leaves_history_log_and_picture_that_agree(tmp_path: Path, redis_url: str) -> None:
    async with make_lab(tmp_path) as lab:
        scene = lab.scene("one turn", await lab.resource("on"), ttl=5.0)
        async with scene.actor("A", redis_url) as a:
            await scene.begin()
            await a.acquire(ttl=5.0)
            assert await a.write("hello") == "accepted"
            await a.release()
        with scene.journal.fault("nothing much", who="A"):
            pass
        case = await scene.judge(facts={"value": "hello"})
    assert case.as_predicted
    folder = tmp_path / "one-turn"
    assert {path.name for path in folder.iterdir()} == {
        "history.jsonl.gz",
        "resource.jsonl.gz",
        "timeline.svg",
    }
    assert [line.text for line in case.story][:2] == ["asks for the lock", f"is granted the lock, fence {1}"]


async def test_the_evidence_names_question_answer_and_command(tmp_path: Path) -> None:
    async def nothing(lab: Lab) -> ExperimentResult:
        raise AssertionError

    experiment = Experiment(99, "test", "Is it?", "It is.", nothing)
    lab = make_lab(tmp_path)
    lab.plan(ttl=1.0)
    outcome = ExperimentResult(
        cases=[
            Case(
                name="a | b",
                expected="ok",
                observed="ok",
                facts={"rate": 1 / 3, "safe": True, "none": None},
                reason="because",
            )
        ],
        answer="It is.",
    )
    write_evidence(experiment, lab, outcome, started="now", seconds=1.0)
    answer = (tmp_path / "answer.md").read_text()
    assert "python -m harness experiment test --quick --seed 1" in answer
    assert "| a \\| b | ok | ok | 0.333 | yes |  |" in answer
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["schedule"] == [{"ttl": 1.0}]
    assert summary["exit_code"] == 0


# Tracks and stories


def events(*names: str, **details: object) -> list[Event]:
    return [Event(number * SECOND, name, details) for number, name in enumerate(names)]


def make_track(*names: str) -> Track:
    track = Track("A", "k")
    for event in events(*names, fence=3, owner="o", held=True, owned=True, seen=4):
        track.add(event)
    return track


@pytest.mark.parametrize(
    ("names", "outcome", "write"),
    [
        (("acquiring", "granted", "writing", "accepted", "released"), "ok", "accepted"),
        (("acquiring", "granted", "writing", "stale", "released"), "stale", "stale"),
        (("acquiring", "granted", "writing", "unknown", "released"), "failed", "unknown"),
        (("acquiring", "granted", "writing"), "abandoned", "unknown"),
        (("acquiring", "granted"), "abandoned", "none"),
        (("acquiring", "timed_out"), "timed_out", "none"),
        (("acquiring", "failed"), "failed", "none"),
    ],
)
def test_what_a_worker_says_becomes_a_row(names: tuple[str, ...], outcome: str, write: str) -> None:
    (row,) = rows_of([make_track(*names)])
    assert (row.outcome, row.write) == (outcome, write)


def test_a_failure_after_the_write_does_not_unmake_it() -> None:
    (row,) = rows_of([make_track("acquiring", "granted", "writing", "accepted", "failed")])
    assert row.write == "accepted"


def test_a_release_that_failed_says_nothing_about_a_write_without_a_reply() -> None:
    (row,) = rows_of([make_track("acquiring", "granted", "writing", "unknown", "failed")])
    assert row.write == "unknown"
    assert row.outcome == "failed"


def test_a_release_that_failed_says_nothing_about_a_write_that_was_cancelled() -> None:
    track = make_track("acquiring", "granted", "writing", "cancelled")
    track.add(Event(5 * SECOND, "failed", {"error": "no answer to the release"}))
    (row,) = rows_of([track])
    assert row.write == "unknown"
    assert row.outcome == "failed"


def test_every_attempt_is_a_row() -> None:
    turn = ("acquiring", "granted", "writing", "accepted", "released")
    rows = rows_of([make_track("started", *turn, *turn), make_track(*turn)])
    assert [(row.id, row.process) for row in rows] == [(0, 0), (1, 0), (2, 1)]


def test_a_row_says_until_when_its_lease_was_promised() -> None:
    """A lease that several locks share is older than the grant: the TTL alone does not tell."""
    journal = FaultJournal(10 * SECOND)
    track = Track("A", "k")
    heard = track.listener(journal)
    heard(Event(11 * SECOND, "acquiring"))
    heard(Event(12 * SECOND, "granted", {"fence": 3, "owner": "o", "valid_until": 13 * SECOND}))
    (row,) = rows_of([track])
    assert row.valid_until == 3 * SECOND
    heard(Event(14 * SECOND, "released", {"owned": True, "valid_until": 17 * SECOND}))
    (row,) = rows_of([track])
    assert row.valid_until == 7 * SECOND


async def test_an_actor_says_how_long_its_lease_lasts() -> None:
    journal = FaultJournal(now())
    track = Track("A", "k")
    async with asyncdlock.connect("memory://") as client:
        actor = Actor("k", client, None, track.teller(journal))
        handle = await actor.acquire(ttl=5.0)
        await actor.release()
    (row,) = rows_of([track])
    assert row.valid_until == int(handle.expires_at * SECOND) - journal.origin


async def test_waiting_for_an_event_ends_with_the_participant() -> None:
    track = make_track("acquiring")
    waiting = asyncio.ensure_future(track.until("granted"))
    await asyncio.sleep(0)
    track.end("it crashed")
    with pytest.raises(NeverHappened, match="it crashed"):
        await waiting


def decision(seq: int, token: int, owner: str, outcome: str = "accepted", seen: int = 0) -> Decision:
    return Decision("k", seq, token, outcome=outcome, owner=owner, seen=seen, decided=seq * SECOND)


def test_two_writers_are_a_lower_fence_after_a_higher_or_one_fence_of_two() -> None:
    good = [decision(1, 1, "a"), decision(2, 2, "b"), decision(3, 2, "b"), decision(4, 1, "a", "stale")]
    assert two_writers(good) == []
    lower = decision(5, 1, "a")
    assert two_writers([*good, lower]) == [lower]
    same = decision(5, 2, "c")
    assert two_writers([*good, same]) == [same]


def test_a_story_is_told_in_order_with_the_resources_words() -> None:
    track = make_track("acquiring", "granted", "writing", "stale", "released")
    lines = tell(
        [track],
        [decision(3, 3, "o", "stale", seen=4)],
        [Fault("freeze", SECOND // 2, 2 * SECOND, {"who": "A"})],
        bodies={"A": "v"},
    )
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    texts = [line.text for line in lines]
    assert "REFUSES fence 3 of A: it has seen 4" in texts
    assert "writes 'v' with fence 3 (its lease is good)" in texts
    assert "is told 409: seen 4, got 3" in texts
    assert "freeze begins" in texts


# Pictures


def test_a_picture_is_xml_that_carries_every_word_escaped() -> None:
    panel = Panel(
        "A & B",
        [
            Lane("<A>", [Span(0, SECOND, "hold", "holds & waits")], [Mark(SECOND // 2, "plain", "writes")]),
            Lane("resource", marks=[Mark(SECOND, "bad", "accepts 1 > 0")]),
        ],
        arrows=[Arrow(SECOND // 2, 0, SECOND, 1, "bad")],
        flags=[Mark(SECOND, "bad", "two writers")],
    )
    root = ElementTree.fromstring(draw([panel, panel]))
    words = [element.text for element in root.iter() if element.text]
    for word in ("A & B", "<A>", "holds & waits", "writes", "accepts 1 > 0", "two writers"):
        assert words.count(word) >= 2, word


def test_labels_of_marks_do_not_overlap() -> None:
    marks = [Mark(number, "plain", f"a long label {number}") for number in range(0, SECOND, SECOND // 50)]
    root = ElementTree.fromstring(draw([Panel("many", [Lane("A", marks=marks)])]))
    rows: dict[str, list[tuple[float, float]]] = {}
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        if text.text and text.text.startswith("a long"):
            left = float(text.attrib["x"])
            rows.setdefault(text.attrib["y"], []).append((left, left + 6 * len(text.text)))
    assert rows
    for spans in rows.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_leases_that_overlap_are_drawn_beside_each_other(tmp_path: Path) -> None:
    scene = Scene("x", tmp_path, ttl=10.0)
    assert scene.key == "job:x"
    span = Span(0, SECOND, "lease", "A", half="upper"), Span(0, SECOND, "lease2", "B", half="lower")
    root = ElementTree.fromstring(draw([Panel("two", [Lane("lock server", span)])]))
    tops = [
        float(rect.attrib["y"])
        for rect in root.iter("{http://www.w3.org/2000/svg}rect")
        if rect.attrib.get("class", "").startswith("lease")
    ]
    assert tops[0] < tops[1]
