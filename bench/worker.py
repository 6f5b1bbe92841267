"""One measured process: reads its work from the command line, does it, prints the tally as JSON."""

import dataclasses
import gc
import json
import os
import sys

import uvloop

from bench import work


async def measure() -> None:
    job = work.Work(**json.loads(sys.argv[1]))
    if job.cores:
        os.sched_setaffinity(0, job.cores)
    gc.freeze()
    tally = await work.run(job)
    json.dump(dataclasses.asdict(tally), sys.stdout, default=list)
    sys.stdout.flush()
    os._exit(0)  # see work.run


if __name__ == "__main__":
    uvloop.run(measure())
