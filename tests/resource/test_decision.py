"""The safety argument, without a server."""

from hypothesis import given
from hypothesis import strategies as st

from harness.history.rows import digest
from harness.resource.decision import (
    READ,
    REMEMBERED,
    Fencing,
    Mark,
    Outcome,
    State,
    Write,
    is_remembered,
    judge,
    raised,
)

tokens = st.integers(min_value=1, max_value=6)
seqs = st.integers(min_value=0, max_value=2)


def a_write(token: int, seq: int = 0, *, body: bytes = b"", expected: int | None = None) -> Write:
    return Write("key", token, seq, body, digest(body), started=0, expected=expected)


def test_a_write_needs_a_token_above_every_token_accepted_before() -> None:
    mark = raised(Mark(), 33, 0)
    assert mark == Mark(33, 0)
    assert raised(mark, 33, 0) is None
    assert raised(mark, 32, 0) is None
    assert raised(mark, 34, 0) == Mark(34, 0)


def test_one_holder_orders_its_writes_by_sequence_number() -> None:
    mark = raised(Mark(), 33, 0)
    assert mark is not None
    mark = raised(mark, 33, 1)
    assert mark == Mark(33, 1)
    assert raised(mark, 33, 1) is None
    assert raised(mark, 33, 0) is None
    assert raised(mark, 32, 9) is None
    assert raised(mark, 34, 0) == Mark(34, 0)


def test_a_read_shuts_older_holders_out_and_its_own_holder_not() -> None:
    mark = raised(Mark(33, 7), 34, READ)
    assert mark == Mark(34, READ)
    assert raised(mark, 33, 8) is None
    assert raised(mark, 33, READ) is None
    assert raised(mark, 34, 0) == Mark(34, 0)


def test_a_read_never_lowers_the_mark_of_its_own_holders_writes() -> None:
    mark = raised(Mark(34, 5), 34, READ)
    assert mark == Mark(34, 5)
    assert raised(mark, 34, 5) is None


@given(st.lists(st.tuples(tokens, st.one_of(st.just(READ), seqs))))
def test_accepted_operations_never_run_backwards(operations: list[tuple[int, int]]) -> None:
    """Equal to the rule in words: no lower than every token let in, above every write let in."""
    mark = Mark()
    admitted: list[tuple[int, int]] = []
    for token, seq in operations:
        after = raised(mark, token, seq)
        not_below = all(token >= earlier for earlier, _ in admitted)
        exceeds = all((token, seq) > write for write in admitted if write[1] != READ)
        assert (after is not None) == (not_below and (seq == READ or exceeds))
        if after is not None:
            assert after >= mark
            mark = after
            admitted.append((token, seq))
        assert mark.token == max((earlier for earlier, _ in admitted), default=0)


@given(st.lists(st.tuples(tokens, seqs, st.binary(max_size=1))))
def test_what_was_accepted_is_recognised_as_repeated_and_nothing_else_is(
    writes: list[tuple[int, int, bytes]],
) -> None:
    state, accepted = State(), list[tuple[int, int, bytes]]()
    for token, seq, body in writes:
        write = a_write(token, seq, body=body)
        before = state
        outcome, state = judge(Fencing.ON, before, write)
        known = (token, seq, body) in accepted[-REMEMBERED:]
        assert (outcome is Outcome.REPEATED) == known
        if outcome is Outcome.STALE and is_remembered(before, write):
            assert (token, seq, body) not in accepted
        if outcome is Outcome.ACCEPTED:
            accepted.append((token, seq, body))


@given(st.lists(st.tuples(tokens, seqs)))
def test_without_fencing_every_write_is_accepted_and_the_mark_still_never_falls(
    writes: list[tuple[int, int]],
) -> None:
    state = State()
    for number, (token, seq) in enumerate(writes, start=1):
        before = state.mark
        outcome, state = judge(Fencing.OFF, state, a_write(token, seq))
        assert outcome is Outcome.ACCEPTED
        assert (state.token, state.seq, state.version) == (token, seq, number)
        assert state.mark == max(before, Mark(token, seq))


def test_a_stale_token_is_refused_before_the_version_is_looked_at() -> None:
    _, state = judge(Fencing.ON, State(), a_write(5))
    assert judge(Fencing.ON, state, a_write(4, expected=1)) == (Outcome.STALE, state)
    assert judge(Fencing.ON, state, a_write(6, expected=0)) == (Outcome.CONFLICT, state)
    assert judge(Fencing.ON, state, a_write(6, expected=1))[0] is Outcome.ACCEPTED
