"""The same pause without a resource: the guard of a Postgres row or an S3 object refuses, or nobody does."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product

from harness.faults import frozen_process
from harness.lab import FENCES, Lab, Plan, Scene
from harness.lab.guarded_store import KINDS, Depth, Kind, guarded_worker, open_guarded_store
from harness.lab.outcome import NOT_SHOWN, Case, Fact
from harness.resource.process import Fence

STORED, REFUSED = "stale write stored", "stale write refused"

_DEPTH: Mapping[Fence, Depth] = {"off": "none", "on": "writes only"}
_WORK = 1.0  # there is time to read "sending" and to freeze the worker


def store_plans(lab: Lab, *, ttl: float, pause: float) -> Iterator[Plan]:
    """`KIND, guard off|on`: A is frozen when its write is about to leave, of an object after its HEAD."""
    for kind, guard in product(KINDS, FENCES):
        lab.plan(store=kind, freeze="SIGSTOP", guard=guard, ttl=ttl, pause=pause)
        name, expected = f"{kind}, guard {guard}", STORED if guard == "off" else REFUSED
        yield Plan(name, expected, partial(_case, lab, name, kind, _DEPTH[guard], expected, ttl, pause))


async def _case(
    lab: Lab, name: str, kind: Kind, depth: Depth, expected: str, ttl: float, pause: float
) -> Case:
    server, store = await lab.lock_server("redis"), await lab.store(kind)
    scene = lab.scene(name, ttl=ttl, expected=expected)
    scene.bodies.update(A="result of A", B="result of B")
    told = {"url": server.url, "kind": kind, "store": store, "depth": depth, "key": scene.key, "ttl": ttl}
    async with (
        scene.participant("A", guarded_worker, **told, body=scene.bodies["A"], work=_WORK) as a,
        scene.participant("B", guarded_worker, **told, body=scene.bodies["B"], work=0) as b,
    ):
        await scene.begin()
        a.track.paused = True
        a.go()
        await a.track.until("sending")
        frozen_at = scene.seconds()
        async with frozen_process(scene.journal, a.pid, who="A"):
            too_late = a.track.has("accepted")
            b.go()
            await b.track.until("accepted", "stale")
            await scene.until(frozen_at + pause)
        await a.track.until("accepted", "stale")
        await asyncio.gather(a.ended(), b.ended())
    async with open_guarded_store(kind, store, depth) as reader:
        value = (await reader.get(scene.key)).body
    return await _judged(scene, (value or b"").decode(), in_time=not too_late)


async def _judged(scene: Scene, value: str, *, in_time: bool) -> Case:
    """Told from what lies in the store, and what each worker was told."""
    a, b = (track.expect("granted").details["fence"] for track in scene.tracks)
    judged = await scene.judged(subtitle=f"in the store: {value}")
    stale = scene.track("A").last("stale")
    seen = None if stale is None else stale.details.get("seen")
    observed = REFUSED if stale is not None and value == scene.bodies["B"] else STORED
    shown = {
        "A was frozen before it wrote": in_time,
        "B's write was accepted": scene.track("B").has("accepted"),
        "A was told the fence that the store has seen": stale is None or seen == b,
    }
    missing = [sentence for sentence, true in shown.items() if not true]
    facts: dict[str, Fact] = {
        "fences": f"A {a}, B {b}",
        "A was told": "stored" if stale is None else f"refused: seen {seen}, got {a}",
        "value": value,
    }
    return Case(
        name=scene.name,
        expected=scene.expected,
        observed=NOT_SHOWN if missing else observed,
        facts=facts,
        findings=judged.findings,
        reason=f"did not happen: {'; '.join(missing)}" if missing else "",
        folder=scene.folder.name,
    )
