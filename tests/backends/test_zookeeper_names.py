"""Paths, names, order and URLs of `zookeeper://`: no server needed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.recipe.lock import Lock, ReadLock

from asyncdlock.backend import open_backend
from asyncdlock.backends.zookeeper.backend import FENCE_SCALE, ZooKeeperBackend
from asyncdlock.backends.zookeeper.names import Contenders, NotQueued, parent_of, path_key, prefix_of
from asyncdlock.backends.zookeeper.sessions import session_timeout
from asyncdlock.types import owners

KEYS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1, max_size=60)

# PathUtils.validatePath of the Java server, which sees UTF-16 units.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


@pytest.mark.parametrize(
    "key", ["account:42", "a", "été", "a b", "tenant/7/report", "x__lock__", "-lock-1", "a_b.c"]
)
def test_a_plain_key_stands_in_its_path_as_it_is(key: str) -> None:
    assert parent_of(key) == f"/locks/{key}"


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("/", "/locks/%2F"),
        ("/a", "/locks/%2Fa"),
        ("a/", "/locks/a%2F"),
        ("a//b", "/locks/a/%2Fb"),
        (".", "/locks/%2E"),
        ("a/../b", "/locks/a/%2E%2E/b"),
        ("50%", "/locks/50%25"),
        ("tab\t", "/locks/tab%09"),
        ("😀", "/locks/%F0%9F%98%80"),
        ("a/x__lock__0000000001", "/locks/a/x__lock_%5F0000000001"),
        ("x__rlock__-000000001", "/locks/x__rlock__-000000001"),
        ("x__rlock__-0000000001", "/locks/x__rlock__%2D0000000001"),
    ],
)
def test_what_zookeeper_would_refuse_or_confuse_is_encoded(key: str, path: str) -> None:
    assert parent_of(key) == path


@given(KEYS)
def test_every_key_has_a_valid_path_of_its_own(key: str) -> None:
    path = parent_of(key)
    components = path.split("/")[1:]
    assert path_key(path) == key
    assert not _REFUSED.search(path)
    assert not {"", ".", ".."} & set(components)
    assert len(Contenders(components)) == 0


def test_a_claim_is_named_as_kazoo_names_its_own() -> None:
    """Same pattern as kazoo's `Lock.prefix`: 32 hexadecimal digits, then the kind."""
    ours = prefix_of(next(owners()))
    assert re.fullmatch(r"[0-9a-f]{32}" + Lock._NODE_NAME, ours)


def test_owners_that_are_no_uuids_keep_names_of_their_own() -> None:
    names = {prefix_of(owner) for owner in ("a-b", "ab", "a/b", "a%2Fb", "0f-00")}
    assert len(names) == 5
    assert not any("/" in name for name in names)


def test_the_queue_is_ordered_by_sequence_whatever_the_names() -> None:
    queue = Contenders(
        [
            "ffff__lock__0000000003",
            "0000__lock__0000000012",
            "aaaa__rlock__0000000007",
            "_c_1234-lock-0000000009",
            "config",
            "b",
        ]
    )
    assert len(queue) == 4
    assert queue.ahead_of("ffff__lock__0000000003") == []
    assert queue.ahead_of("0000__lock__0000000012") == ["_c_1234-lock-0000000009"]
    assert queue.named("0000__lock__") == ["0000__lock__0000000012"]


def test_readers_wait_for_writers_and_permits_for_each_other() -> None:
    queue = Contenders(
        [
            "aaaa__lock__0000000001",
            "bbbb__rlock__0000000002",
            "cccc.2__rlock__0000000003",
            "dddd.2__rlock__0000000004",
            "eeee-lock-0000000005",
            "ffff__rlock__0000000006",
        ]
    )
    assert queue.ahead_of("bbbb__rlock__0000000002", 0) == ["aaaa__lock__0000000001"]
    assert queue.ahead_of("ffff__rlock__0000000006", 0) == ["eeee-lock-0000000005"]
    assert queue.ahead_of("dddd.2__rlock__0000000004", 2) == ["aaaa__lock__0000000001"]
    first_two = ["cccc.2__rlock__0000000003", "bbbb__rlock__0000000002"]
    left = Contenders([*first_two, "dddd.2__rlock__0000000004"])
    assert left.ahead_of("bbbb__rlock__0000000002", 0) == []
    assert left.ahead_of("cccc.2__rlock__0000000003", 2) == []
    assert left.ahead_of("dddd.2__rlock__0000000004", 2) == [
        "cccc.2__rlock__0000000003",
        "bbbb__rlock__0000000002",
    ]
    assert prefix_of("x", 0) == "x" + ReadLock._NODE_NAME


def test_a_node_that_is_gone_is_never_first() -> None:
    queue = Contenders(["aaaa__lock__0000000002"])
    for absent in ("bbbb__lock__0000000001", "bbbb__lock__0000000002", "bbbb__lock__0000000003"):
        with pytest.raises(NotQueued):
            queue.ahead_of(absent)


@pytest.mark.parametrize(
    ("ttl", "timeout"),
    [
        (0.2, 0.2),
        (0.99, 1.0),
        (1.01, 1.2),
        (4.2, 5.0),
        (10.0, 10.0),
        (30.0, 30.0),
        (31.0, 40.0),
        (90.0, 100.0),
    ],
)
def test_a_session_lasts_as_long_as_its_ttl_rounded_up_to_one_of_few_timeouts(
    ttl: float, timeout: float
) -> None:
    assert session_timeout(ttl) == pytest.approx(timeout)


@given(st.floats(0.2, 10**5))
def test_a_session_never_lasts_less_than_its_ttl(ttl: float) -> None:
    """To the millisecond, in which servers count."""
    assert ttl - 0.001 <= session_timeout(ttl) <= ttl * 1.34 + 0.001


def test_a_url_names_servers_credentials_a_chroot_and_options() -> None:
    backend = open_backend(
        "zookeeper://me:p%40ss@h1:2182,h2,[::1]:2183/team/a/?local_queue=off&connect_timeout=2.5",
        {"local_handoffs": 16},
    )
    assert isinstance(backend, ZooKeeperBackend)
    assert backend._sessions.ensemble.hosts == [("h1", 2182), ("h2", 2181), ("::1", 2183)]
    assert backend._sessions.ensemble.credentials == "me:p@ss"
    assert backend._sessions.ensemble.connect_timeout == 2.5
    assert backend._chroot == "/team/a"
    assert (backend.local_queue, backend.local_handoffs) == (False, 16)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("zookeeper://", "not a host"),
        ("zookeeper://h1,,h2", "not a host"),
        ("zookeeper://h1:port", "not a port"),
        ("zookeeper://h1:0", "not a port"),
        ("zookeeper://me@h1", "both a user and a password"),
        ("zookeeper://h1/a//b", "no ZooKeeper path"),
        ("zookeeper://h1/a/../b", "no ZooKeeper path"),
        ("zookeeper://h1?ca_file=/etc/ca.pem", "write zookeepers:// or tls=true"),
        ("zookeeper://h1?tls=on&cert_file=/etc/cert.pem", "both cert_file and key_file"),
        ("zookeeper://h1?tls=on&ca_file=/no/such/file", "certificates cannot be read"),
        ("zookeeper://h1?tickets=1", "unknown option 'tickets'"),
        ("zookeeper://h1?local_queue=maybe", "true or false"),
        ("zookeeper://h1?connect_timeout=soon", "positive number of seconds"),
        ("zookeeper://h1?connect_timeout=inf", "positive number of seconds"),
        ("zookeeper://h1?local_handoffs=-1", "whole number"),
        (f"zookeeper://h1?local_handoffs={FENCE_SCALE}", f"0..{FENCE_SCALE - 1}"),
    ],
)
def test_a_bad_url_is_refused_with_a_sentence(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        open_backend(url, {})


def test_a_bad_url_never_shows_its_password() -> None:
    with pytest.raises(ValueError) as caught:
        open_backend("zookeeper://me:secret@h1:port", {})
    assert "secret" not in str(caught.value)
