"""connect(): from a URL and its options to a client."""

from typing import Any, Literal

from prometheus_client import CollectorRegistry

from asyncdlock._arguments import check_max_hold
from asyncdlock._core import OnLost
from asyncdlock._local_queue import LocalQueue
from asyncdlock._thread_backend import place
from asyncdlock._url import take_from_query
from asyncdlock.backend import open_backend
from asyncdlock.client import LockClient


def connect(
    url: str = "",
    *,
    max_hold: float | None = None,
    metrics: bool | CollectorRegistry = True,
    prefix: str | None = None,
    label: str | None = None,
    on_lost: OnLost | None = None,
    renew_in: Literal["loop", "thread"] = "loop",
    **options: Any,
) -> LockClient:
    """A client for the lock server at `url`; nothing is sent before its first use.

    `max_hold` is the default for `acquire` and `hold`. `metrics` names the Prometheus registry that shows
    this client's counts: the default one, another one, or none (`False`). `prefix` is put before every key on
    the server; there is none by default, so that other lock libraries find the same locks. `label` is what
    `inspect` shows of this client's owners, by default `host:pid`. `on_lost` is called on the event loop with
    the `LockLost` of each lease that is lost. With `renew_in="thread"` leases are renewed in a thread, so
    that a body may block the event loop for longer than a TTL; `max_hold` is then ten minutes unless given.

    All other options are the backend's; these, `prefix` and `label` may also be given in the URL's query.
    `redis=client` takes address, credentials and TLS from a client of redis-py: `connect(redis=client)` opens
    `redis://`, `connect("redis-queue://", redis=client)` the fair queue.

    The client belongs to the process that made it and to the event loop that first uses it.

    :raises ValueError: unknown scheme, malformed URL, unknown or invalid option.
    :raises ImportError: the backend's client library is missing; the message names the extra.
    """
    check_max_hold(max_hold)
    url, asked = take_from_query(url or ("redis://" if "redis" in options else ""), "prefix", "label")
    backend = open_backend(url, options)
    if backend.local_queue:
        backend = LocalQueue(backend, handoffs=backend.local_handoffs)
    backend, max_hold = place(backend, renew_in, max_hold)
    return LockClient(
        backend,
        max_hold=max_hold,
        metrics=metrics,
        prefix=asked.get("prefix", "") if prefix is None else prefix,
        label=asked.get("label") if label is None else label,
        on_lost=on_lost,
    )
