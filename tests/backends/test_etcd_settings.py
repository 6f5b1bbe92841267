"""An etcd:// URL means what it says, and says so when it does not."""

import pytest

from asyncdlock.backends.etcd import from_url
from asyncdlock.backends.etcd.settings import parse


def test_several_members_with_and_without_ports() -> None:
    assert parse("etcd://a,b:1234,[::1]:99,[::2]", {}).endpoints == (
        "a:2379",
        "b:1234",
        "[::1]:99",
        "[::2]:2379",
    )


def test_credentials_are_percent_decoded() -> None:
    settings = parse("etcd://al%40ice:s%3Aecret@host", {})
    assert (settings.user, settings.password) == ("al@ice", "s:ecret")


def test_a_path_replaces_the_prefix() -> None:
    assert parse("etcd://host", {}).prefix == "/locks"
    assert parse("etcd://host/", {}).prefix == "/locks"
    assert parse("etcd://host/team/jobs/", {}).prefix == "/team/jobs"


def test_query_and_options_say_the_same() -> None:
    url = parse("etcds://host?ca_file=/ca.pem&local_queue=off&local_handoffs=8&timeout=1.5", {})
    options = parse(
        "etcds://host", {"ca_file": "/ca.pem", "local_queue": False, "local_handoffs": 8, "timeout": 1.5}
    )
    assert url == options
    assert url.tls and not url.local_queue


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("etcd://", "not a host"),
        ("etcd://a,,b", "not a host"),
        ("etcd://a:b:c", "not a host"),
        ("etcd://host:http", "not a port"),
        ("etcd://host:99999", "not a port"),
        ("etcd://user@host", "user:password@host"),
        ("etcd://host?colour=red", "unknown option 'colour' for etcd://: it takes attempt_timeout, ca_file"),
        ("etcd://host?local_queue=maybe", "true or false"),
        ("etcd://host?local_handoffs=-1", "at least 0"),
        ("etcd://host?timeout=0", "positive number"),
        ("etcd://host?timeout=soon", "timeout must be a positive number of seconds up to 3600"),
        ("etcd://host?ca_file=/ca.pem", "etcds://"),
        ("etcds://host?cert_file=/c.pem", "both cert_file and key_file"),
    ],
)
def test_a_bad_url_is_refused_with_a_reason_and_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refused:
        from_url(url.replace("etcd://host", "etcd://me:sesame@host"))
    assert "sesame" not in str(refused.value)


def test_opening_needs_neither_a_server_nor_an_event_loop() -> None:
    backend = from_url("etcd://nowhere.invalid:1")
    assert backend.commands == 0
    assert backend.capabilities.ttl_step == 1.0
    assert backend.capabilities.min_ttl == 2.0
