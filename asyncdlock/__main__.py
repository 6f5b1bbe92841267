"""`python -m asyncdlock`."""

import sys

from asyncdlock.cli import main

if __name__ == "__main__":
    sys.exit(main())
