"""Experiment 2: Redlock on five nodes against pauses, partitions, clocks and forgetful nodes.

The cases are those of the public argument between Martin Kleppmann ("How to do distributed locking",
2016) and Salvatore Sanfilippo ("Is Redlock safe?", 2016). Who can reach which node is decided by a
link of its own between every client and every node: A reaches three, B three, and they share one.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from harness.experiments.redlock_partition import schedules
from harness.experiments.redlock_partition.stage import LONG, NODES, Sides, jump, restart
from harness.lab import FENCES, Lab, Plan
from harness.lab.outcome import Case, Conclusion, ExperimentResult, about, answer, count
from harness.lab.registry import experiment
from harness.resource.process import Fence

TTL = 2.0


@experiment(
    number=2,
    name="redlock-partition",
    question="Does asking a majority of five independent nodes keep a second writer out, when a client is "
    "frozen, the network is split, a clock jumps, or a node restarts empty?",
    expectation="No. A pause after the validity check, a clock that jumps and a node that forgets each "
    "admit two holders, and without a fence both write. A pause before the check is caught; disks and "
    "late restarts help against forgetting. With the fence on no stale write is accepted in any case.",
)
async def run(lab: Lab) -> ExperimentResult:
    sides = Sides(tuple(lab.rng.sample(range(NODES), NODES)))
    frozen = lab.rng.randrange(NODES)
    lab.plan(reached_by_a=sides.order[:3], reached_by_b=sides.order[2:], frozen_node=frozen)
    plans: list[Plan] = []

    def add(
        name: str, fence: Fence, play: Callable[..., Awaitable[Case]], ttl: float = LONG, expected: str = "ok"
    ) -> None:
        plans.append(lab.fenced(name, fence, partial(play, lab), ttl=ttl, expected=expected))

    for fence in FENCES:
        verdict = "violated" if fence == "off" else "ok"
        split = partial(schedules.frozen_client, sides, None)
        one_frozen = partial(schedules.frozen_client, None, frozen)
        add("partition, A frozen after the check", fence, split, TTL, verdict)
        add("node frozen, A frozen after the check", fence, one_frozen, TTL, verdict)
        add("clock of a node jumps", fence, partial(schedules.lost_vote, sides, jump), expected=verdict)
        add("node restarts empty", fence, partial(schedules.lost_vote, sides, restart), expected=verdict)
    add("A frozen before the check", "off", schedules.frozen_before_check, schedules.PATIENT_TTL)
    add("node restarts with its data", "off", partial(schedules.kept_vote, sides))
    add("node restarts empty after a TTL", "off", partial(schedules.late_restart, sides), schedules.LATE_TTL)
    add("node forgets a high counter", "on", partial(schedules.forgotten_counter, sides))
    cases = await lab.cases(plans)
    lab.picture(*(f"clock of a node jumps, fence {fence}" for fence in FENCES))
    figures = {"nodes": NODES, "ttl_s": TTL, "pause_s": schedules.PAUSE}
    return ExperimentResult(cases=cases, answer=conclude(cases), figures=figures)


def conclude(cases: Sequence[Case]) -> str:
    off, on = about(cases, "fence off"), about(cases, "fence on")
    to_fail = [case for case in off if case.expected == "violated"]
    in_short = ""
    if any(case.observed == "violated" for case in off):
        in_short = "No. "
    elif to_fail and all(case.observed == "ok" for case in to_fail):
        in_short = "In these runs it did. "
    return answer(
        f"{in_short}{count(to_fail, 'violated')} cases in which the lock was to fail ended, without a fence, "
        f"with two accepted writers; {count(on, 'ok')} cases with the fence on, the same faults among them, "
        "ended with no stale write accepted.",
        Conclusion(
            "The majority answers the question that it was invented for: nodes may fail. It does not "
            "answer the other one. Whoever has its majority and has checked the time left must still *use* "
            "the lock, and a pause between that check and the write is invisible to every node. On this "
            "both authors are right: the pause before the check was caught, as Sanfilippo says, because "
            "the client counts from before its first request; the pause after it was not, as Kleppmann "
            "says, and cannot be.",
            about(cases, "partition", "node frozen", "A frozen"),
        ),
        Conclusion(
            "The clock and the restart need no pause at all. Both holders were well, both leases were good "
            "by their own clocks, and one node had voted twice: once because its clock jumped, once "
            "because it forgot. A disk write before every answer, or staying away for a TTL after a crash, "
            "closes the second hole at its price; nothing in the algorithm closes the first.",
            about(cases, "clock", "node restarts"),
        ),
        Conclusion(
            "Where a node forgets its counter, fences can even run backwards: the resource then refused the "
            "newer holder, which is safe, but stuck until the counters are lifted.",
            about(cases, "node forgets"),
        ),
    )
