"""Kleppmann's example: the holder of token 33 wakes up after the holder of 34 has written."""

import asyncio
from collections.abc import Sequence

from harness.experiments.fence_depth.schedules import older_writes_first, open_set_scene, younger_writes_first
from harness.lab import Lab
from harness.lab.shared_set import Mode
from harness.repro.finding import Figure, Finding
from harness.repro.registry import reproduction

TTL = 1.0
TRIALS, QUICK_TRIALS = 50, 10


@reproduction(
    name="kleppmann-33-34",
    about="A holder pauses for longer than its lease; the next one writes; the first one writes too.",
    published="with fencing tokens the storage refuses 33 after 34; without them the first holder "
    "overwrites the second's work",
    source="M. Kleppmann, How to do distributed locking, 2016",
    claim="As he says; and to fence writes alone is not enough once holders read before they write.",
)
async def run(lab: Lab) -> Finding:
    trials = QUICK_TRIALS if lab.quick else TRIALS
    lab.plan(trials=trials, ttl=TTL)
    without, fenced = await asyncio.gather(
        _play(lab, "none", trials, younger_first=True), _play(lab, "writes only", trials, younger_first=True)
    )
    writes_only, every = await asyncio.gather(
        _play(lab, "writes only", trials, younger_first=False),
        _play(lab, "every operation", trials, younger_first=False),
    )
    return Finding(
        figures=[
            _figure("34 writes, then 33; no fence", without, expected=trials),
            _figure("34 writes, then 33; fence", fenced, expected=0),
            _figure("both read, 33 writes, then 34; writes fenced", writes_only, expected=trials),
            _figure("both read, 33 writes, then 34; reads fenced too", every, expected=0),
        ],
        differs=[
            "His is a drawing; ours are real leases of a real Redis, and a resource in its own process.",
            "The first holder does not stand still, it waits: what keeps it makes no difference to the "
            "resource (experiments pause-beyond-ttl and renewal-window freeze real processes).",
            "His client writes a file that it has read; he does not say whether the read carries the token. "
            "The last two lines show that it must.",
        ],
    )


async def _play(lab: Lab, mode: Mode, trials: int, *, younger_first: bool) -> Sequence[bool]:
    """Of each trial: whether an acknowledged update was lost."""
    order, play = ("younger", younger_writes_first) if younger_first else ("older", older_writes_first)

    async def trial(number: int) -> bool:
        async with open_set_scene(lab, f"{mode}, {order} first, {number}", mode, ttl=TTL) as stage:
            await play(stage)
            return bool(await stage.lost())

    return await asyncio.gather(*(trial(number) for number in range(trials)))


def _figure(name: str, losses: Sequence[bool], *, expected: int) -> Figure:
    return Figure(
        name=name,
        events=sum(losses),
        trials=len(losses),
        what="times an acknowledged update was lost",
        holds=sum(losses) == expected,
    )
