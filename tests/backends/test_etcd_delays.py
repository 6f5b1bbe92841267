"""Requests and replies that come late: nothing is left behind, and no lease is thought younger than it is."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from asyncdlock.backends.etcd import EtcdBackend, from_url
from asyncdlock.errors import BackendError
from asyncdlock.types import LeaseState, validity
from harness.servers import EtcdCluster
from tests.backends.etcd_probe import Probe, Proxy
from tests.backends.support import claim, until


class Route(NamedTuple):
    """A client that reaches one server on two ways, and uses the first as long as it answers."""

    backend: EtcdBackend
    first: Proxy
    probe: Probe


@pytest.fixture
async def route(etcd_server: EtcdCluster) -> AsyncIterator[Route]:
    node = etcd_server[0]
    async with Proxy(node).running() as first, Proxy(node).running() as second:
        addresses = [f"127.0.0.1:{proxy.port}" for proxy in (first, second)]
        backend = from_url(f"etcd://{','.join(addresses)}", attempt_timeout=0.5)
        while backend.endpoint != addresses[0]:  # a client starts with any member
            backend = from_url(f"etcd://{','.join(addresses)}", attempt_timeout=0.5)
        yield Route(backend, first, Probe(node))
        await backend.aclose()


@pytest.mark.faults
@pytest.mark.parametrize("verb", ["acquire", "try_acquire"])
@pytest.mark.parametrize("wanted", [True, False], ids=["released", "cancelled"])
async def test_a_claim_that_arrives_long_after_its_owner_left_is_removed(
    verb: str, wanted: bool, route: Route
) -> None:
    """It was repeated on another way; its first copy travels on, and puts a key that nobody owns."""
    backend, first, probe = route
    kept = await backend.acquire(claim("delay:kept"))  # as in any busy client, the lease stays in use
    lost = claim("delay:lost")
    first.hold_requests(lost.key)
    attempt = asyncio.create_task(getattr(backend, verb)(lost))
    await first.request_held()
    if wanted:
        await attempt
    else:
        attempt.cancel()
        await asyncio.wait({attempt})
    await backend.release(lost)
    assert await probe.queue(lost.key) == []
    before = await probe.revision()

    first.deliver_held()

    async def arrived() -> bool:
        return await probe.revision() > before

    async def removed() -> bool:
        assert await backend.renew([kept]) == [LeaseState.RENEWED]
        return not await probe.queue(lost.key)

    await until(arrived, "the late copy")
    await until(removed, "the late copy is gone again", within=15)
    again = claim(lost.key)
    assert await backend.try_acquire(again) is not None
    assert [entry.value for entry in await probe.queue(lost.key)] == [again.owner]


@pytest.mark.faults
async def test_a_release_that_arrives_late_takes_nothing_from_a_later_holder(route: Route) -> None:
    """A claim whose grant came too late gives it back and tries again: the release was for the first."""
    backend, first, probe = route
    mine = claim("delay:again")
    await backend.acquire(mine)
    first.hold_requests(mine.key)
    release = asyncio.create_task(backend.release(mine))
    await first.request_held()
    assert await release is True
    grant = await backend.acquire(mine)
    entries = await probe.queue(mine.key)
    first.deliver_held()
    await asyncio.sleep(1)  # nothing tells that a request was without effect
    assert await probe.queue(mine.key) == entries
    assert await backend.renew([grant]) == [LeaseState.RENEWED]


@pytest.mark.faults
async def test_a_refusal_is_not_definite_when_an_earlier_copy_may_have_been_carried_out(route: Route) -> None:
    """Two claims travel together and are granted, but nobody hears of it; the repetition is refused."""
    backend, first, probe = route
    await backend.acquire(claim("delay:warm"))
    claims = [claim("delay:refused-1"), claim("delay:refused-2")]
    first.hold_answers()
    attempts = [asyncio.create_task(backend.acquire(each)) for each in claims]
    for each in claims:
        await probe.waits(each.key, 1)
    alarm = {"memberID": "0", "alarm": "CORRUPT"}
    await probe.node.call("maintenance/alarm", {"action": "ACTIVATE", **alarm})
    for attempt in attempts:
        with pytest.raises(BackendError, match="corrupt") as refused:
            await attempt
        assert refused.value.definite is False
    await probe.node.call("maintenance/alarm", {"action": "DEACTIVATE", **alarm})
    for each in claims:
        await backend.release(each)
        assert await probe.queue(each.key) == []


async def test_a_lease_counts_from_before_it_was_asked_for(shared_etcd: EtcdCluster) -> None:
    probe = Probe(shared_etcd[0])
    async with Proxy(shared_etcd[0]).running() as proxy:
        backend = from_url(f"etcd://127.0.0.1:{proxy.port}")
        await backend.acquire(claim("delay:connected", ttl=20))
        leases = await probe.leases()
        proxy.hold_answers()
        attempt = asyncio.create_task(backend.acquire(claim("delay:granted", ttl=10)))

        async def asked() -> bool:
            return await probe.leases() > leases

        await until(asked, "the lease is granted, and its owner does not know it")
        asked_at = time.monotonic()
        proxy.let_answers_pass()
        grant = await attempt
        assert grant.expires_at <= asked_at + validity(10)
        await backend.aclose()


async def test_a_lease_that_is_refreshed_counts_from_before_that_was_asked_for(
    shared_etcd: EtcdCluster,
) -> None:
    """Along with a further lock, and by a renewal."""
    probe = Probe(shared_etcd[0])
    async with Proxy(shared_etcd[0]).running() as proxy:
        backend = from_url(f"etcd://127.0.0.1:{proxy.port}")
        first = await backend.acquire(claim("delay:first", ttl=10))
        await asyncio.sleep(1)  # the lease is no longer as good as new
        proxy.hold_answers()
        attempt = asyncio.create_task(backend.acquire(second := claim("delay:second", ttl=10)))
        await probe.waits(second.key, 1)
        asked_at = time.monotonic()
        proxy.let_answers_pass()
        grant = await attempt
        assert first.expires_at < grant.expires_at <= asked_at + validity(10)

        proxy.hold_answers()
        sent = backend.commands
        renewal = asyncio.create_task(backend.renew([grant]))
        await until(lambda: backend.commands > sent, "a renewal is on its way")
        asked_at = time.monotonic()
        proxy.let_answers_pass()
        assert await renewal == [LeaseState.RENEWED]
        [place] = [place for place in backend.places() if place.claim is grant.claim]
        assert place.expires_at is not None
        assert grant.expires_at < place.expires_at <= asked_at + validity(10)
        assert place.lease.expires_at <= asked_at + validity(10)
        await backend.aclose()


async def test_a_lease_that_is_confirmed_too_late_is_not_believed(shared_etcd: EtcdCluster) -> None:
    """The server may be ending it already: what hung on it is lost, and the next claim gets a fresh one."""
    probe = Probe(shared_etcd[0])
    async with Proxy(shared_etcd[0]).running() as proxy:
        backend = from_url(f"etcd://127.0.0.1:{proxy.port}", attempt_timeout=10, timeout=20)
        held = await backend.acquire(claim("delay:lapsed", ttl=30))
        [entry] = await probe.queue("delay:lapsed")
        [place] = backend.places()
        place.lease.refreshed_at -= 30  # as if this process had slept
        assert await backend.renew([held]) == [LeaseState.LOST]

        async def revoked() -> bool:
            return entry.lease not in await probe.leases()

        await until(revoked, "the old lease is not left to chance")
        again = await backend.acquire(claim("delay:lapsed", ttl=30))
        assert again.fence > held.fence
        [place] = [place for place in backend.places() if place.claim is again.claim]
        place.lease.refreshed_at -= 30
        fresh = await backend.acquire(claim("delay:other", ttl=30))
        assert (await probe.queue("delay:other"))[0].lease != place.lease.id
        assert await backend.renew([fresh]) == [LeaseState.RENEWED]
        await backend.aclose()


async def test_a_renewal_reads_the_key_after_the_lease_was_confirmed(shared_etcd: EtcdCluster) -> None:
    """A lease that was confirmed while it was being revoked must not outweigh the missing key."""
    probe = Probe(shared_etcd[0])
    async with Proxy(shared_etcd[0]).running() as proxy:
        backend = from_url(f"etcd://127.0.0.1:{proxy.port}")
        held = await backend.acquire(claim("delay:revoked"))
        [entry] = await probe.queue("delay:revoked")
        assert await backend.renew([held]) == [LeaseState.RENEWED]  # the stream is open
        proxy.hold_answers()
        sent = backend.commands
        renewal = asyncio.create_task(backend.renew([held]))
        await until(lambda: backend.commands > sent, "a renewal is on its way")
        await probe.leases()  # a read beside the keep-alive would have been served before this
        await probe.delete(entry.key)
        proxy.let_answers_pass()
        assert await renewal == [LeaseState.LOST]
        await backend.aclose()
