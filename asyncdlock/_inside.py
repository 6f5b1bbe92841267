"""What is behind the public classes, for our own harness, benchmarks and tests: not a public interface."""

from asyncdlock.backend import Backend
from asyncdlock.client import LockClient
from asyncdlock.handle import Handle
from asyncdlock.metrics import Metrics
from asyncdlock.types import Grant


def backend_of(client: LockClient) -> Backend:
    """The backend, or the local queue in front of it."""
    return client._backend


def counts_of(client: LockClient) -> Metrics:
    """What the client counts."""
    return client._metrics


def grant_of(handle: Handle) -> Grant:
    """What the backend granted."""
    return handle._holding.grant
