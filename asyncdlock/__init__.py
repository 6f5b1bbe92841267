"""Distributed locks for asyncio with fencing tokens: the lock is a hint, the resource decides."""

from asyncdlock import blocking as blocking
from asyncdlock.backend import Backend, register
from asyncdlock.client import LockClient, connect
from asyncdlock.errors import (
    AcquireTimeout,
    BackendError,
    BackendUnavailable,
    InvalidKey,
    LockError,
    LockLost,
    QueueFull,
    QuorumError,
    StaleFence,
)
from asyncdlock.handle import Handle
from asyncdlock.kinds.leader import Term
from asyncdlock.kinds.once import Tick
from asyncdlock.kinds.semaphore import Semaphore
from asyncdlock.reentrant import ReentrantLock
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, SharedClaim

__all__ = [
    "AcquireTimeout",
    "Backend",
    "BackendError",
    "BackendUnavailable",
    "Capabilities",
    "Claim",
    "Grant",
    "Handle",
    "InvalidKey",
    "LeaseState",
    "LockClient",
    "LockError",
    "LockLost",
    "QueueFull",
    "QuorumError",
    "ReentrantLock",
    "Semaphore",
    "SharedClaim",
    "StaleFence",
    "Term",
    "Tick",
    "connect",
    "register",
]

__version__ = "0.2.0"
