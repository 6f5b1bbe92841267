"""Signed fences: a client can carry one and cannot make one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdlock.fencing.signed import FenceSigner, InvalidSignature

OLD, NEW = b"an old secret of some length", b"a new secret of some length"
keys = st.text(min_size=1, max_size=40)
fences = st.integers(1, 2**63 - 1)


@given(keys, fences)
def test_what_was_signed_is_believed(key: str, fence: int) -> None:
    signer = FenceSigner({"1": OLD})
    assert signer.verify(key, signer.sign(key, fence)) == fence


@given(keys, fences, keys, fences)
def test_for_no_other_key_and_no_other_fence(key: str, fence: int, other: str, larger: int) -> None:
    signer = FenceSigner({"1": OLD})
    token = signer.sign(key, fence)
    if other != key:
        with pytest.raises(InvalidSignature):
            signer.verify(other, token)
    if larger != fence:
        with pytest.raises(InvalidSignature):
            signer.verify(key, f"{larger}.{token.partition('.')[2]}")


def test_secrets_rotate() -> None:
    before, both, after = FenceSigner({"1": OLD}), FenceSigner({"1": OLD, "2": NEW}), FenceSigner({"2": NEW})
    assert both.verify("k", before.sign("k", 7)) == 7
    assert after.verify("k", both.sign("k", 8)) == 8
    with pytest.raises(InvalidSignature):
        after.verify("k", before.sign("k", 9))


def test_the_same_name_with_another_secret_is_not_believed() -> None:
    with pytest.raises(InvalidSignature):
        FenceSigner({"1": NEW}).verify("k", FenceSigner({"1": OLD}).sign("k", 7))


@pytest.mark.parametrize(
    "token", ["", "7", "7.1", "7.1.", "-7.1.x", "٧.1.x", "7.1.é", "..", "7.nobody.x", "9" * 5000 + ".1.x"]
)
def test_whatever_else_a_client_sends_is_refused(token: str) -> None:
    with pytest.raises(InvalidSignature):
        FenceSigner({"1": OLD}).verify("k", token)


@pytest.mark.parametrize("secrets", [{}, {"": OLD}, {"a.b": OLD}, {"1": b"short"}])
def test_secrets_that_are_none(secrets: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="secret"):
        FenceSigner(secrets)


def test_secrets_are_not_shown() -> None:
    assert "old secret" not in repr(FenceSigner({"1": OLD}))
