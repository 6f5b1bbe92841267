"""The catalogue: every installation starts as it says, and a backend in it is known everywhere."""

from pathlib import Path

import pytest

import asyncdlock
from asyncdlock.backend import schemes
from harness.servers.catalogue import BACKENDS, INSTALLATIONS, SHARED
from tests.cli.program import harness, started
from tests.contract.cases import CASES

ROOT = Path(__file__).parents[2]
PAGES = {"redis-queue": "redis"}
"""Backends that are described on another's page."""


@pytest.mark.parametrize("name", BACKENDS)
async def test_a_backend_starts_in_every_form_and_takes_a_lock_of_its_shortest_ttl(name: str) -> None:
    one = INSTALLATIONS[name]
    for durable in (False, True):
        async with one.start(tuned=True, durable=durable) as server:
            assert server.url.startswith(f"{name}://")
            # A query, as patience with a server that is gone must be understood by the backend.
            url = f"{server.url}?{'&'.join(one.impatience)}" if one.impatience else server.url
            async with asyncdlock.connect(url) as client:
                assert client.capabilities.min_ttl <= one.shortest_ttl
                handle = await client.acquire("key", ttl=max(one.shortest_ttl, 2.0))
                assert await handle.release()
            assert not server.dead()
            for node in server.nodes[:1]:
                node.kill()
                assert server.dead()


@pytest.mark.parametrize("name", [name for name in INSTALLATIONS if name not in BACKENDS])
async def test_another_topology_keeps_the_scheme_of_its_backend(name: str) -> None:
    async with INSTALLATIONS[name].start() as server:
        scheme = server.url.partition("://")[0]
        assert scheme in SHARED
        assert len(server.nodes) > 1


def test_every_backend_is_registered_under_contract_and_described() -> None:
    assert set(BACKENDS) <= {case.name for case in CASES} <= set(INSTALLATIONS)
    assert set(BACKENDS) <= set(schemes())
    for name in SHARED:
        assert (ROOT / "docs" / "backends" / f"{PAGES.get(name, name)}.md").is_file(), name


async def test_the_command_line_offers_what_the_catalogue_holds() -> None:
    run, up = await harness("--help"), await harness("servers", "--help")
    assert "{" + ",".join(BACKENDS) + "}" in run.stdout.replace("\n", "").replace(" ", "")
    for name, one in INSTALLATIONS.items():
        assert (f"{name:<12}{one.about}" in up.stdout) is (one.build is not None)


async def test_an_s3_server_is_brought_up_for_the_resource_and_leaves_nothing(tmp_path: Path) -> None:
    async with started("servers", "up", "s3", env={"TMPDIR": str(tmp_path)}) as up:
        use = await up.line(lambda text: "--store" in text)
        words = use.replace("'", "").partition("python -m harness ")[2].split()
        async with started(*words, "--listen", "127.0.0.1:0") as resource:
            await resource.line(lambda text: text.startswith("resource listening"))
            resource.interrupt()
            await resource.ended()
        up.interrupt()
        await up.ended()
    assert up.code == 0
    assert not list(tmp_path.iterdir()), "nor does the server's own log"
