"""`--fence-key`: only signed tokens are believed; `lower-mark`: what a made-up one burnt is repaired."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from asyncdlock.errors import StaleFence
from asyncdlock.fencing.http import FencedHttp, ResourceError
from asyncdlock.fencing.signed import FenceSigner
from harness import resource
from harness.resource import ResourceProcess
from harness.resource.decision import MAX_INTEGER, Fencing, Write
from harness.resource.store import open_store
from tests.resource.conftest import STORES, store_url

SECRETS = "# oldest first\n2026-10 an-old-secret-of-ours\n\n2026-11 a-newer-secret-of-ours\n"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    file = tmp_path / "secrets"
    file.write_text(SECRETS)
    return file


@pytest.fixture
async def signed(secrets: Path) -> AsyncIterator[ResourceProcess]:
    """A resource that asks for signatures."""
    async with resource.spawn(options={"--fence-key": str(secrets)}) as node:
        yield node


async def test_only_signed_tokens_are_believed(signed: ResourceProcess, secrets: Path, key: str) -> None:
    signer = FenceSigner.from_file(secrets)
    async with aiohttp.ClientSession() as session:
        holder = FencedHttp(signed.url, session, sign=signer.sign)
        liar = FencedHttp(signed.url, session)
        forger = FencedHttp(signed.url, session, sign=FenceSigner({"2026-11": b"x" * 16}).sign)
        borrower = FencedHttp(signed.url, session, sign=lambda _, fence: signer.sign("another", fence))
        await holder.put(key, b"a", fence=33)
        for guard in (liar, forger, borrower):
            for call in (guard.put(key, b"b", fence=MAX_INTEGER), guard.get(key, fence=MAX_INTEGER)):
                with pytest.raises(ResourceError, match="signed") as refused:
                    await call
                assert refused.value.status == 403
                assert refused.value.definite
        assert (await liar.get(key)).max_fence == 33, "whoever reads without a token needs none"
        await holder.put(key, b"c", fence=34)
        with pytest.raises(StaleFence):
            await holder.put(key, b"d", fence=33)
        assert (await holder.get(key, fence=34)).body == b"c"


async def test_tokens_of_the_secret_before_are_good_until_it_is_removed(
    signed: ResourceProcess, secrets: Path, key: str
) -> None:
    old = FenceSigner({"2026-10": b"an-old-secret-of-ours"})
    async with aiohttp.ClientSession() as session:
        holder = FencedHttp(signed.url, session, sign=old.sign)
        await holder.put(key, b"a", fence=1)
        secrets.write_text(SECRETS.replace("2026-10", "#"))
        await signed.restart()
        with pytest.raises(ResourceError, match="secret that is known"):
            await holder.put(key, b"b", fence=2)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        ("", "at least one secret"),
        ("name", "line 1"),
        ("a 0123456789abcdef\na 0123456789abcdef", "line 2"),
        ("a short", "too short"),
        ("a.b 0123456789abcdef", "no dot"),
    ],
)
def test_a_file_without_secrets_is_one_sentence(tmp_path: Path, content: str | None, says: str) -> None:
    file = tmp_path / "secrets"
    if content is not None:
        file.write_text(content)
    command = [sys.executable, "-m", "harness", "resource", "--store", "memory", "--fence-key", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "0123456789abcdef" not in ended.stderr
    assert "Traceback" not in ended.stderr


# A burnt mark


@pytest.fixture(params=STORES)
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_url(request.param, tmp_path, request)


async def test_a_lowered_mark_lets_the_present_holder_in_and_no_older_one(any_store: str, key: str) -> None:
    store = await open_store(any_store, Fencing.ON, log=False)

    async def put(token: int) -> str:
        return (await store.write(Write(key, token, 0, b"v", "00" * 16, 7))).outcome.value

    try:
        assert await put(33) == "accepted"
        assert await put(MAX_INTEGER) == "accepted"
        assert await put(35) == "stale"
        assert (await store.lower(key, 34)).token == MAX_INTEGER
        assert (await store.lower(key, 40)).token == 34, "it never raises"
        assert await put(32) == "stale"
        assert await put(34) == "accepted"
        assert await put(35) == "accepted"
        assert (await store.lower(f"{key}-never-written", 5)).token == 0
    finally:
        await store.aclose()


async def test_an_operator_lowers_the_mark_of_a_resource_that_runs(tmp_path: Path, key: str) -> None:
    store = f"sqlite:{tmp_path / 'resource.db'}"
    async with resource.spawn(store=store) as node, aiohttp.ClientSession() as session:
        guard = FencedHttp(node.url, session)
        await guard.put(key, b"burnt", fence=MAX_INTEGER)
        with pytest.raises(StaleFence):
            await guard.put(key, b"honest", fence=35)
        for says in (f"lowered from {MAX_INTEGER} to 35", "is 35, which shuts out nobody"):
            said = _lower(key, "--to", "35", "--store", store)
            assert (said.returncode, said.stderr) == (0, "")
            assert says in said.stdout
        await guard.put(key, b"honest", fence=35)
        node.kill()
        await node.start()
        with pytest.raises(StaleFence):
            await guard.put(key, b"late", fence=34)


@pytest.mark.parametrize(
    "words", [("--to", "0"), ("--to", "x"), (), ("--to", "5", "--store", "memory"), ("--to", "5")]
)
def test_what_cannot_be_lowered_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = _lower("key", *words, folder=tmp_path)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.iterdir()), "no store is made on the way"


def _lower(*words: str, folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "harness", "lower-mark", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
