"""One measured process, as `bench.worker`, with the subjects on ZooKeeper known to it."""

import uvloop

from bench import worker
from bench.subjects import SUBJECTS
from bench.zookeeper_subjects import ALL

if __name__ == "__main__":
    SUBJECTS.update({subject.name: subject for subject in ALL})
    uvloop.run(worker.measure())
