"""Experiment 10: the primary dies before it has replicated a grant, and the replica takes over.

Redis answers before its replicas know. What they have missed is gone with the primary: the lock, and
the counter from which the next fence comes. The replica follows through a link that is cut before the
grant which is to be forgotten; that is bad luck arranged, not a fault that Redis would call one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from asyncdlock import BackendError
from harness import servers
from harness.faults import Link, crashed_server, open_link, partition, promote_behind
from harness.lab import FENCES, Actor, Lab, Plan, Scene
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, about, answer
from harness.lab.registry import experiment
from harness.lab.verdict import HOLDERS
from harness.resource.process import Fence

T = TypeVar("T")
Play = Callable[[Lab, int, Scene], Awaitable[Case]]

LONG = 30.0  # a TTL that no case outlives
PATIENCE = 60.0
FORGOTTEN = 5  # turns that the replica never hears of, where the counter is in question
ETCD_TTL = 10.0


@experiment(
    number=10,
    name="failover",
    question="The primary grants the lock and dies before its replica knows. Who holds the lock, and what "
    "becomes of the fences?",
    expectation="Two hold it, and they hold the same fence. Without a fence at the resource both write; "
    "with it the second is refused. So is every later holder until the counter has caught up: safe, but "
    "stuck, unless it is lifted. A store that agrees before it answers, etcd, loses neither of the two.",
)
async def run(lab: Lab) -> ExperimentResult:
    turns = lab.rng.randrange(1, 4)
    lab.plan(turns_before=turns, forgotten=FORGOTTEN)

    def plan(name: str, fence: Fence, play: Play, expected: str = "ok") -> Plan:
        return lab.fenced(name, fence, partial(play, lab, turns), ttl=LONG, expected=expected)

    cases = await lab.cases(
        [
            plan("grant not replicated", "off", _two_holders, "violated"),
            plan("grant not replicated", "on", _two_holders),
            plan("grant replicated", "off", _replicated),
            plan("counter forgotten", "on", partial(_forgotten, repair=False)),
            plan("counter forgotten and lifted", "on", partial(_forgotten, repair=True)),
            plan("counter forgotten, client remembers", "on", _remembered),
            plan("etcd leader killed", "off", _etcd),
        ]
    )
    lab.picture(*(f"grant not replicated, fence {fence}" for fence in FENCES))
    return ExperimentResult(
        cases=cases, answer=conclude(cases), figures={"turns_before": turns, "forgotten": FORGOTTEN}
    )


class _Pair:
    """A primary, a replica that follows it through a link, and the address that clients use.

    The clients' link is what a virtual address or a Sentinel is elsewhere: after the failover it
    leads to the replica.
    """

    def __init__(self, group: servers.ReplicatedRedis, replication: Link, front: Link, scene: Scene) -> None:
        self._group = group
        self._replication = replication
        self._front = front
        self._scene = scene

    @property
    def url(self) -> str:
        return f"redis://{self._front.address}/0"

    @property
    def replica(self) -> servers.RedisNode:
        return self._group.replicas[0]

    def behind(self) -> contextlib.AbstractAsyncContextManager[None]:
        """The replica hears of nothing for as long as the body runs."""
        return partition(self._scene.journal, [self._replication])

    async def in_step(self) -> None:
        """Return when the replica knows the lock's counter as the primary does."""
        counter = f"fence:{{{self._scene.key}}}"
        wanted = await self._group.primary.command("GET", counter)

        async def knows() -> bool:
            return bool(await self.replica.command("GET", counter) == wanted)

        await self.replica.until(knows, "replication of the counter")

    async def fail_over(self) -> None:
        """The primary dies, the replica becomes it, and clients find it."""
        await promote_behind(self._scene.journal, self._group, self.replica)
        self._front.target = self.replica.address
        self._front.break_off()


@contextlib.asynccontextmanager
async def _pair(lab: Lab, scene: Scene) -> AsyncIterator[tuple[_Pair, Actor, Actor]]:
    """A pair, and two clients that are connected to it; time begins."""
    async with contextlib.AsyncExitStack() as stack:
        async with lab.loading.one():
            group = await stack.enter_async_context(servers.redis_replicated(1))
            replication = await stack.enter_async_context(
                open_link(group.primary.address, name="replication")
            )
            await group.follow(group.replicas[0], replication.address)
        front = await stack.enter_async_context(open_link(group.primary.address, name="front"))
        pair = _Pair(group, replication, front, scene)
        async with scene.actor("A", pair.url) as a, scene.actor("B", pair.url) as b:
            await scene.begin()
            yield pair, a, b


async def _turn(actor: Actor, number: int) -> str:
    """Acquire, write, release: what the resource said."""
    await actor.acquire(ttl=LONG)
    return await actor.finish(f"result {number}")


async def _turns(actor: Actor, count: int, first: int = 1) -> None:
    for number in range(first, first + count):
        await _turn(actor, number)


async def _forget(pair: _Pair, actor: Actor, turns: int) -> None:
    """Some turns that the replica hears of, some that it does not, and the failover."""
    await _turns(actor, turns)
    await pair.in_step()
    async with pair.behind():
        await _turns(actor, FORGOTTEN, turns + 1)
        await pair.fail_over()


async def _two_holders(lab: Lab, turns: int, scene: Scene) -> Case:
    """A is granted what the replica never hears of; B is granted it again."""
    async with _pair(lab, scene) as (pair, a, b):
        await _turns(a, turns)
        await pair.in_step()
        async with pair.behind():
            mine = await a.acquire(ttl=LONG)
            await pair.fail_over()
        theirs = await b.acquire(ttl=LONG)
        await b.write("result of B")
        held = mine.held
        await a.finish("result of A")
        await b.release()
    shown = {
        "A's lease was good when it wrote": held,
        "both had the same fence": mine.fence == theirs.fence,
    }
    return await _judged(scene, f"A {mine.fence}, B {theirs.fence}", shown)


async def _replicated(lab: Lab, turns: int, scene: Scene) -> Case:
    """The same, but the grant reached the replica: B has to wait."""
    async with _pair(lab, scene) as (pair, a, b):
        await _turns(a, turns)
        mine = await a.acquire(ttl=LONG)
        await pair.in_step()
        await pair.fail_over()
        refused = await b.try_acquire(ttl=LONG) is None
        await a.finish("result of A")
        theirs = await b.acquire(ttl=LONG)
        await b.finish("result of B")
    shown = {"B could not get in beside A": refused, "fences rose": theirs.fence > mine.fence}
    return await _judged(scene, f"A {mine.fence}, B {theirs.fence}", shown)


async def _forgotten(lab: Lab, turns: int, scene: Scene, *, repair: bool) -> Case:
    """The replica has missed several turns: fences begin again below what the resource has seen."""
    assert scene.resource is not None
    async with _pair(lab, scene) as (pair, a, b):
        await _forget(pair, a, turns)
        seen = (await scene.resource.value(scene.key)).max_fence
        if repair:
            await b.client.raise_fence(scene.key, above=seen)
        refused = 0
        while await _turn(b, refused + 1) == "stale":
            refused += 1
    shown = {
        "B was accepted at once" if repair else "B was refused until the counter had caught up": refused
        == (0 if repair else FORGOTTEN)
    }
    return await _judged(scene, f"seen {seen}, refused {refused} ×", shown)


async def _remembered(lab: Lab, turns: int, scene: Scene) -> Case:
    """The same without anybody's help: a client that has seen the higher fences lifts the counter itself."""
    async with _pair(lab, scene) as (pair, a, _):
        await _forget(pair, a, turns)
        accepted = await _turn(a, turns + FORGOTTEN + 1) == "accepted"
        fence = a.handle.fence
    return await _judged(scene, f"A {fence}", {"A was accepted at once": accepted})


async def _etcd(lab: Lab, turns: int, scene: Scene) -> Case:
    """Three members agree before one answers: killing the leader loses nothing."""
    scene.ttl = ETCD_TTL
    async with contextlib.AsyncExitStack() as stack:
        async with lab.loading.one():
            # The wheel's etcd 3.5.1 can lose consistency when members are killed (etcd #13766).
            cluster = await stack.enter_async_context(servers.etcd(3, flavour="system"))
        a = await stack.enter_async_context(scene.actor("A", cluster.url))
        b = await stack.enter_async_context(scene.actor("B", cluster.url))
        await scene.begin()
        mine = await a.acquire(ttl=ETCD_TTL, renew=True)
        leader = await cluster.leader()
        product = await leader.product()
        async with crashed_server(scene.journal, leader, who="etcd leader"):
            await cluster.leader()
            refused = await _survives(lambda: b.try_acquire(ttl=ETCD_TTL)) is None
            await a.write("result of A")
            await _survives(a.release)
            theirs = await _survives(lambda: b.acquire(ttl=ETCD_TTL))
            await b.write("result of B")
            await _survives(b.release)
    shown = {"B could not get in beside A": refused, "fences rose": theirs.fence > mine.fence}
    return await _judged(scene, f"A {mine.fence}, B {theirs.fence}", shown, server=f"3 × {product}")


async def _survives(call: Callable[[], Awaitable[T]]) -> T:
    """Ask again while there is no leader."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except BackendError:
                await asyncio.sleep(0.1)


async def _judged(scene: Scene, fences: str, shown: dict[str, bool], **more: Fact) -> Case:
    refused = await scene.refusals()
    facts: dict[str, Fact] = {
        "fences": fences,
        "refused": "nothing" if not refused else f"{len(refused)} × from {refused[0]}",
        "value": await scene.value(),
        **more,
    }
    # Rising fences are the lock's own promise, and the one that a forgetful failover breaks.
    return await scene.judge(
        facts=facts,
        shown=shown,
        story=scene.name.startswith("grant not replicated"),
        but=("fence_order", HOLDERS),
    )


def conclude(cases: Sequence[Case]) -> str:
    return answer(
        Conclusion(
            "Two hold it: A by the old primary's word, B by the new one's. And they hold the *same* "
            "fence, because the counter was forgotten together with the lock. With the fence off the "
            "resource accepted both. With it on it refused the second, since a fence must be larger than "
            "the last and not merely as large.",
            about(cases, "grant not replicated"),
        ),
        Conclusion(
            f"The counter stays behind. After {FORGOTTEN} forgotten turns the next {FORGOTTEN} holders "
            "were refused, although each held the lock: safe, but stuck. `raise_fence(key, above=seen)` "
            "ended that at once, and a client that had seen the higher fences did it by itself.",
            about(cases, "counter forgotten"),
        ),
        Conclusion(
            "Replication in time avoids all of it, but nothing makes Redis wait for it.",
            about(cases, "grant replicated"),
        ),
        Conclusion(
            "etcd, whose members agree before one of them answers, lost neither lock nor revision when "
            "its leader was killed: B waited for A, and the fence rose.",
            about(cases, "etcd leader killed"),
        ),
    )
