"""The events of a case as lines for a reader: who did what, when, and what the resource said."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.history.rows import Decision, Fault
from harness.lab.event import Event
from harness.lab.outcome import StoryLine
from harness.lab.track import Track

RESOURCE = "resource"

_SAID: Mapping[str, str] = {
    "acquiring": "asks for the lock",
    "pausing": "freezes",
    "resumed": "wakes up",
    "deleting": "deletes the lock",
}


def two_writers(decisions: Sequence[Decision]) -> list[Decision]:
    """The accepted writes that came after a later holder's, or after another's under the same fence."""
    found = []
    latest: dict[str, Decision] = {}
    for decision in decisions:
        if decision.accepted and decision.token:
            before = latest.get(decision.key, decision)
            if decision.token < before.token or (
                decision.token == before.token and decision.owner != before.owner
            ):
                found.append(decision)
            latest[decision.key] = max(before, decision, key=lambda one: one.token)
    return found


def tell(
    tracks: Iterable[Track],
    decisions: Sequence[Decision],
    faults: Iterable[Fault],
    *,
    bodies: Mapping[str, str],
) -> list[StoryLine]:
    """Everything that happened, in order. `bodies` names the value that each track writes."""
    tracks = list(tracks)
    lines = [line for track in tracks for line in _of_track(track, bodies.get(track.name))]
    lines += [line for fault in faults for line in _of_fault(fault)]
    lines += _of_resource(decisions, _owners(tracks))
    return sorted(lines, key=lambda line: line.at)


def _of_track(track: Track, body: str | None) -> Iterator[StoryLine]:
    for event in track.events:
        text = _words(event, body)
        if text:
            tone = "fault" if event.name in ("pausing", "resumed") else "plain"
            yield StoryLine(event.at / 1e9, track.name, text, tone)  # type: ignore[arg-type]


def _words(event: Event, body: str | None) -> str | None:
    details = event.details
    match event.name:
        case "granted":
            return f"is granted the lock, fence {details['fence']}"
        case "pausing":
            return f"stands still for {details['seconds']:g} s, its event loop with it"
        case "writing":
            body = details.get("body", body)
            what = "" if body is None else f" {body!r}"
            belief = "its lease is good" if details["held"] else "its lease ran out, but it does not look"
            return f"writes{what} with fence {details['fence']} ({belief})"
        case "stale":
            return f"is told 409: seen {details.get('seen')}, got {details.get('fence')}"
        case "accepted":
            return "is told 200"
        case "released":
            return "releases" if details.get("owned") else "releases: the lock was no longer its own"
        case "looking":
            return f"looks: the lock is {'its own' if details['owned'] else 'not its own'}"
        case "timed_out":
            return f"is not granted it: {details.get('error', 'its patience ended')}"
        case "failed" | "unknown":
            return f"fails: {details.get('error', 'no reason given')}"
    return _SAID.get(event.name)


def _of_fault(fault: Fault) -> Iterator[StoryLine]:
    details = dict(fault.details)
    who = str(details.pop("who", "fault"))
    rest = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in details.items())
    text = f"{fault.name}{f' ({rest})' if rest else ''}"
    if fault.until is None or fault.until == fault.at:
        yield StoryLine(fault.at / 1e9, who, text, "fault")
        return
    yield StoryLine(fault.at / 1e9, who, f"{text} begins", "fault")
    yield StoryLine(fault.until / 1e9, who, f"{fault.name} ends", "fault")


def _of_resource(decisions: Sequence[Decision], owners: Mapping[str, str]) -> Iterator[StoryLine]:
    violations = two_writers(decisions)
    for decision in decisions:
        writer = owners.get(decision.owner or "", "somebody")
        at = decision.decided / 1e9
        if decision in violations:
            text = f"ACCEPTS fence {decision.token} of {writer} after {decision.seen}: TWO WRITERS"
            yield StoryLine(at, RESOURCE, text, "bad")
        elif decision.accepted:
            yield StoryLine(at, RESOURCE, f"accepts fence {decision.token} of {writer}", "good")
        else:
            text = f"REFUSES fence {decision.token} of {writer}: it has seen {decision.seen}"
            yield StoryLine(at, RESOURCE, text, "good")


def _owners(tracks: Iterable[Track]) -> dict[str, str]:
    """Which participant an owner identifier belongs to."""
    return {
        event.details["owner"]: track.name
        for track in tracks
        for event in track.events
        if event.name == "granted"
    }
