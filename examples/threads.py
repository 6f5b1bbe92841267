"""Plain threads, no event loop in sight: `python examples/threads.py [URL]`."""

import sys
from concurrent.futures import ThreadPoolExecutor

import asyncdlock

URL = sys.argv[1] if len(sys.argv) > 1 else "memory://"
locks = asyncdlock.blocking.connect(URL)
counter = [0]


def count() -> None:
    for _ in range(10):
        with locks.hold("counter", timeout=30.0) as handle:
            seen = counter[0]
            handle.check()  # a thread cannot be cancelled: ask before what must not happen without the lock
            counter[0] = seen + 1


with ThreadPoolExecutor(4) as pool:
    for worker in [pool.submit(count) for _ in range(4)]:
        worker.result()
print(f"4 threads counted to {counter[0]}")
# When the interpreter exits, locks that are still held are given back and the thread ends.
