"""The small parts: errors, owners, validity, backoff, the memory of fences."""

import importlib.metadata
import os
import pickle
import random
import uuid

import pytest

import asyncdlock
from asyncdlock import errors
from asyncdlock._backoff import jittered
from asyncdlock._fence_memory import _KEYS, FenceMemory
from asyncdlock.types import Claim, owners, validity


def test_the_error_tree_is_as_promised() -> None:
    for kind in (
        errors.AcquireTimeout,
        errors.LockLost,
        errors.QueueFull,
        errors.StaleFence,
        errors.InvalidKey,
        errors.BackendError,
    ):
        assert errors.LockError in kind.__bases__
    assert issubclass(errors.AcquireTimeout, TimeoutError)
    assert issubclass(errors.InvalidKey, ValueError)
    assert issubclass(errors.BackendUnavailable, errors.BackendError)
    assert issubclass(errors.QuorumError, errors.BackendError)


@pytest.mark.parametrize(
    "error",
    [
        errors.LockError("x"),
        errors.AcquireTimeout("x"),
        errors.LockLost("x"),
        errors.QueueFull("x"),
        errors.InvalidKey("x"),
        errors.StaleFence("key", seen=34, got=33),
        errors.BackendError("x", definite=True),
        errors.BackendUnavailable("x"),
        errors.QuorumError("x", [OSError("one"), errors.BackendUnavailable("two")]),
        errors.QuorumError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error: Exception) -> None:
    """They cross process boundaries, in process pools and task queues."""
    copy: Exception = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    for name in ("definite", "key", "seen", "got"):
        assert getattr(copy, name, None) == getattr(error, name, None)
    if isinstance(error, errors.QuorumError):
        assert isinstance(copy, errors.QuorumError)
        assert repr(copy.causes) == repr(error.causes)


def test_a_stale_fence_tells_both_numbers() -> None:
    assert str(asyncdlock.StaleFence("key", seen=34, got=33)) == (
        "stale fencing token for 'key': got 33, the resource has seen 34"
    )


def test_a_quorum_error_keeps_what_each_node_said() -> None:
    error = asyncdlock.QuorumError("2 of 5", [OSError("a"), OSError("b")], definite=False)
    assert error.causes is not None
    assert [str(cause) for cause in error.causes.exceptions] == ["a", "b"]


def test_owners_are_unique_uuids_that_share_a_session() -> None:
    makers = [owners() for _ in range(50)]
    made = [next(maker) for maker in makers for _ in range(200)]
    assert len(set(made)) == len(made)
    assert len({Claim("key", owner, 10.0).session for owner in made}) == 50
    for owner in made[::97]:
        parsed = uuid.UUID(owner)
        assert str(parsed) == owner
        assert parsed.version == 8
        assert parsed.variant == uuid.RFC_4122


def test_a_forked_child_draws_owners_of_its_own() -> None:
    maker = owners()
    before = next(maker)
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, next(maker).encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(mine) as pipe:
        drawn = pipe.read()
    assert uuid.UUID(drawn)
    assert len({before, drawn, next(maker)}) == 3
    assert Claim("key", drawn, 10.0).session != Claim("key", before, 10.0).session


ERRORS = [
    asyncdlock.LockLost("lost", key="key", owner="owner", fence=7),
    asyncdlock.AcquireTimeout("late", key="key", owner="owner"),
    asyncdlock.InvalidKey("no", key=""),
    asyncdlock.StaleFence("key", seen=2, got=1),
    asyncdlock.BackendUnavailable("away", definite=True),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_says_which_lock_it_is_about_also_after_a_pipe(error: asyncdlock.LockError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_version_is_the_packages() -> None:
    assert asyncdlock.__version__ == importlib.metadata.version("asyncdlock")


@pytest.mark.parametrize("ttl", [0.01, 0.5, 10.0, 86_400.0])
def test_a_lease_is_trusted_for_less_than_its_ttl(ttl: float) -> None:
    assert 0.0 < validity(ttl) < ttl
    assert validity(ttl) == pytest.approx(ttl * 0.99 - 0.002)


def test_delays_double_up_to_the_cap_and_are_never_tiny() -> None:
    delays = jittered(0.002, 0.25, rng=random.Random(1))
    step = 0.002
    for _ in range(50):
        assert step / 2 <= next(delays) <= step
        step = min(step * 2, 0.25)


def test_contenders_that_failed_together_do_not_come_back_together() -> None:
    assert len({next(jittered(0.1, 1.0)) for _ in range(100)}) == 100


def test_a_fence_that_is_not_larger_does_not_rise() -> None:
    memory = FenceMemory()
    assert memory.rises("a", 5)
    assert memory.rises("a", 6)
    assert not memory.rises("a", 6)
    assert not memory.rises("a", 1)
    assert memory.highest("a") == 6, "what was seen stays the mark"
    assert memory.rises("b", 1)


def test_the_memory_of_fences_is_bounded_and_keeps_recent_keys() -> None:
    memory = FenceMemory()
    for number in range(3 * _KEYS):
        memory.rises(f"key-{number}", 7)
    assert len(memory._young) + len(memory._old) <= _KEYS
    assert memory.highest(f"key-{3 * _KEYS - 1}") == 7
    assert memory.highest("key-0") == 0
