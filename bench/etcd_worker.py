"""One measured process, as `bench.worker`, with the subjects on etcd known to it."""

import uvloop

from bench import worker
from bench.etcd_subjects import ON_OWN_KEYS
from bench.subjects import SUBJECTS

if __name__ == "__main__":
    SUBJECTS.update({subject.name: subject for subject in ON_OWN_KEYS})
    uvloop.run(worker.measure())
