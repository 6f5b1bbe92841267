"""Processes that are killed while they wait, and processes that fork."""

import asyncio
import sys
import time

import pytest

from asyncdlock.backends.etcd import from_url
from harness.servers import EtcdCluster
from tests.backends.etcd_probe import Probe
from tests.backends.support import claim

_WAITERS = 5
_TTL = 4

_WAIT = """
import asyncio, sys
import asyncdlock

async def main():
    _, url, key, ttl, waiters = sys.argv
    locks = asyncdlock.connect(url, local_queue=False)
    await asyncio.gather(*(locks.acquire(key, ttl=float(ttl)) for _ in range(int(waiters))))

asyncio.run(main())
"""


@pytest.mark.faults
async def test_killed_waiters_delay_the_others_by_one_ttl_and_not_by_one_each(
    shared_etcd: EtcdCluster, etcd_url: str, key: str
) -> None:
    """Their places go with their leases, and those of one process end together."""
    probe = Probe(shared_etcd[0])
    backend = from_url(etcd_url)
    held = claim(key)
    await backend.acquire(held)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WAIT, etcd_url, key, str(_TTL), str(_WAITERS)
    )
    try:
        await probe.waits(key, 1 + _WAITERS)
        behind = asyncio.create_task(backend.acquire(claim(key)))
        await probe.waits(key, 2 + _WAITERS)
    finally:
        child.kill()
        await child.wait()
    killed_at = time.monotonic()
    await backend.release(held)
    async with asyncio.timeout(60):
        await behind
    # One after the other they would take five times as long.
    assert time.monotonic() - killed_at < 3 * _TTL
    await backend.aclose()


_FORK = """
import asyncio, gc, os, sys
import asyncdlock

async def refused(locks):
    try:
        async with asyncio.timeout(20):
            await locks.acquire("fork:child", ttl=30)
    except asyncdlock.LockError as error:
        assert "fork" in str(error), error
        os._exit(0)

async def own_client():
    async with asyncio.timeout(20), asyncdlock.connect(url) as locks:
        assert await locks.try_acquire("fork:held", ttl=30) is None
        await (await locks.acquire("fork:child", ttl=30)).release()
    os._exit(0)

async def main(url, child_does):
    async with asyncdlock.connect(url, local_queue=False) as locks, asyncdlock.connect(url) as others:
        held, theirs = await locks.acquire("fork:held", ttl=30), await others.acquire("fork:theirs", ttl=30)
        waiting = asyncio.create_task(locks.acquire("fork:theirs", ttl=30))
        while not locks._backend.stats.watches:
            await asyncio.sleep(0.01)
        await held.renew()
        child = os.fork()
        if not child:
            try:
                if child_does == "collects":
                    locks = others = held = theirs = waiting = None
                    gc.collect()
                    os._exit(0)
                if child_does == "connects":
                    asyncio.run(own_client())
                asyncio.run(refused(locks if child_does == "inherits" else asyncdlock.connect(url)))
            finally:
                os._exit(1)
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            await asyncio.sleep(0.01)
        assert ended == (child, 0), ended
        await held.renew()
        await theirs.release()
        await (await waiting).release()
        assert locks._backend.stats.failovers == 0
        assert await held.release()
        print("undisturbed")

_, url, child_does = sys.argv
asyncio.run(main(url, child_does))
"""


@pytest.mark.parametrize(
    ("transport", "child_does"),
    [
        ("http2", "collects"),
        ("http2", "inherits"),
        ("http2", "connects"),
        ("grpc", "collects"),
        ("grpc", "inherits"),
        ("grpc", "is refused"),
    ],
)
async def test_a_forked_child_does_not_disturb_its_parent(
    transport: str, child_does: str, etcd_url: str
) -> None:
    """It may have a client of its own, but not on gRPC's library, whose sockets and queues it shares: that is
    refused, clearly.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _FORK, f"{etcd_url}?transport={transport}", child_does),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert (process.returncode, out.decode().split()) == (0, ["undisturbed"]), err.decode()
