"""`python -m harness worker` that waits at the start line: loaded, it says so, and begins when told.

A Python process takes most of a second to load what it needs, more on a busy machine. An experiment
that lasts two seconds cannot have that in its schedule.
"""

import argparse
import importlib
import json
import sys
from urllib.parse import urlsplit

import uvloop

from asyncdlock.backend import schemes
from harness import exits, worker
from harness.clock import now


def main() -> int:
    parser = argparse.ArgumentParser()
    worker.add_arguments(parser)
    args = parser.parse_args()
    module = schemes().get(urlsplit(args.url).scheme)
    if module is not None:
        importlib.import_module(module)
    print(json.dumps({"event": "ready", "at": round(now() / 1e9, 6)}), flush=True)
    if not sys.stdin.readline():
        return exits.INTERRUPTED  # whoever was to give the sign is gone
    code: int = uvloop.run(worker.run(args))
    return code


if __name__ == "__main__":
    sys.exit(main())
