"""Prints the SQL that postgres:// needs, for those whose programs may not create tables themselves."""

import argparse
import sys

from asyncdlock.backends.postgres.schema import SCHEMA, creation


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m asyncdlock.backends.postgres", description=__doc__)
    parser.add_argument("--schema", default=SCHEMA, help=f"the schema that it goes into ({SCHEMA})")
    # psql would commit each statement by itself, and let go of the lock that the first one takes.
    sys.stdout.write(f"BEGIN;\n{creation(parser.parse_args().schema)}COMMIT;\n")


if __name__ == "__main__":
    main()
