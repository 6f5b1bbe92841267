"""Experiment 1: a holder that is frozen for longer than its TTL, on every backend, fence off and on."""

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from itertools import product

from harness.experiments.pause_beyond_ttl.stores import REFUSED, STORED, store_plans
from harness.faults import Link, Way, frozen_process, open_link, partition
from harness.lab import FENCES, Lab, Scene
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, about, answer, count
from harness.lab.participant import Participant
from harness.lab.registry import experiment
from harness.lab.resource_view import STALE_REJECTIONS
from harness.servers.catalogue import SHARED

TTL = 2.0
PAUSE = 5.0
# Between grant and write, so that there is time to read "granted" and to freeze the worker.
WORK = 1.0
WORK_OF_B = 0.5

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
    "the value stays intact. Where there is no resource, the guard of a Postgres row or an S3 object "
    "refuses the stale write.",
)
async def run(lab: Lab) -> ExperimentResult:
    plans = []
    for backend, freeze, fence in product(SHARED, FREEZES, FENCES):
        if lab.quick and freeze != "SIGSTOP" and backend != "redis":
            continue
        lab.plan(backend=backend, freeze=freeze, fence=fence, ttl=TTL, pause=PAUSE)
        expected, play = "violated" if fence == "off" else "ok", partial(_duel, lab, backend, freeze)
        plans.append(lab.fenced(f"{backend}, {freeze}", fence, play, ttl=TTL, expected=expected))
    plans.extend(store_plans(lab, ttl=TTL, pause=PAUSE))
    cases = await lab.cases(plans)
    lab.picture("redis, SIGSTOP, fence off", "redis, SIGSTOP, fence on")
    rejections = await (await lab.resource("on")).counter(STALE_REJECTIONS)
    return ExperimentResult(
        cases=cases,
        answer=_answer(cases, rejections),
        figures={STALE_REJECTIONS: rejections, "ttl_s": TTL, "pause_s": PAUSE},
    )


async def _duel(lab: Lab, backend: str, freeze: str, scene: Scene) -> Case:
    """A takes the lock and is frozen; B waits its turn, writes and leaves; A wakes up and writes."""
    assert scene.resource is not None
    server = await lab.lock_server(backend)
    address = scene.resource.url.removeprefix("http://")
    async with open_link(address, name="A to resource") as link:
        jobs: dict[str, dict[str, object]] = {
            "SIGSTOP": {"work": WORK},
            "sleep": {"pause": PAUSE, "renew": False},
            "late packet": {"work": WORK, "renew": False, "resource_url": f"http://{link.address}"},
        }
        job_of_a, job_of_b = {"url": server.url, **jobs[freeze]}, {"url": server.url, "work": WORK_OF_B}
        async with scene.workers(A=job_of_a, B=job_of_b) as (a, b):
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
    return await _judged(scene, in_time=in_time)


def _fault(
    scene: Scene, freeze: str, worker: Participant, link: Link
) -> contextlib.AbstractAsyncContextManager[None]:
    """What keeps A's write from the resource for the length of the pause."""
    if freeze == "SIGSTOP":
        return frozen_process(scene.journal, worker.pid, who="A")
    if freeze == "late packet":
        return partition(scene.journal, [link], Way.TO_SERVER)
    return contextlib.nullcontext()  # it sleeps of its own accord


async def _judged(scene: Scene, *, in_time: bool) -> Case:
    decisions, refused, value = await scene.decisions(), await scene.refusals(), await scene.value()
    first, second = (track.expect("granted") for track in scene.tracks)
    a, b = first.details["fence"], second.details["fence"]
    facts: dict[str, Fact] = {
        "fences": f"A {a}, B {b}",
        "B granted after": f"{(second.at - first.at) / 1e9:.2f} s",
        "writers accepted": len({decision.owner for decision in decisions if decision.accepted}),
        "A was told": refused[0] if refused else "200",
        "value": value,
    }
    shown = {"B wrote while A was frozen": in_time}
    if scene.expected == "violated":
        shown["A overwrote B's result"] = value == scene.bodies["A"]
    else:
        told = scene.track("A").last("stale")
        seen = None if told is None else (told.details.get("seen"), told.details.get("fence"))
        shown["A was told 409 with what the resource has seen"] = seen == (b, a)
        shown["B's result is intact"] = value == scene.bodies["B"]
    return await scene.judge(facts=facts, shown=shown, story=scene.name.startswith("redis, SIGSTOP"))


def _answer(cases: list[Case], rejections: float) -> str:
    ran = [case for case in cases if not case.skipped]
    off, on = about(ran, "fence off"), about(ran, "fence on")
    bare, guarded = about(ran, "guard off"), about(ran, "guard on")
    backends = sorted({case.name.partition(",")[0] for case in off + on})
    return answer(
        f"On {', '.join(backends) or 'no backend'}: with the fence off, {count(off, 'violated')} cases ended "
        f"with two accepted writers; with the fence on, {count(on, 'ok')} kept B's result. "
        f"`{STALE_REJECTIONS}` stands at {rejections:.0f}. On a Postgres row and an S3 object, with no "
        f"resource between: {count(bare, STORED)} stale writes were stored without the guard, and "
        f"{count(guarded, REFUSED)} refused with it.",
        Conclusion(
            "No, the lock does not keep it out. A acquired, was frozen, and its lease ran out, as it must "
            "or a dead holder would block everybody for ever; B acquired and wrote; A woke up and "
            "overwrote B's result, of which B had been told 200. Nobody made an error and nothing was "
            "logged.",
            off,
        ),
        Conclusion(
            "With the fence on the lock did nothing better than before: the resource did, because A's token "
            "was smaller than one that it had already seen.",
            on,
        ),
        Conclusion(
            "The late packet shows that looking at the lease before the write is no way out: that worker was "
            "never frozen, believed rightly that it held the lock when it sent its write, and was overtaken "
            "while the write was on its way.",
            about(off, "late packet"),
        ),
        Conclusion(
            "The guards need no service between: the row's transaction and the condition of the object's PUT "
            "refused A's write, of the object although A had read the mark before it was frozen.",
            guarded,
        ),
    )
