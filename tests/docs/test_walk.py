"""docs/architecture.md names every room of the house, and walks an acquire from call to wire.

Through the files that it names, and no others.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

import asyncdlock
from tests.docs.blocks import ROOT

LIBRARY = ROOT / "asyncdlock"
PAGE = (ROOT / "docs/architecture.md").read_text("utf-8")
(PICTURE,) = re.findall(r"```\n(redis://.*?)```", PAGE, re.DOTALL)
MOST = {"redis": 6, "redis-queue": 8, "etcd": 8}
_SERVERS = {"redis": "redis_url", "redis-queue": "redis_url", "etcd": "etcd_url"}


def drawn() -> dict[str, list[str]]:
    """The columns of the drawing: of each scheme its files, from top to bottom; a folder ends in a slash."""
    first, *lines = PICTURE.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+://", first)]
    files: dict[str, list[str]] = {}
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        words = [line[start:end].split() for line in lines]
        files[first[start:].partition(":")[0]] = [
            names[0] for names in words if names and names[0].endswith((".py", "/"))
        ]
    return files


class Call(NamedTuple):
    """Of a function of ours, by others of ours."""

    place: str
    callers: frozenset[str]


def calls_of(frame: FrameType | None) -> Iterator[str]:
    """The files of ours whose functions are under way, the innermost first."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(LIBRARY):
            yield path.relative_to(LIBRARY).as_posix().removeprefix("backends/")
        frame = frame.f_back


async def walk(url: str) -> list[Call]:
    """What is called while a free lock is acquired on a connection that is open."""
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(LIBRARY):
            place, *callers = calls_of(frame)
            calls.append(Call(place, frozenset(callers)))

    async with asyncdlock.connect(url) as client:
        async with client.hold("walk"):
            pass
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            handle = await client.acquire("walk", timeout=10.0)
        finally:
            sys.setprofile(before)
        await handle.release()
    return calls


def passed_through(calls: Sequence[Call], files: Sequence[str]) -> list[Call]:
    """The calls by which the walk enters each of `files`, one after the other, as far as it does."""
    found: list[Call] = []
    for call in calls:
        if len(found) < len(files) and call.place.startswith(files[len(found)]):
            found.append(call)
    return found


@pytest.fixture
def url(scheme: str, request: pytest.FixtureRequest) -> str:
    started: str = request.getfixturevalue(_SERVERS[scheme])
    return f"{scheme}://{started.partition('://')[2]}"


@pytest.mark.parametrize("scheme", MOST)
async def test_an_acquire_passes_through_the_files_that_are_drawn(scheme: str, url: str) -> None:
    files = drawn()[scheme]
    entered = passed_through(await walk(url), files)
    assert len(entered) == len(files), f"never reached: {files[len(entered)]}"
    assert set().union(*(call.callers for call in entered)) <= set(files)


@pytest.mark.parametrize("scheme", MOST)
def test_as_many_files_are_drawn_as_the_page_says_and_few_enough_for_a_stranger(scheme: str) -> None:
    said = dict(re.findall(r"(\S+)://, (\d+) files", PICTURE))
    before_the_transport = [name for name in drawn()[scheme] if name.endswith(".py")]
    assert len(before_the_transport) == int(said[scheme]) <= MOST[scheme]


def test_every_room_of_the_house_is_on_the_page() -> None:
    named = set(re.findall(r"`(?:asyncdlock/|harness/)?([\w.]+(?:\.py|/))`", PAGE))
    for package in ("asyncdlock", "harness"):
        rooms = {
            f"{path.name}/" if path.is_dir() else path.name
            for path in (ROOT / package).iterdir()
            if (path.is_dir() or path.suffix == ".py") and not path.name.startswith(("__", "."))
        }
        assert rooms - named == set()
