"""Doctored runs of locks that broke their promise, and of locks that only seem to have done so."""

from tests.histories.doctored import MS, Run, ok, unknown, violated

BROKE = "the lock broke its promise"


@ok
def nothing_was_changed(run: Run) -> None:
    pass


@violated("holders", BROKE)
def two_holders_and_nobody_paused(run: Run) -> None:
    run.hold(1, 3)
    run.in_order()


@violated("holders", BROKE)
def nobody_was_excluded(run: Run) -> None:
    for number in (0, 1, 3, 4, 6, 7):
        run.hold(number, 1)
    for number in (0, 1, 3, 4, 6):
        run.refuse(number, 8)
    run.log.sort(key=lambda decision: -decision.token)
    for place, decision in enumerate(run.log):
        decision.decided += place
    run.in_order()


@violated("holders", BROKE)
def nobody_was_excluded_and_nobody_said_until_when(run: Run) -> None:
    run.hold(1, 3)
    run.in_order()
    run.as_before(ttl=False)


@unknown("holders", "nothing tells whether that one's lease had ended")
def two_holders_within_the_ttl_as_recorded_before(run: Run) -> None:
    """A lease that several locks share may have been older than the call."""
    run.hold(1, 3)
    run.rows[0].outcome = "lost"
    run.rows[1].outcome = "failed"
    run.in_order()
    run.rows[0].write_sent = 4 * MS
    run.rows[0].write_done = run.rows[0].releasing = 5 * MS
    run.decision(0).started = run.decision(0).decided = 4 * MS + 1
    run.as_before()


@violated("holders", BROKE)
def a_renewed_holder_was_displaced(run: Run) -> None:
    row, decision = run.rows[0], run.decision(0)
    row.valid_until = 5000 * MS
    row.write_sent, row.write_done, row.releasing, row.released = (
        2500 * MS,
        2503 * MS,
        2504 * MS,
        2505 * MS,
    )
    decision.started, decision.decided = 2501 * MS, 2502 * MS
    run.refuse(0, 8)
    run.in_order()


@violated("holders", BROKE)
def a_frozen_holder_was_displaced_before_its_time(run: Run) -> None:
    row, decision = run.rows[0], run.decision(0)
    row.paused = True
    row.write_sent, row.write_done, row.releasing, row.released = (
        2500 * MS,
        2503 * MS,
        2504 * MS,
        2505 * MS,
    )
    decision.started, decision.decided = 2501 * MS, 2502 * MS
    run.refuse(0, 8)
    run.in_order()


@violated("holders", BROKE)
def a_lost_holder_was_displaced_before_it_could_know(run: Run) -> None:
    row, decision = run.rows[0], run.decision(0)
    row.outcome = "lost"
    row.write_sent, row.write_done, row.releasing, row.released = (150 * MS, 153 * MS, 154 * MS, 155 * MS)
    decision.started, decision.decided = 151 * MS, 152 * MS
    decision.outcome = row.write = "stale"
    row.seen = 2
    run.in_order()


@violated("holders", "under a lower fence")
def a_later_hold_has_a_lower_fence(run: Run) -> None:
    """Their calls overlap, so the order of the calls allows either."""
    run.rows[1].called = run.rows[1].intended = run.rows[1].dispatched = 0
    run.rows[0].fence, run.rows[1].fence = 2, 1
    run.decision(0).token, run.decision(1).token = 2, 1
    run.refuse(1, 2)
    run.in_order()


@violated("holders", BROKE)
def two_holders_in_two_processes(run: Run) -> None:
    run.processes(2)
    run.rows[0].releasing = run.rows[0].released = 90 * MS
    run.hold(1, 40)
    run.in_order()


@violated("fence_order", "went back")
def fences_of_two_processes_went_back(run: Run) -> None:
    run.processes(2)
    run.rows[3].fence = run.decision(3).token = 1
    run.rows[0].fence = run.decision(0).token = 4
    run.refuse(3, 4)
    run.in_order()


@violated("fence_order", "granted 2 times")
def one_fence_for_two_holders(run: Run) -> None:
    run.rows[1].fence = run.decision(1).token = 1
    run.refuse(1, 1)
    run.in_order()


@violated("fence_order", "outside 1")
def a_fence_beyond_all_fences(run: Run) -> None:
    run.rows[7].fence = run.decision(7).token = 2**63
    run.in_order()


@ok
def processes_whose_clocks_agree(run: Run) -> None:
    run.processes(2)


@ok
def a_process_whose_clock_is_ahead(run: Run) -> None:
    run.processes(2)
    run.skew(1, 250)


@ok
def a_process_whose_clock_is_behind(run: Run) -> None:
    run.processes(3)
    run.skew(2, -950)


@ok
def a_resource_on_another_clock(run: Run) -> None:
    for decision in run.log:
        decision.started += 77_777 * MS
        decision.decided += 77_777 * MS


@ok
def a_frozen_holder_was_displaced_after_its_time(run: Run) -> None:
    row, decision = run.rows[0], run.decision(0)
    row.paused = True
    row.write_sent, row.write_done, row.releasing, row.released = (
        2500 * MS,
        2503 * MS,
        2504 * MS,
        2505 * MS,
    )
    decision.started, decision.decided = 2501 * MS, 2502 * MS
    for number in (1, 3, 4, 6, 7):
        run.hold(number, 1000 + 100 * number)
    run.refuse(0, 8)
    run.in_order()


@ok
def a_frozen_holder_as_recorded_before(run: Run) -> None:
    row, decision = run.rows[0], run.decision(0)
    row.paused = True
    row.write_sent, row.write_done, row.released = (2500 * MS, 2503 * MS, 2505 * MS)
    decision.started, decision.decided = 2501 * MS, 2502 * MS
    for number in (1, 3, 4, 6, 7):
        run.hold(number, 1000 + 100 * number)
    run.refuse(0, 8)
    run.in_order()
    run.as_before()


@ok
def a_frozen_holder_displaced_though_its_release_succeeded(run: Run) -> None:
    """Nothing says until when it was valid: it may have been displaced by right."""
    row, decision = run.rows[0], run.decision(0)
    row.paused = True
    row.write_sent, row.write_done, row.released = (150 * MS, 153 * MS, 155 * MS)
    decision.started, decision.decided = 151 * MS, 152 * MS
    run.hold(1, 154)
    run.in_order()
    run.as_before(ttl=False)


@ok
def a_holder_whose_lease_was_older_than_its_call(run: Run) -> None:
    """It shared the lease of its session, and was displaced when that ended: within a TTL of its call."""
    row, decision = run.rows[0], run.decision(0)
    row.outcome, row.write = "lost", "none"
    row.write_sent, row.write_done, row.releasing, row.released = (None, None, 155 * MS, 156 * MS)
    row.valid_until = 50 * MS
    run.log.remove(decision)
    run.hold(1, 60)
    run.in_order()


@ok
def a_lost_holder_that_was_told_in_time(run: Run) -> None:
    row = run.rows[0]
    row.outcome, row.write = "lost", "none"
    row.write_sent = row.write_done = None
    row.releasing, row.released = 150 * MS, 155 * MS
    run.log.remove(run.decision(0))
    run.in_order()


@ok
def a_renewed_holder_outlives_its_ttl(run: Run) -> None:
    row, decision = run.rows[7], run.decision(7)
    row.valid_until = 9000 * MS
    row.write_sent, row.write_done, row.releasing, row.released = (
        8500 * MS,
        8503 * MS,
        8504 * MS,
        8505 * MS,
    )
    decision.started, decision.decided = 8501 * MS, 8502 * MS
    run.in_order()


@ok
def handed_over_in_the_same_nanosecond(run: Run) -> None:
    run.hold(1, 5)
    run.rows[0].releasing = run.rows[1].granted
    run.in_order()


@ok
def a_long_wait_as_recorded_before(run: Run) -> None:
    """Called long before it was granted: its TTL counts from nobody knows when."""
    run.rows[7].called = run.rows[7].intended = run.rows[7].dispatched = 0
    run.hold(7, 4000, called=0)
    run.in_order()
    run.as_before()


@ok
def as_recorded_before(run: Run) -> None:
    run.as_before()


@ok
def calls_that_overlap_and_fences_in_the_order_of_holds(run: Run) -> None:
    for number in (1, 3, 4, 6, 7):
        run.rows[number].called = run.rows[number].intended = run.rows[number].dispatched = 0
        run.rows[number].valid_until = 2000 * MS
