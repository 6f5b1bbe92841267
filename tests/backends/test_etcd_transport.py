"""The whole backend over either transport: whoever carries the requests, the lock is the same."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aetcd import rpc

from asyncdlock.backends.etcd import EtcdBackend, from_url
from asyncdlock.backends.etcd.transport.library import LibraryChannel
from asyncdlock.errors import BackendUnavailable
from asyncdlock.types import LeaseState
from harness.servers import EtcdCluster
from tests.backends.etcd_probe import Probe, Proxy
from tests.backends.support import claim, until

TRANSPORTS = ["http2", "grpc"]


@pytest.fixture(params=TRANSPORTS)
async def backend(request: pytest.FixtureRequest, etcd_url: str) -> AsyncIterator[EtcdBackend]:
    one = from_url(etcd_url, transport=request.param)
    yield one
    await one.aclose()


async def test_a_lock_is_taken_waited_for_renewed_and_given_back(
    backend: EtcdBackend, shared_etcd: EtcdCluster, key: str
) -> None:
    first, second = claim(key), claim(key)
    held = await backend.acquire(first)
    waiting = asyncio.create_task(backend.acquire(second))
    await Probe(shared_etcd[0]).waits(key, 2)
    await until(lambda: backend.stats.watches == 1, "watching")
    assert await backend.renew([held]) == [LeaseState.RENEWED]
    assert await backend.release(first)
    granted = await waiting
    assert granted.fence > held.fence
    assert await backend.release(second)
    assert await Probe(shared_etcd[0]).queue(key) == []


async def test_many_requests_at_once(backend: EtcdBackend, key: str) -> None:
    claims = [claim(f"{key}{number}") for number in range(500)]
    await asyncio.gather(*map(backend.acquire, claims))
    assert all(await asyncio.gather(*map(backend.release, claims)))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_request_whose_answer_never_came_may_have_happened_one_that_was_not_sent_did_not(
    transport: str, shared_etcd: EtcdCluster, key: str
) -> None:
    async with Proxy(shared_etcd[0]).running() as proxy:
        url = f"etcd://127.0.0.1:{proxy.port}"
        backend = from_url(url, transport=transport, timeout=1.0, attempt_timeout=0.5)
        await backend.acquire(claim(f"{key}-warm"))
        proxy.hold_answers()
        with pytest.raises(BackendUnavailable) as open_:
            await backend.acquire(claim(key))
        assert not open_.value.definite
        assert len(await Probe(shared_etcd[0]).queue(key)) == 1
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(BackendUnavailable) as never:
            await backend.acquire(claim(f"{key}-2"))
        assert never.value.definite
        proxy.refusing = False
        await backend.aclose()


async def test_the_librarys_own_tasks_are_known_and_end_with_the_client(
    shared_etcd: EtcdCluster, key: str
) -> None:
    before = asyncio.all_tasks()
    channel = LibraryChannel(shared_etcd[0].address, None)
    watch = channel.stream_stream(
        "/etcdserverpb.Watch/Watch",
        request_serializer=rpc.WatchRequest.SerializeToString,
        response_deserializer=rpc.WatchResponse.FromString,
    )
    talk = watch((), lambda message: None)
    await asyncio.sleep(0.05)  # the library's tasks have started others
    assert asyncio.all_tasks() - before == channel.ending != set()
    talk.cancel()
    await channel.close()
    assert asyncio.all_tasks() == before
