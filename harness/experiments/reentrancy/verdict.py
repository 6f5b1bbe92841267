"""What a case of experiment 13 showed: its facts, compared with what was predicted of its lock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from harness.lab import Scene, Track
from harness.lab.event import Event
from harness.lab.outcome import Case, Fact, StoryLine
from harness.resource.process import Fence

UPDATE_LOST = "update lost"
"""Observed where the checkers find nothing, and an acknowledged write is gone all the same."""
NEW, SAME, LOST = "a new grant", "the same holding", "LockLost"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a lock makes of a schedule."""

    reentry: str
    verdict: Mapping[Fence, str]
    told: Mapping[Fence, str]
    """What the resource answers to A's write."""
    a_first: bool = False
    """B has to wait until A has written."""


async def judged(scene: Scene, predicted: Prediction, fence: Fence, *, story: bool) -> Case:
    """Let the checkers judge the scene, and look for B's update as well."""
    a, b = scene.tracks
    value = await scene.value() or ""
    reentry, told, own = _reentry(a), _told(a), list(_lines(a))
    b_wrote, a_wrote = b.last("accepted"), a.last("writing")
    b_first = b_wrote is not None and (a_wrote is None or b_wrote.at < a_wrote.at)
    facts: dict[str, Fact] = {
        "the re-entry is": reentry,
        "A was told": told,
        "first to write": "B" if b_first else "A",
        "value": value,
    }
    shown = {
        f"the re-entry is {predicted.reentry}": reentry == predicted.reentry,
        f"A was told {predicted.told[fence]}": told.startswith(predicted.told[fence]),
        "B wrote": b_wrote is not None,
        "B had to wait" if predicted.a_first else "B wrote first": b_first is not predicted.a_first,
    }
    inner = inner_grant(a)
    if inner is not None:
        scene.tracks.insert(1, inner)
    expected = scene.expected
    scene.expected = "ok" if expected == UPDATE_LOST else expected  # the checkers cannot know better
    case = await scene.judge(facts=facts, shown=shown, story=story)
    if case.observed == "ok" and b_wrote is not None and "B" not in value.split():
        case = replace(
            case, observed=UPDATE_LOST, findings=[*case.findings, f"B's update is not in {value!r}"]
        )
    told_in_order = sorted([*case.story, *own], key=lambda line: line.at)
    return replace(case, expected=expected, story=told_in_order)


def inner_grant(a: Track) -> Track | None:
    """What A did inside, as a participant of its own, where its re-entry was a grant of its own.

    A history has one row for a grant. Those events are taken from A's.
    """
    if _reentry(a) != NEW:
        return None
    names = [event.name for event in a.events]
    begin = names.index("re-entering")
    end = names.index("left") if "left" in names else len(names) - 1
    as_its_own = {"re-entering": "acquiring", "re-entered": "granted", "left": "released"}
    inner = Track(f"{a.name} inside", a.key)
    for event in a.events[begin : end + 1]:
        details = {"owned": True} if event.name == "left" else event.details
        inner.add(replace(event, name=as_its_own.get(event.name, event.name), details=details))
    del a.events[begin : end + 1]
    return inner


def _reentry(a: Track) -> str:
    first, again = a.last("granted"), a.last("re-entered")
    if again is None:
        return LOST if a.has("lost") else "never reached"
    return SAME if first is not None and first.details["fence"] == again.details["fence"] else NEW


def _told(a: Track) -> str:
    answer = a.last("accepted", "stale")
    if answer is None:
        return "nothing, it did not write"
    if answer.name == "accepted":
        return "200"
    return f"409 seen {answer.details['seen']} got {answer.details['fence']}"


def _lines(a: Track) -> Iterator[StoryLine]:
    """The events that only this experiment knows, in words."""
    for event in a.events:
        text = _words(event, _reentry(a))
        if text is not None:
            yield StoryLine(event.at / 1e9, a.name, text)


def _words(event: Event, reentry: str) -> str | None:
    match event.name:
        case "re-entering":
            return "enters its lock again"
        case "re-entered":
            fence = event.details["fence"]
            return f"is inside, and cannot tell that fence {fence} is new" if reentry == NEW else "is inside"
        case "left":
            return "leaves its inner block"
        case "lost":
            return f"is told: {event.details['error']}"
    return None
