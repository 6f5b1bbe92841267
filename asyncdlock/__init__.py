"""Distributed locks for asyncio with fencing tokens: the lock is a hint, the resource decides."""

import logging

from asyncdlock import blocking as blocking
from asyncdlock._connect import connect
from asyncdlock.backend import Backend, Inspectable, register
from asyncdlock.client import LockClient
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
from asyncdlock.kinds.observer import Leader
from asyncdlock.kinds.once import Tick
from asyncdlock.kinds.semaphore import Semaphore
from asyncdlock.reentrant import ReentrantLock
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, LockInfo, SharedClaim, Waiter

__all__ = [
    "AcquireTimeout",
    "Backend",
    "BackendError",
    "BackendUnavailable",
    "Capabilities",
    "Claim",
    "Grant",
    "Handle",
    "Inspectable",
    "InvalidKey",
    "Leader",
    "LeaseState",
    "LockClient",
    "LockError",
    "LockInfo",
    "LockLost",
    "QueueFull",
    "QuorumError",
    "ReentrantLock",
    "Semaphore",
    "SharedClaim",
    "StaleFence",
    "Term",
    "Tick",
    "Waiter",
    "connect",
    "register",
]

# What goes wrong is logged for whoever listens; a library does not write to standard error by itself.
logging.getLogger("asyncdlock").addHandler(logging.NullHandler())

__version__ = "0.2.0"
