"""The Backend protocol, and the registry that picks one by URL scheme."""

import importlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from asyncdlock._url import redact as redact
from asyncdlock.types import Capabilities, Claim, Grant, LeaseState, LockInfo


@runtime_checkable
class Backend(Protocol):
    """Everything that a backend implements. `docs/adding-a-backend.md` walks through one.

    Every verb may be cancelled at any await. A cancelled, timed-out or failed `acquire` is always
    followed by `release` of the same claim, which must undo whatever the claim left behind, even
    if the request of that `acquire` is still in flight.
    """

    name: str
    """The `backend` label of the metrics."""
    local_queue: bool
    """Whether waiters of one process share one remote place per key."""
    local_handoffs: int
    """How often in a row a process may pass the lock on without a round trip."""

    @property
    def capabilities(self) -> Capabilities:
        """What it promises; perhaps less, once it knows what is between it and its server (a pooler)."""
        ...

    @property
    def commands(self) -> int:
        """Requests sent to the server so far."""
        ...

    async def acquire(self, claim: Claim, *, reserve: int = 0) -> Grant:
        """Wait for the claim's turn.

        With `reserve`, take that many further fences for local hand-off; a backend that cannot
        reserve grants none (`Grant.reserved == 0`).

        :raises BackendError: the server failed; waiting for another holder is never an error.
        :raises QueueFull: the server's queue is bounded and full.
        """
        ...

    async def try_acquire(self, claim: Claim) -> Grant | None:
        """One attempt; `None` when somebody else holds the lock. Leaves no place in a queue.

        :raises BackendError: the server failed.
        """
        ...

    async def renew(self, grants: Sequence[Grant]) -> Sequence[LeaseState]:
        """Extend each lease by its TTL if it is still owned; one state per grant, in order.

        Never raises for a failed server: that is `LeaseState.UNKNOWN`. Many at once, because a
        process with ten thousand locks must not send ten thousand requests. One that is silent must not
        keep back what others have answered: see `RENEWED_WITHIN`.
        """
        ...

    async def release(self, claim: Claim) -> bool:
        """Give the lock back if the claim still owns it. Idempotent.

        `True`: it was owned until now, and has been given back. `False`: it was not owned. Also takes back a
        claim that is still waiting or half made.

        :raises BackendError: the server failed, or there is no way to know what became of the request
            (`definite=False`); calling again is safe.
        """
        ...

    async def raise_fence(self, key: str, above: int) -> None:
        """Make every later fence of `key` larger than `above` (only with `fence_floor`)."""
        ...

    async def aclose(self) -> None:
        """Close connections. The client has already drained its clean-up."""
        ...


class Inspectable(Protocol):
    """What a backend with `capabilities.inspection` implements in addition."""

    label: str
    """The label of owners that have none of their own. Set before the first request."""

    async def inspect(self, key: str) -> LockInfo:
        """Who holds the lock and who waits for it.

        :raises BackendError: the server failed.
        """
        ...

    async def force_release(self, key: str, above: int) -> bool:
        """End the holder's lease, whoever it is, and let the next waiter go.

        The next fence is larger than all that were granted or reserved so far and, where fences can be
        raised, than `above`. `False`: nobody held the lock, or its holder has meanwhile released it.

        :raises BackendError: the server failed; calling again may end the lease of the next holder.
        """
        ...

    def keys(self, start: str) -> AsyncIterator[str]:
        """The locks that are held or waited for, and whose keys begin with `start`, in any order.

        :raises BackendError: the server failed.
        """
        ...


Factory = Callable[..., Backend]

# scheme -> (module, factory, extra that brings its client library). A backend's module is
# imported when its scheme is first used: `import asyncdlock` needs no server's client.
_REGISTRY: dict[str, tuple[str, str, str | None]] = {
    "memory": ("asyncdlock.backends.memory", "from_url", None),
    "redis": ("asyncdlock.backends.redis", "spin_from_url", None),
    "rediss": ("asyncdlock.backends.redis", "spin_from_url", None),
    "unix": ("asyncdlock.backends.redis", "spin_from_url", None),
    "redis-queue": ("asyncdlock.backends.redis", "queue_from_url", None),
    "rediss-queue": ("asyncdlock.backends.redis", "queue_from_url", None),
    "unix-queue": ("asyncdlock.backends.redis", "queue_from_url", None),
    "redlock": ("asyncdlock.backends.redlock", "from_url", None),
    "redlocks": ("asyncdlock.backends.redlock", "from_url", None),
    "etcd": ("asyncdlock.backends.etcd", "from_url", "etcd"),
    "etcds": ("asyncdlock.backends.etcd", "from_url", "etcd"),
    "zookeeper": ("asyncdlock.backends.zookeeper", "from_url", "zookeeper"),
    "zookeepers": ("asyncdlock.backends.zookeeper", "from_url", "zookeeper"),
    "postgres": ("asyncdlock.backends.postgres", "from_url", "postgres"),
    "postgresql": ("asyncdlock.backends.postgres", "from_url", "postgres"),
    "postgress": ("asyncdlock.backends.postgres", "from_url", "postgres"),
}


def register(scheme: str, module: str, factory: str = "from_url", *, extra: str | None = None) -> None:
    """Make `scheme://` URLs open the backend that `module.factory(url, **options)` returns."""
    _REGISTRY[scheme] = (module, factory, extra)


def schemes() -> Mapping[str, str]:
    """The known URL schemes and the module behind each."""
    return {scheme: module for scheme, (module, _, _) in _REGISTRY.items()}


def open_backend(url: str, options: Mapping[str, Any]) -> Backend:
    """The backend for `url`, unconnected.

    :raises ValueError: unknown scheme, malformed URL or unknown option.
    :raises ImportError: the backend's client library is not installed; names the extra.
    """
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    entry = _REGISTRY.get(scheme)
    if entry is None:
        known = ", ".join(f"{name}://" for name in _REGISTRY)
        raise ValueError(f"unknown lock URL {redact(url)!r}: it must start with one of {known}")
    module_name, factory_name, extra = entry
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if extra is None or (missing.name or "").startswith("asyncdlock"):
            raise
        raise ImportError(
            f"{scheme}:// needs the package {missing.name!r}, which is not installed: "
            f"pip install 'asyncdlock[{extra}]'"
        ) from missing
    factory: Factory = getattr(module, factory_name)
    return factory(url, **options)
