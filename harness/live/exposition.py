"""/metrics over several processes: members export what they counted, the parent serves the sum."""

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric

Exported = list[list[Any]]


def export(registry: CollectorRegistry = REGISTRY, prefix: str = "asyncdlock_") -> Exported:
    """The families whose name begins with `prefix`, as JSON-safe data."""
    return [
        [
            family.name,
            family.documentation,
            family.type,
            [[s.name, s.labels, s.value] for s in family.samples],
        ]
        for family in registry.collect()
        if family.name.startswith(prefix)
    ]


def merge(parts: Iterable[Exported]) -> Iterator[Metric]:
    """Several processes' exports as families again, samples of equal name and labels added up."""
    families: dict[str, Metric] = {}
    totals: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
    for part in parts:
        for name, documentation, kind, samples in part:
            families.setdefault(name, Metric(name, documentation, kind))
            for sample, labels, value in samples:
                place = (name, sample, tuple(labels.items()))
                totals[place] = totals.get(place, 0.0) + value
    for (name, sample, labels), value in totals.items():
        families[name].add_sample(sample, dict(labels), value)
    yield from families.values()
