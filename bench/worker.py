"""One measured process: reads its work from the command line, does it, prints the tally as JSON."""

import dataclasses
import gc
import json
import os
import sys

import uvloop

from bench import work


def main() -> None:
    job = work.Work(**json.loads(sys.argv[1]))
    if job.cores:
        os.sched_setaffinity(0, job.cores)
    gc.freeze()
    tally = uvloop.run(work.run(job))
    json.dump(dataclasses.asdict(tally), sys.stdout)


if __name__ == "__main__":
    main()
