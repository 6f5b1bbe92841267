"""Experiment 1: a holder that is frozen for longer than its TTL, on every backend, fence off and on."""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from itertools import product

from harness.experiments.lab import BACKENDS, Lab, Plan, Scene, WorkerProcess
from harness.experiments.lab.resource_view import STALE_REJECTIONS
from harness.experiments.outcome import Case, Fact, Outcome
from harness.experiments.registry import experiment
from harness.faults import Link, Way, frozen_process, open_link, partition
from harness.report.timeline import Panel
from harness.resource.process import Fence

TTL = 2.0
PAUSE = 5.0
# Between grant and write, so that there is time to read "granted" and to freeze the worker.
WORK = 1.0
WORK_OF_B = 0.5

FENCES: tuple[Fence, ...] = ("off", "on")
FREEZES: Mapping[str, str] = {
    "SIGSTOP": "the whole process is stopped, its watchdog with it",
    "sleep": "the worker blocks itself, as in a garbage collector's pause; renewal off",
    "late packet": "the worker runs on, checks its lease and writes; the network delivers it late",
}


@experiment(
    number=1,
    name="pause-beyond-ttl",
    question="A worker holds the lock and is frozen for longer than the TTL before it writes. "
    "Does the lock keep a second writer out?",
    expectation="No, on no backend: with the fence off both workers' writes are accepted and the later "
    "holder's result is overwritten. With the fence on the resource answers 409 to the stale write and "
    "the value stays intact.",
)
async def run(lab: Lab) -> Outcome:
    panels: dict[Fence, Panel | None] = {}
    plans = []
    for backend, freeze in product(BACKENDS, FREEZES):
        if lab.quick and freeze != "SIGSTOP" and backend != "redis":
            continue
        for fence in FENCES:
            lab.plan(backend=backend, freeze=freeze, fence=fence, ttl=TTL, pause=PAUSE)
            plans.append(
                Plan(
                    f"{backend}, {freeze}, fence {fence}",
                    "violated" if fence == "off" else "ok",
                    partial(_duel, lab, backend, freeze, fence, panels),
                )
            )
    cases = await lab.cases(plans)
    lab.picture([panels.get("off"), panels.get("on")])
    rejections = await (await lab.resource("on")).counter(STALE_REJECTIONS)
    return Outcome(
        cases=cases,
        answer=_answer(cases, rejections),
        figures={STALE_REJECTIONS: rejections, "ttl_s": TTL, "pause_s": PAUSE},
    )


async def _duel(lab: Lab, backend: str, freeze: str, fence: Fence, panels: dict[Fence, Panel | None]) -> Case:
    """A takes the lock and is frozen; B waits its turn, writes and leaves; A wakes up and writes."""
    server = await lab.lock_server(backend)
    resource = await lab.resource(fence)
    scene = lab.scene(f"{backend}, {freeze}, fence {fence}", resource, ttl=TTL)
    async with contextlib.AsyncExitStack() as stack:
        link = await stack.enter_async_context(
            open_link(resource.url.removeprefix("http://"), name="A to resource")
        )
        flags: dict[str, dict[str, object]] = {
            "SIGSTOP": {"work": WORK},
            "sleep": {"pause": PAUSE, "renew": False},
            "late packet": {"work": WORK, "renew": False, "resource_url": f"http://{link.address}"},
        }
        a, b = await asyncio.gather(
            stack.enter_async_context(scene.worker("A", server.url, **flags[freeze])),
            stack.enter_async_context(scene.worker("B", server.url, work=WORK_OF_B)),
        )
        await scene.begin()
        a.track.paused = True
        a.go()
        granted = await a.track.until("granted")
        async with _fault(scene, freeze, a, link):
            b.go()
            await b.track.until("accepted", "stale")
            in_time = not a.track.has("resumed")
            await scene.until(granted.at / 1e9 + PAUSE)
        await a.track.until("accepted", "stale")
        await asyncio.gather(a.ended(), b.ended())
    showcase = backend == "redis" and freeze == "SIGSTOP"
    case = await _judged(scene, fence, in_time=in_time, story=showcase)
    if showcase:
        panels[fence] = scene.panel
    return case


def _fault(
    scene: Scene, freeze: str, worker: WorkerProcess, link: Link
) -> contextlib.AbstractAsyncContextManager[None]:
    """What keeps A's write from the resource for the length of the pause."""
    if freeze == "SIGSTOP":
        return frozen_process(scene.journal, worker.pid, who="A")
    if freeze == "late packet":
        return partition(scene.journal, [link], Way.TO_SERVER)
    return contextlib.nullcontext()  # it sleeps of its own accord


async def _judged(scene: Scene, fence: Fence, *, in_time: bool, story: bool) -> Case:
    assert scene.resource is not None
    value = await scene.resource.value(scene.key)
    decisions = await scene.decisions()
    refused = [decision for decision in decisions if decision.outcome == "stale"]
    first, second = (track.last("granted") for track in scene.tracks)
    assert first is not None
    assert second is not None
    a, b = first.details["fence"], second.details["fence"]
    facts: dict[str, Fact] = {
        "fences": f"A {a}, B {b}",
        "B granted after": f"{(second.at - first.at) / 1e9:.2f} s",
        "writers accepted": len({decision.owner for decision in decisions if decision.accepted}),
        "A was told": f"409 seen {refused[0].seen} got {refused[0].token}" if refused else "200",
        "value": value.text,
    }
    if fence == "off":
        shown = {
            "B wrote while A was frozen": in_time,
            "A overwrote B's result": value.text == scene.bodies["A"],
        }
    else:
        told = scene.tracks[0].last("stale")
        shown = {
            "B wrote while A was frozen": in_time,
            "A was told 409 with what the resource has seen": told is not None
            and told.details.get("seen") == b
            and told.details.get("fence") == a,
            "B's result is intact": value.text == scene.bodies["B"],
        }
    return await scene.judge("violated" if fence == "off" else "ok", facts=facts, shown=shown, story=story)


def _answer(cases: list[Case], rejections: float) -> str:
    ran = [case for case in cases if not case.skipped]
    backends = sorted({case.name.partition(",")[0] for case in ran})
    off = [case for case in ran if case.name.endswith("fence off")]
    on = [case for case in ran if case.name.endswith("fence on")]
    lost = sum(case.observed == "violated" for case in off)
    kept = sum(case.as_predicted for case in on)
    return (
        f"On {', '.join(backends)}: with the fence off, {lost} of {len(off)} cases ended with two accepted "
        "writers. A acquired, was frozen, and its lease ran out, as it must or a dead holder would block "
        "everybody for ever; B acquired and wrote; A woke up and overwrote B's result, of which B had been "
        "told 200. Nobody made an error and nothing was logged.\n\n"
        f"With the fence on, {kept} of {len(on)} cases kept B's result. The lock did nothing better than "
        "before: the resource did, because A's token was smaller than one that it had already seen. "
        f"`{STALE_REJECTIONS}` stands at {rejections:.0f}.\n\n"
        "The late packet shows that looking at the lease before the write is no way out: that worker was "
        "never frozen, believed rightly that it held the lock when it sent its write, and was overtaken "
        "while the write was on its way."
    )
