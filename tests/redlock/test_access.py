"""redlock://: nodes with passwords of their own, and encrypted ones."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import asyncdlock
from asyncdlock import QuorumError
from harness import servers
from tests.redlock.conftest import warm

LONG = 60.0


async def test_each_node_is_told_the_password_of_its_own(key: str) -> None:
    async with AsyncExitStack() as stack:
        nodes = servers.RedisNodes(
            [
                await stack.enter_async_context(servers.redis(password=f"word,{number}@"))
                for number in range(3)
            ]
        )
        logins = [f"default:word%2C{number}%40@" for number in range(3)]
        url = "redlock://" + ",".join(
            f"{login}{node.address}" for login, node in zip(logins, nodes, strict=True)
        )
        async with asyncdlock.connect(url) as locks:
            await warm(locks, nodes)  # held on all three
        shared = f"redlock://{logins[0]}{nodes.addresses}?connect_timeout=30"
        async with asyncdlock.connect(shared) as stranger:
            with pytest.raises(QuorumError) as caught:
                await stranger.try_acquire(key, ttl=LONG)
        assert caught.value.causes is not None
        said = [str(cause) for cause in caught.value.causes.exceptions]
        assert len(said) == 2
        assert all("refused the credentials" in sentence and "word," not in sentence for sentence in said), (
            said
        )


async def test_an_encrypted_quorum(key: str, tmp_path: Path) -> None:
    async with servers.redis_nodes(3, tls="server") as nodes:
        trusted = tmp_path / "ca.pem"
        with trusted.open("wb") as file:
            for node in nodes:
                assert node.certificates is not None
                file.write(node.certificates.ca.read_bytes())
        url = f"redlocks://{nodes.addresses}"
        async with asyncdlock.connect(url, ca_file=trusted) as locks:
            await warm(locks, nodes)  # held on all three
        async with asyncdlock.connect(url, connect_timeout=30.0) as stranger:
            with pytest.raises(QuorumError) as caught:
                await stranger.try_acquire(key, ttl=LONG)
        assert caught.value.causes is not None
        assert all("certificate" in str(cause) for cause in caught.value.causes.exceptions)
