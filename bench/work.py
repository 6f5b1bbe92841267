"""The work that every subject does: contenders that acquire, count and release, for a given time."""

import asyncio
import threading
import time
from array import array
from collections.abc import MutableSequence
from dataclasses import dataclass, field

from bench.subject import Blocking, Subject
from bench.subjects import SUBJECTS, Raw


@dataclass(frozen=True, slots=True)
class Work:
    """`contenders` of one process, each on its own key or all on one, for `seconds`."""

    subject: str
    url: str
    contenders: int
    seconds: float
    hot: bool
    ramp: float
    """Seconds of the same work before anything is counted."""
    start_at: float = 0.0
    """`time.monotonic()` before which nothing is counted, the same for all processes."""
    process: int = 0
    cores: tuple[int, ...] = ()
    """Cores on which the process may run; none: any."""


@dataclass(slots=True)
class Tally:
    """What one process did."""

    sections: list[int]
    """Per contender."""
    waits: MutableSequence[float]
    """Seconds from the call of acquire to the grant, one per section."""
    seconds: float
    cpu: float
    commands: int | None
    total: int
    """Sections with the ramp included: what the server's own counts refer to."""
    fences: MutableSequence[int] = field(default_factory=lambda: array("q"))
    """One per section, in the order of this process; empty for peers."""
    granted: MutableSequence[float] = field(default_factory=lambda: array("d"))
    """When each section began; not of threads."""


async def run(work: Work) -> Tally:
    """Do the work in this process, which is to end right after: the contenders are left as they are.

    Some peers do not let themselves be cancelled, and would wait for their locks for long.
    """
    subject = SUBJECTS[work.subject](work.url, work.contenders)
    await subject.open()
    if isinstance(subject, Raw):
        return await _raw(subject, work)
    if isinstance(subject, Blocking):
        return await asyncio.to_thread(_in_threads, subject, work)
    return await _in_tasks(subject, work)


def _key(work: Work, contender: int) -> str:
    return "hot" if work.hot else f"own:{work.process}:{contender}"


class _Window:
    """What was done between two moments: connections are opened and queues filled before the first."""

    def __init__(self, subject: Subject, tally: Tally) -> None:
        self._subject = subject
        self._tally = tally
        self._sections = list(tally.sections)
        self._waits = len(tally.waits)
        self._fences = len(tally.fences)
        self._commands = subject.commands
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def close(self) -> Tally:
        seconds, cpu = time.perf_counter() - self._began, time.process_time() - self._cpu
        now, commands = self._tally, self._subject.commands
        return Tally(
            [after - before for after, before in zip(now.sections, self._sections, strict=True)],
            now.waits[self._waits :],
            seconds,
            cpu,
            None if commands is None or self._commands is None else commands - self._commands,
            sum(now.sections),
            now.fences[self._fences :],
            now.granted[self._waits :],
        )


async def _in_tasks(subject: Subject, work: Work) -> Tally:
    # Arrays, because objects that are kept would make the garbage collector a part of what is measured.
    tally = Tally([0] * work.contenders, array("d"), 0.0, 0.0, None, 0)

    async def contend(number: int) -> None:
        lock = subject.lock(_key(work, number))
        acquire, release, fence_of = lock.acquire, lock.release, lock.fence
        waits, fences, granted, sections = tally.waits, tally.fences, tally.granted, tally.sections
        clock = time.perf_counter
        while True:
            called = clock()
            held = await acquire()
            now = clock()
            if held is False:
                raise RuntimeError("the peer's lock was not acquired")
            waits.append(now - called)
            granted.append(now)
            if fence_of is not None:
                fences.append(fence_of(held))
            sections[number] += 1
            await release(held)

    tasks = [asyncio.create_task(contend(number)) for number in range(work.contenders)]
    await asyncio.sleep(max(work.ramp, work.start_at - time.monotonic()))
    window = _Window(subject, tally)
    await asyncio.sleep(work.seconds)
    done = window.close()
    for task in tasks:
        if task.done():
            task.result()  # nobody ends but by an error
    return done


def _in_threads(subject: Blocking, work: Work) -> Tally:
    tally = Tally([0] * work.contenders, array("d"), 0.0, 0.0, None, 0)

    def contend(number: int) -> None:
        lock = subject.blocking_lock(_key(work, number))
        while True:
            called = time.perf_counter()
            if not lock.acquire(timeout=1):
                continue
            tally.waits.append(time.perf_counter() - called)
            tally.sections[number] += 1
            lock.release()

    numbers = range(work.contenders)
    threads = [threading.Thread(target=contend, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    time.sleep(max(work.ramp, work.start_at - time.monotonic()))
    window = _Window(subject, tally)
    time.sleep(work.seconds)
    return window.close()


async def _raw(subject: Raw, work: Work) -> Tally:
    await subject.warm_up(work.contenders)
    cpu = time.process_time()
    done, seconds = await subject.cycles(work.contenders, work.seconds)
    each = [done // work.contenders] * work.contenders
    return Tally(each, [], seconds, time.process_time() - cpu, 2 * done, done)
