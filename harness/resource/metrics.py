"""What the resource counts, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from harness.resource.decision import Outcome

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """Labels are bound once, here: binding costs more than counting."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.stale = Counter(
            "resource_stale_token_rejections_total",
            "Operations refused because their fencing token runs backwards.",
            registry=registry,
        )
        writes = Counter(
            "resource_writes_total",
            "Writes by outcome: accepted, stale, conflict (expected another version), repeated (its "
            "reply was lost), invalid (malformed or too large), failed (the store did).",
            ["outcome"],
            registry=registry,
        )
        self.writes = {outcome: writes.labels(outcome.value) for outcome in Outcome}
        self.invalid_writes = writes.labels("invalid")
        self.failed_writes = writes.labels("failed")
        reads = Counter(
            "resource_reads_total", "Reads by outcome: found, missing, stale.", ["outcome"], registry=registry
        )
        self.found_reads = reads.labels("found")
        self.missing_reads = reads.labels("missing")
        self.stale_reads = reads.labels("stale")
        latency = Histogram(
            "resource_request_duration_seconds",
            "From the end of the request's headers to its decided, durable answer.",
            ["operation"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.write_seconds = latency.labels("write")
        self.read_seconds = latency.labels("read")

    def exposition(self) -> bytes:
        """The text format of Prometheus."""
        return generate_latest(self._registry)
