"""Two holders in a fixed order, and many at random: the same for every mode of the resource."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import asyncdlock
from asyncdlock import LockClient
from harness.lab import Lab, Scene
from harness.lab.guarded_store import Kind, open_guarded_store
from harness.lab.resource_view import ResourceView
from harness.lab.shared_set import RESOURCE_FENCE, Mode, SetHolder, SetStore, SharedSet

OLDER_FENCE = 33
"""The numbers of Kleppmann's example: 33 is overtaken by 34."""

CONTENDERS = 6
_LONGEST_WAIT = 1.6  # in TTLs: three of eight holders lose their lease between read and write

Waits = Sequence[Sequence[float]]
"""Of each contender: the seconds between read and write, update after update."""


class SetScene:
    """One set on one resource, and its holders; see `open_set_scene`."""

    def __init__(self, scene: Scene, client: LockClient, shared: SharedSet) -> None:
        self.scene = scene
        self.client = client
        self.holders: list[SetHolder] = []
        self._shared = shared

    def holder(self, name: str) -> SetHolder:
        scene = self.scene
        self.holders.append(SetHolder(scene.key, self.client, self._shared, scene.say_as(name)))
        return self.holders[-1]

    @property
    def acknowledged(self) -> list[str]:
        """The updates that the resource confirmed."""
        return [element for holder in self.holders for element in holder.acknowledged]

    async def lost(self) -> list[str]:
        """Those of them that are not in the set.

        :raises Unanswered: the resource does not answer.
        """
        return await self._shared.lost(self.scene.key, self.acknowledged)


@asynccontextmanager
async def open_set_scene(
    lab: Lab, name: str, mode: Mode, *, ttl: float, kind: Kind | None = None
) -> AsyncIterator[SetScene]:
    """On a resource, or on a store of that `kind` behind its guard."""
    server = await lab.lock_server("redis")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(asyncdlock.connect(server.url))
        resource: ResourceView | None = None
        values: SetStore
        if kind is None:
            values = resource = await lab.resource(RESOURCE_FENCE[mode])
        else:
            assert mode != "check-and-set"  # a guard compares fences, not versions
            store = await lab.store(kind)
            values = await stack.enter_async_context(open_guarded_store(kind, store, mode))
        yield SetScene(lab.scene(name, resource, ttl=ttl), client, SharedSet(values, mode))


async def older_writes_first(stage: SetScene) -> None:
    """Both have read before either writes: 33 reads and pauses, 34 reads, 33 writes, 34 writes.

    :raises LockError: the lock server failed.
    """
    a, b = await _two_that_read(stage)
    await a.add("33's update")
    await b.add("34's update")
    await asyncio.gather(a.release(), b.release())


async def younger_writes_first(stage: SetScene) -> None:
    """The example as Kleppmann tells it: 33 reads and pauses, 34 reads and writes, 33 writes.

    :raises LockError: the lock server failed.
    """
    a, b = await _two_that_read(stage)
    await b.add("34's update")
    await a.add("33's update")
    await asyncio.gather(a.release(), b.release())


async def at_random(stage: SetScene, waits: Waits) -> None:
    """Contenders that update one after the other as the lock lets them; some pause beyond their lease.

    :raises LockError: the lock server failed.
    """

    async def contend(number: int) -> None:
        holder = stage.holder(f"contender {number}")
        for turn, wait in enumerate(waits[number]):
            await holder.acquire(ttl=stage.scene.ttl)  # nobody renews it: a pause is to be a pause
            if await holder.read():
                await asyncio.sleep(wait)
                await holder.add(f"{number}.{turn}")
            await holder.release()

    await asyncio.gather(*(contend(number) for number in range(len(waits))))


def draw_waits(rng: random.Random, updates: int, *, ttl: float) -> Waits:
    """Waits of all lengths up to well beyond the lease, so that holders wake up at any point of the next."""
    return [
        [round(rng.uniform(0, _LONGEST_WAIT) * ttl, 4) for _ in range(updates)] for _ in range(CONTENDERS)
    ]


async def _two_that_read(stage: SetScene) -> tuple[SetHolder, SetHolder]:
    await stage.client.raise_fence(stage.scene.key, above=OLDER_FENCE - 1)
    a, b = stage.holder("A"), stage.holder("B")
    for holder in (a, b):  # B is granted the lock when A's lease has run out
        await holder.acquire(ttl=stage.scene.ttl)
        await holder.read()
    return a, b
