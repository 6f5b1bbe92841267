"""`python -m harness lower-mark`: lets holders back in that a made-up token has shut out."""

import argparse
from pathlib import Path

from asyncdlock.backend import redact
from harness.cli.resource import positive
from harness.config import UsageError
from harness.resource.decision import Fencing
from harness.resource.store import StoreError, open_store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", help="the key whose mark to lower")
    parser.add_argument(
        "--to",
        type=positive,
        required=True,
        metavar="FENCE",
        help="the fence of the lock's present holder: it and later ones may write again",
    )
    parser.add_argument(
        "--store",
        default="sqlite:resource.db",
        metavar="STORE",
        help="the resource's own: sqlite:PATH, postgres:DSN or s3:URL; it may go on running "
        "(default: %(default)s)",
    )


async def run(args: argparse.Namespace) -> int:
    """Lower the mark and say what it was.

    :raises UsageError: the store cannot be used.
    """
    _check_store(args.store)
    try:
        store = await open_store(args.store, Fencing.ON, log=False)
        try:
            before = await store.lower(args.key, args.to)
        finally:
            await store.aclose()
    except StoreError as error:
        raise UsageError(str(error)) from error
    if before.token > args.to:
        print(f"the mark of {args.key!r} is lowered from {before.token} to {args.to}")
    else:
        print(f"the mark of {args.key!r} is {before.token}, which shuts out nobody from {args.to} on")
    return 0


def _check_store(store: str) -> None:
    kind, _, rest = store.partition(":")
    if kind == "memory":
        raise UsageError("a store in memory ends with its resource, and its marks with it: start that again")
    if kind == "sqlite" and not Path(rest.partition("?")[0]).exists():
        raise UsageError(f"there is no resource at {redact(store)}")
