"""The commands of `python -m harness`: what each is for, where it lives, and examples."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """Where a sub-command lives, and what it is for."""

    module: str
    summary: str
    examples: Sequence[str] = ()


MAIN = Command(
    "harness.cli.run",
    "Drives asyncdlock under contention and judges it from recorded history: a real lock server, a fenced "
    "resource in its own process, arrivals that do not wait for one another, and a verdict.",
    (
        "python -m harness --contenders 1000 --rate 500",
        "python -m harness --backend redis-queue --rate 2000 --duration 30s",
        "python -m harness --fence off --ttl 1s --pause 3s     # two writers, exit code 1",
        "python -m harness --fence on  --ttl 1s --pause 3s     # the same load, made safe by the resource",
        "python -m harness --url redis://127.0.0.1:6379/0 --keys 100000 --key-distribution zipf",
        "python -m harness --backend redis-queue --fault kill:server@5s+1s --fault partition@10s+2s",
        "python -m harness --stages 200/5s,1000/5s,5000/5s",
        "python -m harness --fleet local:4 --backend redis-queue --rate 2000",
        "python -m harness --scenario nightly.toml --out runs/nightly",
        "python -m harness --threshold 'acquire.p99<50ms' --threshold 'failed==0' --quiet",
    ),
)
COMMANDS: Mapping[str, Command] = {
    "experiment": Command(
        "harness.cli.experiment",
        "Runs a prepared experiment and judges what it predicts.",
        (
            "python -m harness experiment list",
            "python -m harness experiment pause-beyond-ttl --quick",
            "python -m harness experiment storm --runs 20",
        ),
    ),
    "report": Command(
        "harness.cli.report",
        "Prints a finished run again.",
        ("python -m harness report latest --open", "python -m harness report runs/nightly --perfetto"),
    ),
    "check": Command(
        "harness.cli.check",
        "Judges the recorded history of a run again.",
        ("python -m harness check runs/nightly", "python -m harness check history.jsonl.gz --json"),
    ),
    "compare": Command(
        "harness.cli.compare",
        "Compares two runs, or two sets of runs: what differs, what does not, and where it cannot tell.",
        ("python -m harness compare runs/before runs/after", "python -m harness compare a1,a2,a3 b1,b2,b3"),
    ),
    "merge": Command(
        "harness.cli.merge",
        "Joins the shares that several generators made into one run, and judges it.",
        ("python -m harness merge runs/share-1 runs/share-2 runs/share-3",),
    ),
    "simulate": Command(
        "harness.cli.simulate",
        "A deterministic model of queue, hand-off and the server's thread, for loads beyond these machines.",
        (
            "python -m harness simulate --hosts 1000 --rtt 1ms --rate 1e6 --keys 100000",
            "python -m harness simulate --from runs/measured --sweep rtt=0,1ms,10ms,80ms --rate 5000",
            "python -m harness simulate --from runs/one --against runs/another     # is the model right?",
        ),
    ),
    "torture": Command(
        "harness.cli.torture",
        "Load, faults and administrators' accidents at once, round after round; then examines everything.",
        (
            "python -m harness torture --backend redis-queue --minutes 10 --seed 7",
            "python -m harness torture --backend all --minutes 60",
            "python -m harness torture --backend etcd --rounds 1 --seed 12     # one round again",
            "python -m harness torture --backend redis --rounds 5 --fence off  # it can fail: exit code 1",
        ),
    ),
    "advise": Command(
        "harness.cli.advise",
        "Measures the pauses of this host, and says what each TTL would mean here.",
        ("python -m harness advise --measure 60s", "python -m harness advise --measure 1h --hold 30s --json"),
    ),
    "worker": Command(
        "harness.cli.worker",
        "One worker process: acquires the lock, pauses, works, writes with its fence, releases.",
        ("python -m harness worker --url redis://127.0.0.1:6379/0 --key job --ttl 2s --pause 5s",),
    ),
    "resource": Command(
        "harness.cli.resource",
        "The fenced resource: refuses writes whose fencing token runs backwards.",
        ("python -m harness resource --listen 127.0.0.1:8080 --store sqlite:resource.db",),
    ),
    "lower-mark": Command(
        "harness.cli.lower_mark",
        "Lowers a mark of the resource that a made-up token has raised.",
        ("python -m harness lower-mark account:42 --to 35 --store sqlite:resource.db",),
    ),
    "servers": Command(
        "harness.cli.servers",
        "Starts real lock servers on free ports, without Docker.",
        ("python -m harness servers up redis", "python -m harness servers up etcd postgres"),
    ),
    "gen": Command(
        "harness.cli.gen",
        "Fills a lock server with many keys, the same ones for the same seed.",
        (
            "python -m harness gen --keys 1000000 --ttl 60s",
            "python -m harness gen --url redis://127.0.0.1:6379/0 --keys 10000 --seed 7",
        ),
    ),
    "repro": Command(
        "harness.cli.repro",
        "Measures published figures again: theirs, ours, and what differs.",
        ("python -m harness repro list", "python -m harness repro all --quick"),
    ),
}
