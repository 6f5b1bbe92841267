"""What the scripts do on a real server is what the model allows; a bug in a script is found in its trace."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

import asyncdlock
from asyncdlock import AcquireTimeout, LockClient, LockError
from harness.history.rows import Row
from harness.servers.redis_node import RedisNode, redis
from harness.trace.grants import strangers
from harness.trace.monitor import LockSnapshot, MonitorLog, recorded
from harness.trace.redis_queue import Replay, names_of
from tests.trace.planted import SCRIPTS, planted

KEY = "a key"
TTL = 0.3


@pytest.fixture
async def node() -> AsyncIterator[RedisNode]:
    async with redis() as one:
        yield one


async def visit(client: LockClient, rng: random.Random, rows: list[Row]) -> None:
    """Most are quick; some give up waiting, and some sleep through the end of their lease."""
    overstays = rng.random() < 0.05
    try:
        handle = await client.acquire(KEY, ttl=TTL, timeout=rng.choice((0.01, 5.0)), renew=not overstays)
    except AcquireTimeout:
        return
    rows.append(Row(len(rows), 0, 0, KEY, 0, owner=handle.owner, fence=handle.fence))
    await asyncio.sleep(1.5 * TTL if overstays else 0.002 * rng.random())
    if rng.random() < 0.2:
        await asyncio.gather(handle.renew(), return_exceptions=True)
    await handle.release()


async def traced(node: RedisNode, *, visits: int = 25) -> tuple[MonitorLog, list[Row]]:
    """Three processes' worth of clients: two hand the lock on among their own, one does not."""
    rows: list[Row] = []
    url = node.url.replace("redis://", "redis-queue://")

    async def contend(client: LockClient, seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(visits):
            try:
                await visit(client, rng, rows)
            except LockError:  # of a script with a bug
                await asyncio.sleep(0.01)

    async with recorded(node, [names_of(KEY)]) as log:
        options: list[dict[str, Any]] = [{}, {"local_handoffs": 0}, {"local_handoffs": 2}]
        clients = [asyncdlock.connect(url, **one) for one in options]
        with suppress(LockError):  # of a script with a bug
            # One visit far from the end of its lease, with nobody waiting: of such alone it is always certain
            # what the server had to do.
            await (await clients[0].acquire(KEY, ttl=10 * TTL)).release()
        try:
            async with asyncio.timeout(60.0):
                await asyncio.gather(*(contend(clients[n % 3], n) for n in range(9)))
        except TimeoutError:
            pass  # a bug may leave them waiting: what was done until now is judged
        for client in clients:
            await client.aclose()
    return log, rows


async def test_every_step_of_the_server_is_one_of_the_model(node: RedisNode) -> None:
    log, rows = await traced(node)
    replay = Replay().run(log)
    assert replay.complaints == []
    assert replay.steps > 100
    assert len({row.fence for row in rows}) == len(rows) > 50
    assert strangers(rows, replay.blocks) == []


async def test_a_grant_that_the_server_never_made_is_found(node: RedisNode) -> None:
    log, rows = await traced(node, visits=2)
    rows[0].fence = 10**6
    (complaint,) = strangers(rows, Replay().run(log).blocks)
    assert "never gave" in complaint


async def test_a_restart_is_a_gap_behind_which_the_replay_goes_on(node: RedisNode) -> None:
    url = node.url.replace("redis://", "redis-queue://")
    async with recorded(node, [names_of(KEY)]) as log, asyncdlock.connect(url) as client:
        async with client.hold(KEY):
            pass
        before = len(log.calls)
        await node.restart()
        while not any(log.snapshots[mark] for mark in list(log.snapshots)[1:]):  # it looks again by itself
            await asyncio.sleep(0.01)
        async with client.hold(KEY):
            pass
    replay = Replay().run(log)
    assert replay.complaints == []
    assert len(log.calls) > before
    assert log.gaps


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("release", "local owned = holder == OWNER", "local owned = holder", "though"),
        ("release", "granted then\n  redis.call('DEL', LOCK)", "granted then", "who released it"),
        ("acquire", "'NX', place, MEMBER", "'NX', -place, MEMBER", "before others"),
        ("acquire", "if not holder then", "if holder ~= OWNER then", "though"),
        ("acquire", "redis.call('INCRBY', KEYS[2], fences)", "redis.call('INCRBY', KEYS[2], 0)", "counter"),
        ("release", "'ZPOPMIN', QUEUE", "'ZPOPMAX', QUEUE", "ZPOPMAX"),
        ("watch", "granted = grant_next() or granted", "granted = {}", "nobody has got it"),
    ],
)
async def test_a_bug_in_a_script_is_found(
    node: RedisNode, name: str, old: str, new: str, complaint: str
) -> None:
    with planted(name, old, new):
        log, _ = await traced(node, visits=6)
        found = Replay().run(log).complaints
    assert any(complaint in one for one in found), found[:5]


OWNERS = [f"{number}{'0' * 35}" for number in range(3)]
NOT_NEXT = "who is not next"


def doctored(granted: str, *, gap_before: int | None = None) -> MonitorLog:
    """A log as it is written: of two in the queue the lock goes to `granted`."""
    lock, counter, queue = names_of(KEY)
    release = SCRIPTS.release.source.replace("\n", "\\n").replace('"', '\\"')
    lines = [
        f'1.0 [0 127.0.0.1:1] "EVAL" "…" "3" "{lock}" "{counter}" "{queue}" "asyncdlock-trace 0"',
        f'2.0 [0 ::1] "EVAL" "{release}" "4" "{lock}" "{counter}" "{queue}" "s" "{OWNERS[0]}" "9"',
        f'2.0 [0 lua] "GET" "{lock}"',
        f'2.0 [0 lua] "ZPOPMIN" "{queue}"',
        f'2.0 [0 lua] "INCRBY" "{counter}" "1"',
        f'2.0 [0 lua] "SET" "{lock}" "{granted}" "PX" "9000"',
        f'2.0 [0 lua] "PUBLISH" "asyncdlock:x" "{granted} 8 2000 {lock}"',
    ]
    waiting = [(f"{OWNERS[1]} 9000 1", 1.0), (f"{OWNERS[2]} 9000 1", 2.0)]
    mark = "asyncdlock-trace 0"
    log = MonitorLog(snapshots={mark: [LockSnapshot(mark, lock, OWNERS[0], 9000, 7, waiting)]})
    for line in lines:
        log.add(line.encode())
    if gap_before is not None:
        log.gaps.append(gap_before)
    return log


def test_a_doctored_trace_is_found() -> None:
    for granted, wrong in ((OWNERS[1], False), (OWNERS[2], True)):
        complaints = Replay().run(doctored(granted)).complaints
        assert any(NOT_NEXT in complaint for complaint in complaints) == wrong


@pytest.mark.parametrize(
    ("gap_before", "judged"),
    [(0, True), (1, False), (2, False)],
    ids=["before the look", "not looked at again yet", "cut off in the step"],
)
def test_what_may_be_missing_is_not_held_against_a_step(gap_before: int, judged: bool) -> None:
    assert bool(Replay().run(doctored(OWNERS[2], gap_before=gap_before)).complaints) == judged
