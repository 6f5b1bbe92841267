"""The flags of a run, and the types that read what a person typed."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
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


Settings = Mapping[str, tuple[Callable[[str], object] | tuple[str, ...], str]]
"""`--flag METAVAR` → what reads its value, or what there is to choose from; and its help."""


def settings(group: argparse._ActionsContainer, flags: Settings) -> None:
    """Flags that set what is called the same in a `RunConfig`, where their defaults are."""
    for usage, (values, about) in flags.items():
        name, _, metavar = usage.partition(" ")
        default = getattr(RunConfig(), name.removeprefix("--").replace("-", "_"))
        if isinstance(values, tuple):
            group.add_argument(name, choices=values, default=default, help=about)
        else:
            flag(group, name, values, about, default=default, metavar=metavar)


def repeatable(
    group: argparse._ActionsContainer, usage: str, dest: str, parse: Callable[[str], object], about: str
) -> None:
    """A flag, as in `Settings`, that may be given several times; `dest` is where all of them are."""
    name, _, metavar = usage.partition(" ")
    about = f"{about}; may be repeated"
    flag(group, name, parse, about, dest=dest, action="append", default=[], metavar=metavar)


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def positive_int(text: str) -> int:
    value = whole_number(text)
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

    parser.add_argument(
        "--scenario",
        metavar="FILE",
        help="read flags from a TOML file, by their names; flags on the command line win",
    )
    load = parser.add_argument_group("load")
    settings(load, _LOAD)
    several_flags.add_to(load)
    settings(parser.add_argument_group("what a contender does"), _HOLDER)

    target = parser.add_argument_group("what is tested")
    about = "start a real server of this kind for the run (default %(default)s)"
    url = "use the lock server at this URL instead, e.g. redis://127.0.0.1:6379/0"
    settings(target, {"--backend": (BACKENDS, about), "--url U": (str, url)})
    about = "option of the lock client, as in the URL's query, e.g. local_handoffs=0"
    repeatable(target, "--option NAME=VALUE", "options", option, about)
    about = "use the fenced resource at this URL instead of starting one; --fence is then up to it"
    settings(target, {"--resource-url U": (str, about)})
    fault_flags.add_to(parser.add_argument_group("what is broken on purpose"))

    result = parser.add_argument_group("result")
    repeatable(
        result,
        "--threshold EXPR",
        "thresholds",
        lambda text: str(Threshold.parse(text)),
        "fail with exit code 4 unless this holds: 'acquire.p99<50ms', 'failed==0', "
        "'timed_out<1%%', 'throughput_per_s>400'",
    )
    settings(result, _RESULT)
    result.add_argument(
        "--live",
        nargs="?",
        const=0,
        type=typed(port_number),
        metavar="PORT",
        help="show the run in a browser while it lasts, on this loopback port (default a free one)",
    )
    result.add_argument(
        "--steer",
        action="store_true",
        help="let that page stop, start and change the arrivals, break things and end the run; anyone with "
        "the printed address may do so",
    )
    result.add_argument(
        "--quiet", action="store_true", help="print one line: the verdict, or what is wrong, and the folder"
    )


_LOAD: Settings = {
    "--contenders N": (
        fleet_size,
        "size of the fleet: at most this many wait for a lock or hold one at once (default %(default)s)",
    ),
    "--rate R": (
        positive_rate,
        "arrivals per second, whatever happened before: the open model (default 500)",
    ),
    "--duration D": (
        parse_positive_duration,
        "how long arrivals keep coming: 500ms, 2s, 1m (default 15s)",
    ),
    "--arrivals": (
        ("constant", "poisson"),
        "evenly spaced, or at random with the same mean rate (default %(default)s)",
    ),
    "--keys K": (
        positive_int,
        "number of locks that arrivals spread over (default %(default)s: one hot key)",
    ),
    "--key-distribution uniform|zipf[:S]": (
        key_distribution,
        "how arrivals choose among the keys (default %(default)s; zipf alone means zipf:1.1)",
    ),
    "--processes P": (
        positive_int,
        "processes that share the fleet and the arrivals (default %(default)s)",
    ),
    "--seed S": (whole_number, "repeats the same arrivals and keys (default %(default)s)"),
}

_HOLDER: Settings = {
    "--kind exclusive|shared:SHARE|semaphore:N": (
        lock_kind,
        "take the lock exclusively; or let a share of the arrivals be readers, which do not write; or take "
        "one of N permits (default %(default)s)",
    ),
    "--ttl D": (
        parse_positive_duration,
        "the lease: this is how long a dead holder blocks its key (default 10s)",
    ),
    "--work D": (parse_duration, "time spent holding the lock, before the write (default 0)"),
    "--pause D": (
        parse_duration,
        "freeze some holders for this long, without renewal; if it is longer than --ttl, a second holder "
        "appears and the frozen one writes when it wakes (default 0: nobody)",
    ),
    "--pause-every N": (
        positive_int,
        "freeze the first arrival and every Nth after it (default: four TTLs' worth of arrivals)",
    ),
    "--timeout D|none": (
        patience,
        "an arrival that is still not granted this long after it was due gives up (default 5s)",
    ),
    "--fence on|off": (
        on_off,
        "does the resource refuse stale fencing tokens? off is the unsafe baseline (default on)",
    ),
}

_RESULT: Settings = {
    "--junit FILE": (
        str,
        "also write checks and thresholds to a JUnit file; on GitHub they become annotations",
    ),
    "--out DIR": (str, "folder for the run's own folder (default %(default)s)"),
    "--metrics-port P": (
        port_number,
        "serve /metrics of the harness on this loopback port while the run lasts (0: a free one)",
    ),
}


def from_arguments(args: argparse.Namespace) -> RunConfig:
    """:raises UsageError: the flags do not fit together."""
    config = RunConfig.from_json(vars(args))
    default = RunConfig()
    if config.stages and (config.rate, config.duration) != (default.rate, default.duration):
        raise UsageError("--stages says how many come for how long: leave out --rate and --duration")
    if config.steer:
        if config.is_share:
            raise UsageError("--steer is for a single generator: leave it out with --share")
        config = replace(config, live=config.live or 0)
    return in_stages(config)
