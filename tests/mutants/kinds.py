"""Bugs in shared locks and semaphores, and in what judges them."""

from tests.mutants.mutant import Mutant

_BACKENDS = "asyncdlock/backends/"
_SHARING = "harness/judge/checkers/sharing.py"
_STARVES = "tests/contract/test_shared.py::test_a_writer_does_not_starve[uvloop-as connected-{}]"
_ORDER = (
    "tests/contract/test_shared.py"
    "::test_arrival_order_is_kept_and_neighbouring_readers_go_in_together[uvloop-as connected-{}]"
)
_ONCE_EACH = "tests/contract/test_semaphore.py::test_permits_are_given_out_once_each[uvloop-{}]"
_GOLDEN = "tests/judge/test_golden.py::test_a_golden_history_gets_the_verdicts_that_it_states"

MUTANTS = [
    Mutant(
        "redis-queue: readers are let in past a writer that waits",
        _BACKENDS + "redis/scripts/queue_acquire_shared.lua",
        "if redis.call('EXISTS', QUEUE) == 0 and shared.has_room(",
        "if shared.has_room(",
        _STARVES.format("redis-queue"),
    ),
    Mutant(
        "redis-queue: a permit is given twice",
        _BACKENDS + "redis/scripts/queue_shared.lua",
        "return limit == 0 or count < limit",
        "return limit == 0 or count <= limit",
        _ONCE_EACH.format("redis-queue"),
    ),
    Mutant(
        "memory: a permit is given twice",
        _BACKENDS + "memory.py",
        "claim.permits == 0 or self.shared_by() < claim.permits",
        "claim.permits == 0 or self.shared_by() <= claim.permits",
        _ONCE_EACH.format("memory"),
    ),
    Mutant(
        "postgres: readers are let in past a writer that waits",
        _BACKENDS + "postgres/schema.sql",
        "\n                    AND NOT EXISTS (SELECT FROM @schema@.waiters WHERE key = asked.key)) THEN",
        ") THEN",
        _STARVES.format("postgres"),
    ),
    Mutant(
        "postgres: a permit is given twice",
        _BACKENDS + "postgres/schema.sql",
        "OR asked.permits > (SELECT count(*)",
        "OR asked.permits >= (SELECT count(*)",
        _ONCE_EACH.format("postgres"),
    ),
    Mutant(
        "etcd: readers are let in past a writer that waits",
        _BACKENDS + "etcd/requests.py",
        "    if alone is not None:\n        return (alone,)\n",
        "",
        _ORDER.format("etcd"),
    ),
    Mutant(
        "etcd: a permit is given twice",
        _BACKENDS + "etcd/requests.py",
        "return older[:permits] if len(older) >= permits else ()",
        "return older[:permits] if len(older) > permits else ()",
        _ONCE_EACH.format("etcd"),
    ),
    Mutant(
        "zookeeper: readers are let in past a writer that waits",
        _BACKENDS + "zookeeper/names.py",
        "        if alone is not None:\n            return [alone]\n",
        "",
        _ORDER.format("zookeeper"),
    ),
    Mutant(
        "zookeeper: a permit is given twice",
        _BACKENDS + "zookeeper/names.py",
        "return before[:permits] if len(before) >= permits else []",
        "return before[:permits] if len(before) > permits else []",
        _ONCE_EACH.format("zookeeper"),
    ),
    Mutant(
        "checker: a reader may hold beside a writer",
        _SHARING,
        "if other is not None and start < other[0]:",
        "if False:",
        _GOLDEN,
    ),
    Mutant(
        "checker: one permit more than there are",
        _SHARING,
        "            if len(inside) >= permits:",
        "            if len(inside) > permits:",
        _GOLDEN,
    ),
]
