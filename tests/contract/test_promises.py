"""Who promises what. Tests of a promise run over those who make it; here nobody can drop out unnoticed."""

from dataclasses import fields

import asyncdlock
from tests.contract.cases import CASES, Case

PROMISES = {
    "fencing": {"memory", "redis", "redis-queue", "redlock", "etcd", "zookeeper", "postgres"},
    "fifo": {"memory", "redis-queue", "etcd", "zookeeper", "postgres"},
    "push_wakeup": {"memory", "redis-queue", "etcd", "zookeeper", "postgres"},
    "interprocess": {"redis", "redis-queue", "redlock", "etcd", "zookeeper", "postgres"},
    "fence_floor": {"memory", "redis", "redis-queue", "redlock", "postgres"},
    "once": {"memory", "redis", "redis-queue", "redlock", "postgres"},
    "shared": {"memory", "redis-queue", "etcd", "zookeeper", "postgres"},
    "semaphore": {"memory", "redis-queue", "etcd", "zookeeper", "postgres"},
    "inspection": {"memory", "redis", "redis-queue", "redlock", "etcd", "zookeeper", "postgres"},
}


def test_every_promise_is_in_the_table() -> None:
    can = asyncdlock.connect("memory://promises").capabilities
    assert set(PROMISES) == {one.name for one in fields(can) if isinstance(getattr(can, one.name), bool)}


def test_every_backend_promises_what_it_did(case: Case, url: str) -> None:
    """Of a real server's URL, too: what a test is chosen by is what its client says."""
    locks = asyncdlock.connect(url, **case.options)
    name = case.scheme or case.name
    for promise, makers in PROMISES.items():
        assert getattr(case.can, promise) is getattr(locks.capabilities, promise) is (name in makers), promise


def test_every_backend_is_in_the_table() -> None:
    assert {case.scheme or case.name for case in CASES} == set().union(*PROMISES.values())
