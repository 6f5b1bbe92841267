"""`python -m harness simulate`: what a lock would do under a load that no machine here could make."""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from harness import exits
from harness.cli.flags import flag, patience, positive_int, positive_rate, whole_number
from harness.config import UsageError
from harness.durations import format_duration, parse_duration, parse_positive_duration
from harness.report.charts import Series, lines
from harness.simulate.model import Settings, Simulated, simulate
from harness.simulate.parameters import DEFAULTS, DISCIPLINES, Parameters, always
from harness.simulate.validation import TOLERANCE, compare, parameters_of

_SWEPT = {
    "hosts": positive_int,
    "rate": positive_rate,
    "keys": positive_int,
    "rtt": parse_duration,
    "block": positive_int,
}

# Those who wait are kept, about a kilobyte each, and an arrival takes some 20 µs.
_MOST_ARRIVALS = 10_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = Settings()
    load = parser.add_argument_group("load")
    flag(
        load,
        "--hosts",
        positive_int,
        "machines that the contenders run on",
        default=default.hosts,
        metavar="N",
    )
    flag(
        load,
        "--contenders",
        positive_int,
        "at most this many at once, over all hosts (default: all)",
        metavar="N",
    )
    flag(load, "--rate", positive_rate, "arrivals per second", default=default.rate, metavar="R")
    flag(load, "--duration", parse_positive_duration, "how long they keep coming", default=1.0, metavar="D")
    flag(load, "--keys", positive_int, "locks that they spread over", default=default.keys, metavar="K")
    load.add_argument("--arrivals", choices=("constant", "poisson"), default=default.arrivals)
    flag(load, "--timeout", patience, "when a waiting arrival gives up (default none)", metavar="D|none")
    flag(load, "--seed", whole_number, "repeats the same outcome", default=default.seed, metavar="S")
    lock = parser.add_argument_group("lock, network and server")
    lock.add_argument(
        "--discipline",
        choices=DISCIPLINES,
        default=default.discipline,
        help="a queue on the server (redis-queue, etcd), the same with hand-off within a host, or polling",
    )
    flag(
        lock,
        "--block",
        positive_int,
        "local hand-offs in a row (default %(default)s)",
        default=default.block,
        metavar="N",
    )
    flag(
        lock,
        "--rtt",
        parse_duration,
        "the network's round trip, added to the costs",
        default=0.0,
        metavar="D",
    )
    flag(lock, "--hold", parse_duration, "from grant to release (default 300us)", metavar="D")
    flag(
        lock,
        "--service",
        parse_positive_duration,
        "how long a request occupies the server's thread (default 8us)",
        default=DEFAULTS.service,
        metavar="D",
    )
    source = "take the costs from a measured run"
    lock.add_argument("--from", dest="source", type=Path, metavar="RUN", help=source)
    result = parser.add_argument_group("result")
    result.add_argument(
        "--against",
        type=Path,
        metavar="RUN",
        help=f"predict this measured run instead; exit code 4 if they are more than {TOLERANCE:.0%}% apart",
    )
    flag(result, "--sweep", sweep, "several points: hosts=1,10,100 or rtt=0,1ms,50ms", metavar="NAME=V,…")
    result.add_argument("--svg", type=Path, metavar="FILE", help="draw the sweep")
    result.add_argument("--json", action="store_true", help="print JSON")


def sweep(text: str) -> tuple[str, tuple[float, ...]]:
    """:raises ValueError: it names nothing that can vary, or a value that is none."""
    name, _, values = text.partition("=")
    if name not in _SWEPT or not values:
        raise ValueError(f"{text!r} is not a sweep: write one of {', '.join(_SWEPT)}, as in hosts=1,10,100")
    return name, tuple(_SWEPT[name](value) for value in values.split(","))


def run(args: argparse.Namespace) -> int:
    """Simulate and print. The exit code is 4 when `--against` finds the model wrong.

    :raises UsageError: flags that do not fit together, or a run that cannot be measured from.
    """
    if args.svg is not None and args.sweep is None:
        raise UsageError("--svg draws a sweep: say what varies, as in --sweep hosts=1,10,100")
    if args.svg is not None:
        try:
            args.svg.open("a").close()
        except OSError as error:
            raise UsageError(f"--svg {str(args.svg)!r} cannot be written: {error.strerror}") from None
    costs = DEFAULTS if args.source is None else parameters_of(args.source, args.service)
    costs = replace(costs, service=args.service)
    if args.hold is not None:
        costs = replace(costs, hold=always(args.hold))
    if args.against is not None:
        return _validate(args, costs)
    settings = Settings(**{name: getattr(args, name) for name in Settings.__dataclass_fields__})
    name, values = args.sweep or ("", ())
    arrivals = settings.duration * (max(values) if name == "rate" else settings.rate)
    if arrivals > _MOST_ARRIVALS:
        raise UsageError(
            f"{arrivals:,.0f} arrivals are more than can be simulated here, at most {_MOST_ARRIVALS:,}: "
            "choose a shorter --duration or a lower --rate"
        )
    if args.sweep is None:
        outcome = simulate(settings, costs)
        print(json.dumps(_figures(outcome), indent=2) if args.json else _words(settings, outcome))
        return exits.OK
    points = [(value, simulate(replace(settings, **{name: value}), costs)) for value in values]
    if args.json:
        print(json.dumps([{name: value, **_figures(outcome)} for value, outcome in points], indent=2))
    else:
        _table(name, points)
    if args.svg is not None:
        args.svg.write_text(_chart(name, points))
    return exits.OK


def _validate(args: argparse.Namespace, costs: Parameters) -> int:
    compared = compare(args.against, costs)
    if args.json:
        print(json.dumps([asdict(figure) for figure in compared], indent=2))
    else:
        for figure in compared:
            pair = f"measured {figure.measured:,.3f} {figure.unit}, simulated {figure.simulated:,.3f}"
            print(f"{figure.name:22} {pair}: {figure.apart:.0%} apart")
    decisive = [figure for figure in compared if not figure.name.endswith("p50")]
    return exits.OK if all(figure.agrees for figure in decisive) else exits.THRESHOLD


def _figures(outcome: Simulated) -> dict[str, float]:
    return {
        "offered": outcome.offered,
        "acquired": outcome.acquired,
        "gave_up": outcome.gave_up,
        "throughput_per_s": round(outcome.throughput, 3),
        "wait_p50_ms": round(outcome.wait(50) * 1e3, 6),
        "wait_p99_ms": round(outcome.wait(99) * 1e3, 6),
        "server_busy": round(outcome.server, 6),
        "requests": outcome.requests,
        "waiting_at_most": outcome.queue,
    }


def _words(settings: Settings, outcome: Simulated) -> str:
    return (
        f"{outcome.offered:,} arrivals from {settings.hosts:,} hosts: {outcome.acquired:,} acquired, "
        f"{outcome.gave_up:,} gave up, {outcome.throughput:,.0f}/s while they came\n"
        f"wait p50 {format_duration(outcome.wait(50))}, p99 {format_duration(outcome.wait(99))}; at most "
        f"{outcome.queue:,} waited; the server's thread was busy {outcome.server:.0%} of the time, with "
        f"{outcome.requests / max(outcome.acquired, 1):.2f} requests per acquire"
    )


def _table(name: str, points: list[tuple[float, Simulated]]) -> None:
    print(f"{name:>10} {'throughput/s':>14} {'wait p50':>10} {'wait p99':>10} {'server':>7} {'gave up':>9}")
    for value, outcome in points:
        shown = format_duration(value) if name == "rtt" else f"{value:g}"
        p50, p99 = format_duration(outcome.wait(50)), format_duration(outcome.wait(99))
        print(
            f"{shown:>10} {outcome.throughput:>14,.0f} {p50:>10} {p99:>10} {outcome.server:>7.0%} "
            f"{outcome.gave_up:>9,}"
        )


def _chart(name: str, points: list[tuple[float, Simulated]]) -> str:
    positive = all(value > 0 for value, _ in points)
    return lines(
        f"Simulated throughput by {name}",
        [Series("locked sections", [(value, outcome.throughput) for value, outcome in points])],
        x_label=f"{name}, seconds" if name == "rtt" else name,
        y_label="per second",
        log_x=positive,
    )
