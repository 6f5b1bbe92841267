"""`from harness import contend`: the main command with a typed result."""

import dataclasses
import json
from pathlib import Path

import pytest

import asyncdlock
from harness import contend
from harness.config import UsageError


def client() -> asyncdlock.LockClient:
    return asyncdlock.connect("memory://contend")


async def test_a_sound_lock_is_safe_and_leaves_files_only_where_it_was_told(tmp_path: Path) -> None:
    result = await contend("memory://", contenders=10, rate=50, duration=1, out=tmp_path)
    assert result.safe
    assert result.figures.arrivals.acquired == 50
    assert result.folder is not None
    summary = json.loads((result.folder / "summary.json").read_text())
    assert summary["verdict"] == result.verdict
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.verdict = "ok"  # type: ignore[misc]


async def test_a_client_of_ones_own_is_made_in_the_contenders_process() -> None:
    result = await contend(client, contenders=10, rate=50, duration=1)
    assert result.safe
    assert result.folder is None
    assert result.figures.arrivals.acquired == 50


async def test_frozen_holders_and_an_unfenced_resource_are_a_violation(redis_url: str) -> None:
    result = await contend(
        redis_url, contenders=20, rate=20, duration=4, ttl=0.5, pause=1.5, timeout=10, fence=False
    )
    assert result.verdict == "violated"
    assert not result.safe
    assert result.findings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"contenders": 0}, "contenders must be more than 0"),
        ({"duration": -1}, "duration must be more than 0"),
        ({"processes": 2}, "--processes 1"),
    ],
)
async def test_bad_arguments_are_one_sentence(settings: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        await contend("memory://", **settings)  # type: ignore[arg-type]


async def test_a_client_that_others_cannot_import_is_refused_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="define it at the top of a module"):
        await contend(lambda: asyncdlock.connect("memory://"))


async def test_no_such_server_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"127\.0\.0\.1:1"):
        await contend("redis://127.0.0.1:1", contenders=1, rate=1, duration=1)
