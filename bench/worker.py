"""One measured process: reads its work from the command line, does it, prints the tally as JSON.

Usage: python -m bench.worker WORK [MODULE:SUBJECTS], where the latter names subjects beside `bench.subjects`.
"""

import dataclasses
import gc
import importlib
import json
import os
import sys

import uvloop

from bench import work
from bench.subjects import SUBJECTS


async def measure(told: str, more: str = "") -> None:
    if more:
        module, _, name = more.partition(":")
        SUBJECTS.update({one.name: one for one in getattr(importlib.import_module(module), name)})
    job = work.Work(**json.loads(told))
    if job.cores:
        os.sched_setaffinity(0, job.cores)
    gc.freeze()
    tally = await work.run(job)
    json.dump(dataclasses.asdict(tally), sys.stdout, default=list)
    sys.stdout.flush()
    os._exit(0)  # see work.run


if __name__ == "__main__":
    uvloop.run(measure(*sys.argv[1:]))
