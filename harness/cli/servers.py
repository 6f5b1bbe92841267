"""`python -m harness servers up NAME...`: the command line of `harness.servers.up`."""

import argparse

from harness.servers.up import OFFERS, up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["up"], help="start, print the URLs, keep up until Ctrl-C")
    offers = "\n".join(f"{name:<12}{offer.about}" for name, offer in OFFERS.items())
    names = parser.add_argument_group("what to start", description=offers)
    names.add_argument("names", nargs="+", choices=list(OFFERS), metavar="NAME", help="one or more of these")


async def run(args: argparse.Namespace) -> int:
    """Returns the exit code."""
    return await up(args.names)
