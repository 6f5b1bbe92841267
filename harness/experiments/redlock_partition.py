"""Experiment 2: Redlock on five nodes against pauses, partitions, clocks and forgetful nodes.

The cases are those of the public argument between Martin Kleppmann ("How to do distributed locking",
2016) and Salvatore Sanfilippo ("Is Redlock safe?", 2016). Who can reach which node is decided by a
link of its own between every client and every node: A reaches three, B three, and they share one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from asyncdlock.backends.redis.requests import ACQUIRE
from harness import servers
from harness.experiments.lab import Lab, Plan, Reach, Scene, open_reach
from harness.experiments.outcome import Case, Fact, Outcome
from harness.experiments.registry import experiment
from harness.faults import FakeClock, Link, Way, clock_jump, crashed_server, frozen_process, frozen_server
from harness.report.timeline import Panel
from harness.resource.process import Fence

NODES = 5
TTL = 2.0
PAUSE = 5.0
WORK = 1.0  # between grant and write, so that there is time to freeze the worker
LONG = 30.0  # a TTL that no case outlives: whoever holds the lock there has never been late
NODE_TIMEOUT = 1.0  # Redlock never waits longer for a node than a tenth of the TTL
LATE_TTL = 5.0
FENCES: tuple[Fence, ...] = ("off", "on")


@dataclass(frozen=True, slots=True)
class Sides:
    """Which nodes the clients reach: A the first three of `order`, B the last three."""

    order: tuple[int, ...]

    @property
    def shared(self) -> int:
        return self.order[2]

    @property
    def hidden_from_a(self) -> tuple[int, ...]:
        return self.order[3:]

    @property
    def hidden_from_b(self) -> tuple[int, ...]:
        return self.order[:2]


@dataclass(frozen=True, slots=True)
class Stage:
    """What a case plays on."""

    scene: Scene
    nodes: servers.RedisNodes
    clocks: Sequence[FakeClock]
    shared: int
    a: Reach
    b: Reach


@experiment(
    number=2,
    name="redlock-partition",
    question="Does asking a majority of five independent nodes keep a second writer out, when a client is "
    "frozen, the network is split, a clock jumps, or a node restarts empty?",
    expectation="No. A pause after the validity check, a clock that jumps and a node that forgets each "
    "admit two holders, and without a fence both write. A pause before the check is caught; disks and "
    "late restarts help against forgetting. With the fence on no stale write is accepted in any case.",
)
async def run(lab: Lab) -> Outcome:
    sides = Sides(tuple(lab.rng.sample(range(NODES), NODES)))
    frozen = lab.rng.randrange(NODES)
    lab.plan(reached_by_a=sides.order[:3], reached_by_b=sides.order[2:], frozen_node=frozen)
    cast = _Cast(lab)
    for fence in FENCES:
        verdict = "violated" if fence == "off" else "ok"
        cast.add("partition, A frozen after the check", fence, verdict, _frozen_client, sides, None)
        cast.add("node frozen, A frozen after the check", fence, verdict, _frozen_client, None, frozen)
        cast.add("clock of a node jumps", fence, verdict, _lost_vote, sides, _jump)
        cast.add("node restarts empty", fence, verdict, _lost_vote, sides, _restart)
    cast.add("A frozen before the check", "off", "ok", _frozen_before_check)
    cast.add("node restarts with its data", "off", "ok", _kept_vote, sides)
    cast.add("node restarts empty after a TTL", "off", "ok", _late_restart, sides)
    cast.add("node forgets a high counter", "on", "ok", _forgotten_counter, sides)
    cases = await lab.cases(cast.plans)
    lab.picture([cast.panels.get(f"clock of a node jumps, fence {fence}") for fence in FENCES])
    figures = {"nodes": NODES, "ttl_s": TTL, "pause_s": PAUSE}
    return Outcome(cases=cases, answer=_answer(cases), figures=figures)


@contextlib.asynccontextmanager
async def _stage(
    lab: Lab, scene: Scene, sides: Sides | None = None, *, clocks: bool = False, persistent: bool = False
) -> AsyncIterator[Stage]:
    """Five nodes and two clients' links to them; with `sides`, each client reaches its own three only."""

    def build() -> servers.RedisNodes:
        if not clocks:
            return servers.RedisNodes([servers.RedisNode(persistent=persistent) for _ in range(NODES)])
        # A clock of its own needs the wheel's server: Debian's hangs under libfaketime.
        return servers.RedisNodes(
            [servers.RedisNode(flavour="valkey", environment=clock.environment) for clock in fakes]
        )

    async with contextlib.AsyncExitStack() as stack:
        fakes = [stack.enter_context(FakeClock()) for _ in range(NODES if clocks else 0)]
        async with lab.loading.one():
            nodes = await stack.enter_async_context(servers.running(build))
        a = await stack.enter_async_context(open_reach(nodes.nodes, who="A"))
        b = await stack.enter_async_context(open_reach(nodes.nodes, who="B"))
        if sides is not None:
            await stack.enter_async_context(a.without(scene.journal, sides.hidden_from_a))
            await stack.enter_async_context(b.without(scene.journal, sides.hidden_from_b))
        yield Stage(scene, nodes, fakes, 0 if sides is None else sides.shared, a, b)


# A is frozen.


async def _frozen_client(
    lab: Lab, scene: Scene, expected: str, sides: Sides | None, frozen: int | None
) -> Case:
    """A has its majority and has checked the time left; then it is stopped, and B's turn comes."""
    async with _stage(lab, scene, sides) as stage, contextlib.AsyncExitStack() as stack:
        a, b = await asyncio.gather(
            stack.enter_async_context(scene.worker("A", stage.a.url, work=WORK)),
            stack.enter_async_context(scene.worker("B", stage.b.url)),
        )
        await scene.begin()
        if frozen is not None:
            who = f"node {frozen + 1}"
            await stack.enter_async_context(frozen_server(scene.journal, stage.nodes[frozen], who=who))
        a.track.paused = True
        a.go()
        granted = await a.track.until("granted")
        async with frozen_process(scene.journal, a.pid, who="A"):
            b.go()
            await b.track.until("accepted", "stale")
            await scene.until(granted.at / 1e9 + PAUSE)
        await a.track.until("accepted", "stale")
        await asyncio.gather(a.ended(), b.ended())
    return await _judged(scene, expected, two_holders=True)


async def _frozen_before_check(lab: Lab, scene: Scene, expected: str) -> Case:
    """All nodes have granted A's request; A is stopped before it has read a single answer."""
    async with _stage(lab, scene) as stage, contextlib.AsyncExitStack() as stack:
        a, b = await asyncio.gather(
            stack.enter_async_context(scene.worker("A", stage.a.url)),
            stack.enter_async_context(scene.worker("B", stage.b.url, work=WORK)),
        )
        for node in stage.nodes:  # so that A's first request is carried out and not asked back
            await node.command("SCRIPT", "LOAD", ACQUIRE.source)
        await scene.begin()
        answers = _HeldAnswers(stage.a.links)
        a.track.paused = True
        a.go()
        await answers.all_there()
        async with frozen_process(scene.journal, a.pid, who="A"):
            in_time = answers.asked_once
            answers.let_go()  # they now wait in A's sockets
            b.go()
            await b.track.until("accepted", "stale")
            await scene.until(PAUSE)
        await a.track.until("accepted", "stale", "failed")
        await asyncio.gather(a.ended(), b.ended())
    first, second = (track.last("granted") for track in scene.tracks)
    assert second is not None
    shown = {
        "A was stopped while it waited for the answers": in_time,
        "A did not use the old answers": first is None or first.at > second.at,
    }
    return await _judged(scene, expected, two_holders=False, shown=shown)


class _HeldAnswers:
    """Lets a client's first request for a lock pass every link, and holds back the answers to it."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._asked = dict.fromkeys(links, 0)
        self._answered: set[Link] = set()
        self._all = asyncio.Event()
        for link in links:
            link.watch = partial(self._watch, link)

    @property
    def asked_once(self) -> bool:
        """Whether the client has sent nothing since: it still waits."""
        return set(self._asked.values()) == {1}

    async def all_there(self) -> None:
        """Return when every node has answered."""
        async with asyncio.timeout(LONG):
            await self._all.wait()

    def let_go(self) -> None:
        for link in self._links:
            link.watch = lambda way, data: None
            link.mend()

    def _watch(self, link: Link, way: Way, data: bytes) -> None:
        if way is Way.TO_SERVER and b"EVAL" in data:
            self._asked[link] += 1
            link.hold(Way.TO_CLIENT)
        elif way is Way.TO_CLIENT and self._asked[link]:
            self._answered.add(link)
            if len(self._answered) == len(self._links):
                self._all.set()


# Nobody is frozen: a node votes twice.


async def _lost_vote(
    lab: Lab, scene: Scene, expected: str, sides: Sides, fault: Callable[[Stage], Awaitable[None]]
) -> Case:
    """A holds the lock and is well; the shared node's vote is lost; B, refused before, gets it."""
    async with (
        _stage(lab, scene, sides, clocks=fault is _jump) as stage,
        scene.actor("A", stage.a.url, node_timeout=NODE_TIMEOUT) as a,
        scene.actor("B", stage.b.url, node_timeout=NODE_TIMEOUT) as b,
    ):
        await scene.begin()
        mine = await a.acquire(ttl=LONG)
        refused = await b.try_acquire(ttl=LONG) is None
        await fault(stage)
        await b.acquire(ttl=LONG, timeout=LONG)
        await b.write("result of B")
        held = mine.held
        await a.write("result of A")
        await a.leave()
        await b.leave()
    shown = {"B was refused before the fault": refused, "A's lease was good when it wrote": held}
    return await _judged(scene, expected, two_holders=True, shown=shown)


async def _kept_vote(lab: Lab, scene: Scene, expected: str, sides: Sides) -> Case:
    """The shared node had its vote on disk before it answered: B has to wait."""
    async with (
        _stage(lab, scene, sides, persistent=True) as stage,
        scene.actor("A", stage.a.url, node_timeout=NODE_TIMEOUT) as a,
        scene.actor("B", stage.b.url, node_timeout=NODE_TIMEOUT) as b,
    ):
        await scene.begin()
        await a.acquire(ttl=LONG)
        await _restart(stage)
        refused = await b.try_acquire(ttl=LONG) is None
        await a.write("result of A")
        await a.release()
        await b.acquire(ttl=LONG, timeout=LONG)
        await b.write("result of B")
        await b.release()
    return await _judged(scene, expected, two_holders=False, shown={"B could not get in beside A": refused})


async def _late_restart(lab: Lab, scene: Scene, expected: str, sides: Sides) -> Case:
    """The remedy that Redlock's specification names: a crashed node stays away for longer than any TTL."""
    async with (
        _stage(lab, scene, sides) as stage,
        scene.actor("A", stage.a.url, node_timeout=NODE_TIMEOUT) as a,
        scene.actor("B", stage.b.url, node_timeout=NODE_TIMEOUT) as b,
    ):
        await scene.begin()
        mine = await a.acquire(ttl=LATE_TTL)
        await b.try_acquire(ttl=LATE_TTL)
        async with crashed_server(scene.journal, stage.nodes[sides.shared], who=f"node {sides.shared + 1}"):
            await a.write("result of A")
            await scene.until(scene.seconds() + LATE_TTL)
        over = not mine.held
        await b.acquire(ttl=LATE_TTL, timeout=LONG)
        await b.write("result of B")
        await b.leave()
    return await _judged(scene, expected, two_holders=False, shown={"A's lease was over before B's": over})


async def _forgotten_counter(lab: Lab, scene: Scene, expected: str, sides: Sides) -> Case:
    """A's side has counted to six. The shared node forgets, and B's majority counts from one."""
    assert scene.resource is not None
    async with (
        _stage(lab, scene, sides) as stage,
        scene.actor("A", stage.a.url, node_timeout=NODE_TIMEOUT) as a,
        scene.actor("B", stage.b.url, node_timeout=NODE_TIMEOUT) as b,
    ):
        await scene.begin()
        for turn in range(5):
            await a.acquire(ttl=LONG)
            await a.write(f"result {turn + 1} of A")
            await a.release()
        await a.acquire(ttl=LONG)
        await _restart(stage)
        await b.acquire(ttl=LONG, timeout=LONG)
        refused = await b.write("result of B") == "stale"
        accepted = await a.write("result 6 of A") == "accepted"
        await b.release()
        await a.release()
        await b.client.raise_fence(scene.key, above=(await scene.resource.value(scene.key)).max_fence)
        await b.acquire(ttl=LONG, timeout=LONG)
        mended = await b.write("result of B") == "accepted"
        await b.release()
    shown = {
        "B, with the lower fence, was refused": refused,
        "A, with the higher fence, was accepted": accepted,
        "B was accepted once the counters were lifted": mended,
    }
    return await _judged(scene, expected, two_holders=True, shown=shown, but=("fence_order",))


async def _jump(stage: Stage) -> None:
    """The clock of the shared node is set forward past the TTL, and back again."""
    who = f"node {stage.shared + 1}"
    async with clock_jump(stage.scene.journal, stage.clocks[stage.shared], LONG + 1, who=who):
        # Redis deletes what has expired when it is next touched.
        await stage.nodes[stage.shared].command("EXISTS", stage.scene.key)


async def _restart(stage: Stage) -> None:
    """kill -9 and start again; whether it still knows its locks depends on its persistence."""
    node, who = stage.nodes[stage.shared], f"node {stage.shared + 1}"
    async with crashed_server(stage.scene.journal, node, who=who):
        pass


_TTLS = {_frozen_client: TTL, _frozen_before_check: TTL, _late_restart: LATE_TTL}


class _Cast:
    """Collects the plans, and the pictures of the scenes that they become."""

    def __init__(self, lab: Lab) -> None:
        self.plans: list[Plan] = []
        self.panels: dict[str, Panel | None] = {}
        self._lab = lab

    def add(
        self, name: str, fence: Fence, expected: str, play: Callable[..., Awaitable[Case]], *arguments: object
    ) -> None:
        async def run() -> Case:
            ttl = _TTLS.get(play, LONG)
            scene = self._lab.scene(f"{name}, fence {fence}", await self._lab.resource(fence), ttl=ttl)
            case = await play(self._lab, scene, expected, *arguments)
            self.panels[scene.name] = scene.panel
            return case

        self.plans.append(Plan(f"{name}, fence {fence}", expected, run))


# What came of it.

_STORIES = (
    "clock of a node jumps, fence off",
    "clock of a node jumps, fence on",
    "A frozen before the check, fence off",
)


async def _judged(
    scene: Scene,
    expected: str,
    *,
    two_holders: bool,
    shown: dict[str, bool] | None = None,
    but: tuple[str, ...] = (),
) -> Case:
    assert scene.resource is not None
    decisions = await scene.decisions()
    refused = [f"409 seen {one.seen} got {one.token}" for one in decisions if one.outcome == "stale"]
    overlapped = _overlapped(scene)
    facts: dict[str, Fact] = {
        "two holders": overlapped,
        "fences": _fences(scene),
        "refused": "; ".join(refused) or "nothing",
        "value": (await scene.resource.value(scene.key)).text,
    }
    happened = {
        "two held the lock" if two_holders else "one at a time held the lock": overlapped is two_holders
    }
    return await scene.judge(
        expected, facts=facts, shown=happened | (shown or {}), story=scene.name in _STORIES, but=but
    )


def _fences(scene: Scene) -> str:
    """The last fence of each."""
    granted = [(track.name, track.last("granted")) for track in scene.tracks]
    return ", ".join(f"{name} {event.details['fence']}" for name, event in granted if event is not None)


def _overlapped(scene: Scene) -> bool:
    """Was B granted the lock between A's last grant and A's last write?"""
    a, b = scene.tracks
    begins, ends = a.last("granted"), a.last("writing")
    if begins is None or ends is None:
        return False
    return any(event.name == "granted" and begins.at < event.at < ends.at for event in b.events)


def _answer(cases: Sequence[Case]) -> str:
    off = sum(case.observed == "violated" for case in cases)
    on = sum(case.name.endswith("fence on") and case.as_predicted for case in cases)
    return (
        f"No. {off} cases without a fence ended with two accepted writers; {on} cases with the fence on, the "
        "same faults among them, ended with no stale write accepted.\n\n"
        "The majority answers the question that it was invented for: nodes may fail. It does not answer the "
        "other one. Whoever has its majority and has checked the time left must still *use* the lock, and a "
        "pause between that check and the write is invisible to every node. On this both authors are right: "
        "the pause before the check was caught, as Sanfilippo says, because the client counts from before "
        "its first request; the pause after it was not, as Kleppmann says, and cannot be.\n\n"
        "The clock and the restart need no pause at all. Both holders were well, both leases were good by "
        "their own clocks, and one node had voted twice: once because its clock jumped, once because it "
        "forgot. A disk write before every answer, or staying away for a TTL after a crash, closes the "
        "second hole at its price; nothing in the algorithm closes the first. Where a node forgets its "
        "counter, fences can even run backwards: the resource then refuses the newer holder, which is safe, "
        "but stuck until the counters are lifted."
    )
