"""The flags of a run, and the types that read what a person typed."""

import argparse
from collections.abc import Callable
from typing import TypeVar

from harness.config import MAX_RATE, RunConfig, UsageError, in_stages
from harness.durations import parse_duration, parse_positive_duration
from harness.judge.thresholds import Threshold
from harness.load.kinds import Kind

T = TypeVar("T")

UNLIMITED = "none"
MAX_CONTENDERS = 1_000_000


def typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse print the message of a `ValueError` instead of "invalid value"."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def flag(
    parser: argparse._ActionsContainer, name: str, parse: Callable[[str], object], about: str, **more: object
) -> None:
    """One flag whose value is read by `parse`, which says in a sentence what is wrong with it."""
    parser.add_argument(name, type=typed(parse), help=about, **more)  # type: ignore[arg-type]


def positive_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise ValueError(f"{text!r} must be at least 1")
    return value


def fleet_size(text: str) -> int:
    value = positive_int(text)
    if value > MAX_CONTENDERS:
        raise ValueError(
            f"{text!r} must be at most {MAX_CONTENDERS}: each takes some 15 kB while it waits; "
            "a higher --rate makes more load, not more contenders"
        )
    return value


def positive_rate(text: str) -> float:
    try:
        value = float(text.removesuffix("/s"))
    except ValueError:
        raise ValueError(f"{text!r} is not a rate: write a number of arrivals per second") from None
    if not 0 < value <= MAX_RATE:
        raise ValueError(f"{text!r} must be more than 0 and at most 1000000 arrivals per second")
    return value


def port_number(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise ValueError(f"{text!r} is not a port: write a number up to 65535, or 0 for a free one")
    return int(text)


def on_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError(f"{text!r} is neither on nor off")
    return text == "on"


def patience(text: str) -> float | None:
    return None if text == UNLIMITED else parse_positive_duration(text)


def key_distribution(text: str) -> str:
    kind, _, exponent = text.partition(":")
    if kind == "uniform" and not exponent:
        return text
    try:
        if kind == "zipf" and (not exponent or float(exponent) > 0):
            return text
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a key distribution: write uniform, zipf, or zipf:1.2")


def lock_kind(text: str) -> str:
    Kind.parse(text)
    return text


def option(text: str) -> str:
    name, equals, _ = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not an option: write NAME=VALUE")
    return text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of a run, grouped as a person thinks of them."""
    # Here and not above: other commands use this module's types, and start no servers.
    from harness.cli import fault_flags, several_flags
    from harness.servers.catalogue import BACKENDS

    default = RunConfig()

    parser.add_argument(
        "--scenario",
        metavar="FILE",
        help="read flags from a TOML file, by their names; what is typed beside it wins",
    )

    load = parser.add_argument_group("load")
    load.add_argument(
        "--contenders",
        type=typed(fleet_size),
        default=default.contenders,
        metavar="N",
        help="size of the fleet: at most so many try to lock or hold at once (default %(default)s)",
    )
    load.add_argument(
        "--rate",
        type=typed(positive_rate),
        default=default.rate,
        metavar="R",
        help="arrivals per second, whatever happened before: the open model (default 500)",
    )
    load.add_argument(
        "--duration",
        type=typed(parse_positive_duration),
        default=default.duration,
        metavar="D",
        help="how long arrivals keep coming: 500ms, 2s, 1m (default 15s)",
    )
    load.add_argument(
        "--arrivals",
        choices=("constant", "poisson"),
        default=default.arrivals,
        help="evenly spaced, or at random with the same mean rate (default %(default)s)",
    )
    load.add_argument(
        "--keys",
        type=typed(positive_int),
        default=default.keys,
        metavar="K",
        help="number of locks that arrivals spread over (default %(default)s: one hot key)",
    )
    load.add_argument(
        "--key-distribution",
        type=typed(key_distribution),
        default=default.key_distribution,
        metavar="uniform|zipf[:S]",
        help="how arrivals choose among the keys (default %(default)s; zipf alone means zipf:1.1)",
    )
    load.add_argument(
        "--processes",
        type=typed(positive_int),
        default=default.processes,
        metavar="P",
        help="processes that share the fleet and the arrivals (default %(default)s)",
    )
    load.add_argument(
        "--seed",
        type=int,
        default=default.seed,
        metavar="S",
        help="repeats the same arrivals and keys (default %(default)s)",
    )

    several_flags.add_to(load)

    holder = parser.add_argument_group("what a contender does")
    holder.add_argument(
        "--kind",
        type=typed(lock_kind),
        default=default.kind,
        metavar="exclusive|shared:SHARE|semaphore:N",
        help="take the lock alone; or a share of the arrivals as readers, who do not write; or one of N "
        "permits (default %(default)s)",
    )
    holder.add_argument(
        "--ttl",
        type=typed(parse_positive_duration),
        default=default.ttl,
        metavar="D",
        help="the lease: a dead holder blocks its key for so long (default 10s)",
    )
    holder.add_argument(
        "--work",
        type=typed(parse_duration),
        default=default.work,
        metavar="D",
        help="time spent holding the lock, before the write (default 0)",
    )
    holder.add_argument(
        "--pause",
        type=typed(parse_duration),
        default=default.pause,
        metavar="D",
        help="freeze some holders for so long, without renewal; longer than --ttl, a second holder "
        "appears and the frozen one writes when it wakes (default 0: nobody)",
    )
    holder.add_argument(
        "--pause-every",
        type=typed(positive_int),
        metavar="N",
        help="freeze the first arrival and every Nth after it (default: four TTLs' worth of arrivals)",
    )
    holder.add_argument(
        "--timeout",
        type=typed(patience),
        default=default.timeout,
        metavar="D|none",
        help="an arrival that is not granted so long after it was due gives up (default 5s)",
    )
    holder.add_argument(
        "--fence",
        type=typed(on_off),
        default=default.fence,
        metavar="on|off",
        help="does the resource refuse stale fencing tokens? off is the unsafe baseline (default on)",
    )

    target = parser.add_argument_group("what is tested")
    target.add_argument(
        "--backend",
        choices=BACKENDS,
        default=default.backend,
        help="start a real server of this kind for the run (default %(default)s)",
    )
    target.add_argument(
        "--url",
        metavar="U",
        help="use the lock server at this URL instead, e.g. redis://127.0.0.1:6379/0",
    )
    target.add_argument(
        "--option",
        dest="options",
        action="append",
        type=typed(option),
        default=[],
        metavar="NAME=VALUE",
        help="option of the lock client, as in the URL's query, e.g. local_handoffs=0; may be repeated",
    )
    target.add_argument(
        "--resource-url",
        metavar="U",
        help="use the fenced resource at this URL instead of starting one; --fence is then its affair",
    )

    fault_flags.add_to(parser.add_argument_group("what is broken on purpose"))

    result = parser.add_argument_group("result")
    result.add_argument(
        "--threshold",
        dest="thresholds",
        action="append",
        type=typed(lambda text: str(Threshold.parse(text))),
        default=[],
        metavar="EXPR",
        help="fail with exit code 4 unless it holds: 'acquire.p99<50ms', 'failed==0', "
        "'timed_out<1%%', 'throughput_per_s>400'; may be repeated",
    )
    result.add_argument(
        "--junit",
        metavar="FILE",
        help="write checks and thresholds as a JUnit file, too; on GitHub they become annotations",
    )
    result.add_argument(
        "--out",
        default=default.out,
        metavar="DIR",
        help="folder for the run's own folder (default %(default)s)",
    )
    result.add_argument(
        "--metrics-port",
        type=typed(port_number),
        metavar="P",
        help="serve /metrics of the harness on this loopback port while the run lasts (0: a free one)",
    )
    result.add_argument(
        "--live",
        nargs="?",
        const=0,
        type=typed(port_number),
        metavar="PORT",
        help="show the run in a browser while it lasts, on this loopback port (default a free one)",
    )
    result.add_argument(
        "--quiet", action="store_true", help="print one line: the verdict, or what is wrong, and the folder"
    )


def from_arguments(args: argparse.Namespace) -> RunConfig:
    """:raises UsageError: the flags do not fit together."""
    config = RunConfig.from_json(vars(args))
    default = RunConfig()
    if config.stages and (config.rate, config.duration) != (default.rate, default.duration):
        raise UsageError("--stages says how many come for how long: leave out --rate and --duration")
    return in_stages(config)
