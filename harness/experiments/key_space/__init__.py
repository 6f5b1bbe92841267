"""Experiment 7: ten million short-lived locks, and what they leave behind."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from harness.experiments.key_space.etcd import leases_and_file
from harness.experiments.key_space.figures import MIB, EtcdFigures, KeySpace, RedisFigures
from harness.experiments.key_space.redis import active, lazy
from harness.lab import Lab, Plan
from harness.lab.outcome import Case, Conclusion, ExperimentResult, about, answer
from harness.lab.registry import experiment


@experiment(
    number=7,
    name="key-space",
    question="One lock per account, ten million accounts: what does it cost, and what stays behind?",
    expectation="The locks go by themselves, late: expired keys stay in used_memory until the server gets "
    "round to them, and with active expiry off until somebody touches them. A live lock stays usable "
    "meanwhile. The fence counters stay for ever. In etcd the leases go, the file stays large until it is "
    "defragmented.",
)
async def run(lab: Lab) -> ExperimentResult:
    keys, ttl = (100_000, 3.0) if lab.quick else (10_000_000, 100.0)
    leases, revisions = (2_000, 4_000) if lab.quick else (20_000, 40_000)
    lab.plan(keys=keys, ttl=ttl, leases=leases, revisions=revisions, seed=lab.seed)
    figures = KeySpace(keys, ttl)
    cases = await _cases(lab, "active expiry", partial(active, lab, keys, ttl, figures))
    cases += await _cases(lab, "lazy expiry", partial(lazy, lab, min(keys // 5, 200_000), figures))
    cases += await _cases(lab, "etcd", partial(leases_and_file, lab, leases, revisions, figures))
    return ExperimentResult(cases=cases, answer=conclude(cases, figures), figures=figures.to_json())


async def _cases(lab: Lab, name: str, measure: Callable[[], Awaitable[list[Case]]]) -> list[Case]:
    """Several cases that one measurement gives; only one, that says why, when it cannot be made."""
    found: list[Case] = []

    async def attempt() -> Case:
        found[:] = await measure()
        return found[0]

    first = (await lab.cases([Plan(name, "", attempt)]))[0]
    return found or [first]


def conclude(cases: Sequence[Case], figures: KeySpace) -> str:
    still_there = 0 if figures.lazy is None else figures.lazy.still_there
    return answer(
        "" if figures.redis is None else _of_redis(figures.keys, figures.redis),
        Conclusion(
            "Experiment 11 measures what helps against the counters that stay.",
            about(cases, "fence counters"),
        ),
        Conclusion(
            f"With active expiry off, all {still_there:,} expired locks "
            "stayed in memory, and asking for them was what removed them: Redis expires a key when "
            "somebody touches it (lazy) or when its sampling meets it (active).",
            about(cases, "lazy expiry"),
        ),
        "" if figures.etcd is None else _of_etcd(figures.etcd),
        Conclusion(
            "Compaction frees revisions inside the file; defragmentation gives them back.",
            about(cases, "etcd file"),
        ),
    )


def _of_redis(keys: int, figures: RedisFigures) -> str:
    late = figures.last_expired_late_s
    expired = (
        "Some were still there when the watch ended. "
        if late is None
        else f"The last expired one went {late:.1f} s late; at most {figures.overdue_max:,} were overdue "
        "at once, in `used_memory` and of no use. "
    )
    return (
        f"{keys:,} locks with their fence counters went in at {figures.fill_per_s:,} per "
        f"second ({figures.share_of_limit:.0%} of what the server takes of ready-made commands) and "
        f"took {figures.bytes_per_lock_and_fence:.0f} bytes each, "
        f"{figures.used_memory_full / MIB:,.0f} MiB in all. {expired}"
        f"{figures.keys_left:,} fence counters stayed, {figures.bytes_left / MIB:,.0f} MiB that no TTL "
        f"will ever free. A live lock failed {figures.live_failures} times meanwhile."
    )


def _of_etcd(etcd: EtcdFigures) -> str:
    compacted, defragmented = etcd.sizes["compacted"], etcd.sizes["defragmented"]
    return (
        f"etcd made {etcd.locks_per_s:,.0f} leases with a key per second; a revision took "
        f"{etcd.bytes_per_revision:.0f} bytes. Its file had {compacted.file / MIB:.1f} MiB "
        f"after compaction and {defragmented.file / MIB:.1f} MiB after defragmentation."
    )
