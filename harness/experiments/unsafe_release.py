"""Experiment 3: releasing by GET and DEL, forced into its race, and by one script at the same moment."""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import product

from redis.asyncio import Redis

from asyncdlock import Handle
from harness.lab import FENCES, Actor, Lab, Scene
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, about, answer
from harness.lab.registry import experiment
from harness.lab.verdict import HOLDERS
from harness.resource.process import Fence

LONG = 30.0
RELEASES = ("GET then DEL", "one script")


@experiment(
    number=3,
    name="unsafe-release",
    question="A looks whether the lock is still its own and then deletes it. In between its lease runs out "
    "and B acquires. Whose lock is deleted?",
    expectation="B's, when looking and deleting are two commands: C gets in while B works, and without a "
    "fence both write. When they are one script, nobody's: the release is refused and C waits for B.",
)
async def run(lab: Lab) -> ExperimentResult:
    ttl = round(lab.rng.uniform(0.5, 0.9), 3)
    plans = []
    for release, fence in product(RELEASES, FENCES):
        lab.plan(release=release, fence=fence, ttl=ttl)
        expected = "violated" if (release, fence) == ("GET then DEL", "off") else "ok"
        play = partial(_case, lab, release, fence)
        plans.append(lab.fenced(release, fence, play, ttl=ttl, expected=expected))
    cases = await lab.cases(plans)
    lab.picture("GET then DEL, fence off", "one script, fence off")
    return ExperimentResult(cases=cases, answer=conclude(cases), figures={"ttl_s": ttl})


async def _case(lab: Lab, release: str, fence: Fence, scene: Scene) -> Case:
    server = await lab.lock_server("redis")
    async with (
        scene.actor("A", server.url) as a,
        scene.actor("B", server.url) as b,
        scene.actor("C", server.url) as c,
        Redis.from_url(server.url, decode_responses=True) as redis,
    ):
        await scene.begin()
        mine = await a.acquire(ttl=scene.ttl)
        looks_owned = await redis.get(scene.key) == mine.owner
        a.say("looking", owned=looks_owned)
        theirs = await b.acquire(ttl=LONG)  # returns when A's lease has run out
        if release == "GET then DEL":
            await redis.delete(scene.key)
            a.say("deleting")
        else:
            await a.release()
        survives = await redis.get(scene.key) == theirs.owner
        early = await c.try_acquire(ttl=LONG)
        await _write_all(b, c, early)
    unsafe = release == "GET then DEL"
    refused = await scene.refusals()
    facts: dict[str, Fact] = {
        "A saw its own lock": looks_owned,
        "B's lock survived": survives,
        "C got in while B held": early is not None,
        "B was told": refused[0] if refused else "200",
        "value": await scene.value(),
    }
    shown = {
        "A saw its own lock before it deleted": looks_owned,
        "B's lock was deleted" if unsafe else "B's lock was left alone": survives is not unsafe,
        "C got in" if unsafe else "C had to wait": (early is not None) is unsafe,
        "the resource refused B" if unsafe and fence == "on" else "nothing was refused": bool(refused)
        is (unsafe and fence == "on"),
    }
    but = (HOLDERS,) if unsafe else ()
    return await scene.judge(facts=facts, shown=shown, story=fence == "off", but=but)


async def _write_all(b: Actor, c: Actor, early: Handle | None) -> None:
    """C writes at once if it got in; B, which noticed nothing, writes later; else C comes after B."""
    if early is not None:
        await c.finish("result of C")
        await b.finish("result of B")
        return
    waiting = asyncio.create_task(c.acquire(ttl=LONG))
    await b.finish("result of B")
    await waiting
    await c.finish("result of C")


def conclude(cases: Sequence[Case]) -> str:
    ran = [case for case in cases if not case.skipped]
    deleted = [case.name for case in ran if case.facts.get("B's lock survived") is False]
    return answer(
        f"B's lock was deleted in {len(deleted)} of {len(ran)} cases"
        + (f": {'; '.join(deleted)}." if deleted else "."),
        Conclusion(
            "With GET and DEL, B's. Between A's look, which was right, and A's delete, which was not, "
            "the lease ran out and the key became B's; DEL does not ask whose it is. C then acquired a "
            "lock that B still held, and neither was ever frozen: one impatient release breaks exclusion "
            "for two innocent workers. Without a fence B overwrote C's result; with it the resource "
            "refused B.",
            about(cases, RELEASES[0]),
        ),
        Conclusion(
            "With one script, nobody's. Redis runs nothing between the comparison and the delete, so the "
            "same release at the same moment found another owner, returned `False` and was counted as a "
            "release by a non-owner. B kept its lock, and C waited for it.",
            about(cases, RELEASES[1]),
        ),
    )
