"""The flags that say how a run is measured: what counts, how often, what is reported, when it ends early."""

import argparse
import copy

from harness.cli.flags import positive_int, repeatable, settings
from harness.durations import parse_duration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A group of their own."""
    from harness.load.abort import parse_abort

    group = parser.add_argument_group("how it is measured")
    settings(
        group,
        {
            "--warmup D": (
                parse_duration,
                "a time before --duration in which arrivals come and are judged, but count in no figure "
                "(default 0)",
            ),
            "--repeat N": (
                positive_int,
                "make this many runs one after the other, each with its own servers, and report mean, 95 %% "
                "interval and range of every figure (default 1)",
            ),
        },
    )
    group.add_argument(
        "--versus",
        metavar="FLAGS",
        help="make as many runs with these flags added, in turns with the others (A B, B A …), and "
        "compare, as in --versus '--backend redis'",
    )
    parser.set_defaults(with_more=lambda args, words: parser.parse_args(words, copy.copy(args)))
    repeatable(
        group,
        "--abort-on EXPR",
        "abort_on",
        lambda text: str(parse_abort(text)),
        "end the run, with exit code 4, as soon as this holds: 'timed_out>10%%', 'arrival_to_grant.p99>2s'",
    )
    about = (
        "write the state of the run as a line of JSON twice a second; - is standard output, and everything "
        "else then goes to standard error"
    )
    settings(group, {"--stream FILE": (str, about)})
