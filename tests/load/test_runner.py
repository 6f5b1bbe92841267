"""The open loop: arrivals start on time whatever the contenders do."""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest
import uvloop

from harness.load import clock
from harness.load.clock import LoopAlarm, TimerfdAlarm, now
from harness.load.pacer import NANOSECONDS, offsets, share
from harness.load.runner import Runner


class Fleet:
    """Contenders that do what the test says, and a record of what the runner did with them."""

    def __init__(self, work: Callable[[], "asyncio.Future[None]"] | None = None) -> None:
        self.work = work
        self.served: list[tuple[int, int, int]] = []
        self.cancelled: list[int] = []
        self.given_up: list[tuple[int, str]] = []

    async def serve(self, contender: int, number: int, due: int) -> None:
        self.served.append((contender, number, due))
        if self.work is not None:
            try:
                await self.work()
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise

    def give_up(self, number: int, due: int, outcome: str) -> None:
        self.given_up.append((number, outcome))


async def test_every_arrival_is_served_once_and_none_early() -> None:
    lags: list[int] = []
    fleet = Fleet()
    runner = Runner(fleet.serve, fleet.give_up, contenders=10, observe_lag=lags.append)
    await runner.run(share(offsets(2000, 0.2), 0, 1), start=now())
    await runner.drain(10)
    assert sorted(number for _, number, _ in fleet.served) == list(range(400))
    assert runner.offered == runner.dispatched == 400
    assert len(lags) == 400
    assert min(lags) >= 0


async def test_arrivals_do_not_wait_for_completions() -> None:
    """All contenders hang, and the whole schedule is admitted nevertheless: the rest queues."""
    gate = asyncio.get_running_loop().create_future()
    fleet = Fleet(lambda: asyncio.shield(gate))
    runner = Runner(fleet.serve, fleet.give_up, contenders=3)
    await runner.run(share(offsets(1000, 0.1), 0, 1), start=now())
    assert (runner.offered, runner.dispatched, runner.busy, runner.backlog) == (100, 3, 3, 97)
    gate.set_result(None)
    await runner.drain(10)
    assert runner.dispatched == 100
    assert runner.backlog == 0
    assert runner.backlog_max == 97


async def test_the_backlog_is_served_in_order_of_arrival_with_the_original_due_time() -> None:
    gate = asyncio.get_running_loop().create_future()
    fleet = Fleet(lambda: asyncio.shield(gate))
    runner = Runner(fleet.serve, fleet.give_up, contenders=1)
    await runner.run(share(offsets(1000, 0.02), 0, 1), start=now())
    gate.set_result(None)
    await runner.drain(10)
    assert [(number, due) for _, number, due in fleet.served] == list(enumerate(offsets(1000, 0.02)))


async def test_all_contenders_take_their_turn() -> None:
    """A load that one contender could carry is still spread over the fleet."""
    fleet = Fleet()
    runner = Runner(fleet.serve, fleet.give_up, contenders=5)
    await runner.run(share(offsets(500, 0.1), 0, 1), start=now())
    await runner.drain(10)
    assert {contender for contender, _, _ in fleet.served} == set(range(5))


async def test_an_arrival_out_of_patience_leaves_the_backlog_as_timed_out() -> None:
    gate = asyncio.get_running_loop().create_future()
    fleet = Fleet(lambda: asyncio.shield(gate))
    runner = Runner(fleet.serve, fleet.give_up, contenders=1, patience=NANOSECONDS // 20)
    await runner.run(share(offsets(100, 0.3), 0, 1), start=now())
    assert runner.backlog < 29
    gate.set_result(None)
    await runner.drain(10)
    assert runner.expired == len(fleet.given_up) > 0
    assert {outcome for _, outcome in fleet.given_up} == {"timed_out"}
    assert runner.expired + runner.dispatched == 30


async def test_a_full_backlog_drops_and_counts() -> None:
    gate = asyncio.get_running_loop().create_future()
    fleet = Fleet(lambda: asyncio.shield(gate))
    runner = Runner(fleet.serve, fleet.give_up, contenders=1, backlog_limit=5)
    await runner.run(share(offsets(1000, 0.02), 0, 1), start=now())
    gate.set_result(None)
    await runner.drain(10)
    assert (runner.dispatched, runner.dropped) == (6, 14)
    assert [outcome for _, outcome in fleet.given_up] == ["abandoned"] * 14


async def test_stop_ends_the_schedule_and_abandon_ends_what_runs() -> None:
    fleet = Fleet(lambda: asyncio.get_running_loop().create_future())
    runner = Runner(fleet.serve, fleet.give_up, contenders=2)
    running = asyncio.create_task(runner.run(share(offsets(1000, 3600), 0, 1), start=now()))
    async with asyncio.timeout(30):
        while runner.backlog < 5:
            await asyncio.sleep(0.001)
    runner.stop()
    await running
    with pytest.raises(TimeoutError):
        await runner.drain(0.01)
    waiting = runner.backlog
    await runner.abandon()
    assert runner.busy == runner.backlog == 0
    assert fleet.cancelled == [0, 1]
    assert len(fleet.given_up) == waiting
    assert {outcome for _, outcome in fleet.given_up} == {"abandoned"}


async def test_a_stalled_loop_is_seen_as_lag_and_caught_up() -> None:
    """The generator's own lateness is measured, not hidden, and no arrival is lost to it."""
    lags: list[int] = []
    stall = count()

    async def serve(contender: int, number: int, due: int) -> None:
        if next(stall) == 10:
            until = now() + NANOSECONDS // 10
            while now() < until:
                pass

    runner = Runner(serve, lambda *_: None, contenders=100, observe_lag=lags.append)
    await runner.run(share(offsets(1000, 0.3), 0, 1), start=now())
    await runner.drain(10)
    assert runner.offered == 300
    assert max(lags) > 0.09 * NANOSECONDS


async def test_contenders_that_keep_the_loop_busy_make_nobody_late() -> None:
    """One turn of the loop takes half a second in all, and every arrival in it is admitted at its time.

    Judged by the order of events alone: each step of a contender admits what has become due by then.
    """
    missed: list[int] = []

    async def serve(contender: int, number: int, due: int) -> None:
        until = now() + NANOSECONDS // 200
        while now() < until:
            pass
        at = now()
        if at >= runner.due:
            runner.admit()
        if runner.due <= at:
            missed.append(number)

    runner = Runner(serve, lambda *_: None, contenders=100)
    await runner.run(share(offsets(200, 0.5), 0, 1), start=now() - NANOSECONDS // 10)
    await runner.drain(30)
    assert runner.offered == 100
    assert missed == []


async def test_nobody_begins_without_room_and_the_backlog_keeps_its_order() -> None:
    fleet = Fleet()
    open_ = False
    runner = Runner(fleet.serve, fleet.give_up, contenders=1, room=lambda beginning: open_)
    await runner.run(share(offsets(1000, 0.02), 0, 1), start=now())
    assert (runner.offered, runner.dispatched, runner.backlog) == (20, 0, 20)
    open_ = True
    await runner.drain(30)
    assert [number for _, number, _ in fleet.served] == list(range(20))


async def test_what_is_as_good_as_out_of_patience_is_not_begun() -> None:
    """First come, first served, a saturated fleet would otherwise only begin what gives up on the way."""
    fleet = Fleet()
    runner = Runner(
        fleet.serve, fleet.give_up, contenders=10, patience=100 * NANOSECONDS, room=lambda beginning: late
    )
    late = False
    await runner.run(iter([(0, 0), (1, 50 * NANOSECONDS)]), start=now() - 99 * NANOSECONDS)
    late = True
    await runner.drain(30)
    assert fleet.given_up == [(0, "timed_out")]
    assert [number for _, number, _ in fleet.served] == [1]


async def test_a_rate_beyond_all_means_still_lets_contenders_run() -> None:
    """The admission loop yields between batches: contenders finish before the schedule does."""
    order: list[str] = []

    async def serve(contender: int, number: int, due: int) -> None:
        order.append("served")

    runner = Runner(serve, lambda *_: None, contenders=1000, observe_lag=lambda lag: order.append("admitted"))
    await runner.run(share(offsets(1e9, 2e-6), 0, 1), start=now() - NANOSECONDS)
    await runner.drain(10)
    assert order.count("served") == 2000
    assert order.index("served") < 500


async def test_a_defect_in_a_contender_stops_the_run_and_is_raised() -> None:
    async def serve(contender: int, number: int, due: int) -> None:
        raise ZeroDivisionError("a defect")

    runner = Runner(serve, lambda *_: None, contenders=1)
    await runner.run(share(offsets(100, 3600), 0, 1), start=now())
    with pytest.raises(ZeroDivisionError, match="a defect"):
        await runner.drain(10)


@pytest.mark.parametrize("alarm_type", [TimerfdAlarm, LoopAlarm])
@pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])
def test_an_alarm_never_fires_early(alarm_type: type[TimerfdAlarm] | type[LoopAlarm], uv: bool) -> None:
    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        early: list[int] = []
        for _ in range(20):
            fired = loop.create_future()
            alarm = alarm_type(loop, lambda fired=fired: fired.set_result(now()))  # type: ignore[misc]
            at = now() + 1_700_000
            alarm.arm(at)
            early.append(at - await asyncio.wait_for(fired, 30))
            alarm.close()
        return early

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uv else None) as runner:
        assert max(runner.run(scenario())) <= 0


async def test_an_alarm_can_be_moved_and_disarmed() -> None:
    loop = asyncio.get_running_loop()
    fired: list[int] = []
    alarm = clock.make_alarm(loop, lambda: fired.append(now()))
    alarm.arm(now() + 3600 * NANOSECONDS)
    alarm.arm(now() - 1)
    async with asyncio.timeout(30):
        while not fired:
            await asyncio.sleep(0.001)
    alarm.arm(now() + NANOSECONDS // 100)
    alarm.disarm()
    await asyncio.sleep(0.05)
    assert len(fired) == 1
    alarm.close()
    alarm.close()


async def test_a_run_that_is_steered_lasts_until_its_end_and_takes_arrivals_until_then() -> None:
    fleet = Fleet()
    runner = Runner(fleet.serve, fleet.give_up, contenders=5)
    course = share(iter([0]), 0, 1)
    running = asyncio.create_task(runner.run(course, start=now(), until=NANOSECONDS))
    async with asyncio.timeout(30):
        while not fleet.served:
            await asyncio.sleep(0.01)
        at = now() - runner.start + NANOSECONDS // 10
        runner.look_again(void=course.exchange(at, iter([at, at + 1])))
        await running
        await runner.drain(10.0)
    assert [number for _, number, _ in fleet.served] == [0, 1, 2]
    assert now() - runner.start >= NANOSECONDS


async def test_no_run_ends_before_its_time() -> None:
    """Of 50 bare timers of uvloop, about a third fire up to a millisecond early."""
    early = []
    for tenths in range(50):
        fleet = Fleet()
        runner = Runner(fleet.serve, fleet.give_up, contenders=1)
        until = (10_000 + 100 * tenths) * 1_000
        await runner.run(share(iter([0]), 0, 1), start=now(), until=until)
        early.append(runner.start + until - now())
        await runner.drain(10.0)
    assert max(early) <= 0


async def test_an_arrival_that_was_taken_back_never_comes() -> None:
    fleet = Fleet()
    runner = Runner(fleet.serve, fleet.give_up, contenders=5)
    far = 3600 * NANOSECONDS
    course = share(iter([0, far]), 0, 1)
    running = asyncio.create_task(runner.run(course, start=now(), until=NANOSECONDS // 2))
    async with asyncio.timeout(30):
        while not fleet.served:
            await asyncio.sleep(0.01)
        runner.look_again(void=course.exchange(NANOSECONDS // 4, iter(())))
        await running
    assert runner.offered == 1
