"""URLs and options: one clear error for each mistake, and never a password in it."""

from pathlib import Path

import pytest

import asyncdlock
from asyncdlock import _options
from asyncdlock._url import LockURL, redact
from asyncdlock.backend import register, schemes
from asyncdlock.backends.etcd import settings as etcd
from asyncdlock.backends.postgres import settings as postgres
from asyncdlock.backends.redis.url import RedisURL

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "unknown lock URL"),
        ("localhost:6379", "must start with one of memory://, redis://"),
        (f"redis:/:{SECRET}@localhost", "unknown lock URL"),
        (f"mysql://root:{SECRET}@localhost", "unknown lock URL"),
        (f"redis://:{SECRET}@localhost:port", "bad port"),
        (f"redis://:{SECRET}@localhost:0", "bad port"),
        (f"redis://:{SECRET}@localhost:65536", "bad port"),
        (f"redis://user:{SECRET}", "bad port"),
        (f"redis://:{SECRET}/x@localhost", "bad port|bad database"),
        (f"redis://:{SECRET}@localhost/zero", "bad database"),
        (f"redis://:{SECRET}@localhost/-1", "bad database"),
        (f"redis://:{SECRET}@one,two", "names 2 hosts"),
        (f"redis://one,two?password={SECRET}", "names 2 hosts"),
        (f"redis://one,two?sentinel_password={SECRET}&x=1", "names 2 hosts"),
        (f"redis://:{SECRET}@localhost?db=zero", "db"),
        (f"redis://:{SECRET}@localhost?topology=ring", "topology must be one of"),
        (
            f"redis://:{SECRET}@localhost?nonsense=1",
            "unknown option 'nonsense' for redis://: it takes .*local_queue",
        ),
        ("redis://localhost?topology=sentinel&nonsense=1", "unknown option 'nonsense' for redis://"),
        ("redis://localhost?topology=cluster&nonsense=1", "unknown option 'nonsense' for redis://"),
        (
            f"redis://:{SECRET}@localhost?call_timeout=soon",
            "call_timeout must be a positive number of seconds",
        ),
        (f"redis://:{SECRET}@localhost?call_timeout=0", "call_timeout must be a positive number"),
        (f"redis://:{SECRET}@localhost?call_timeout=nan", "call_timeout must"),
        (f"redis://:{SECRET}@localhost?call_timeout=inf", "call_timeout must"),
        (f"redis://:{SECRET}@localhost?local_queue=maybe", "local_queue must be true or false"),
        (
            f"redis://:{SECRET}@localhost?local_handoffs=-1",
            "local_handoffs must be a whole number of at least 0",
        ),
        (f"redis-queue://:{SECRET}@localhost?max_waiters=many", "max_waiters must be a whole number"),
        ("memory://x?option=1", "no options"),
        (f"redlock://u:{SECRET}@a,b,u:{SECRET}@c", "before each host, or before the first one alone"),
        (f"redlock://a,u:{SECRET}@b", "before each host, or before the first one alone"),
        (f"redlock://u:{SECRET}@a,v:{SECRET}@a", "stands twice"),
        (f"redis://u:{SECRET}@a,v:{SECRET}@b?topology=cluster", "one login for all"),
        (f"etcd://u:{SECRET}@a,v:{SECRET}@b", "one login for all"),
        (f"zookeeper://u:{SECRET}@a,v:{SECRET}@b", "one login for all"),
        (f"redis://:{SECRET}@a,,b?topology=cluster", "bad host"),
        (f"redis://:{SECRET}@[::1", "bad host"),
        (f"redis://:{SECRET}@::1", "bad host"),
        ("redis://h?ca_file=/ca.pem", "write rediss:// or tls=true"),
        ("redis-queue://h?ca_file=/ca.pem", "write rediss-queue:// or tls=true"),
        ("redlock://a,b,c?ca_file=/ca.pem", "write redlocks:// or tls=true"),
        ("zookeeper://h?ca_file=/ca.pem", "write zookeepers:// or tls=true"),
        ("etcd://h?ca_file=/ca.pem", "write etcds:// or tls=true"),
        ("rediss://h?cert_file=/c.pem", "both cert_file and key_file"),
        ("rediss://h?tls=off", "rediss:// is encrypted, but tls is off"),
        ("redis://h?request_timeout=1&call_timeout=2", "request_timeout and call_timeout mean the same"),
        (f"postgres://u:{SECRET}@a,v:{SECRET}@b/db", "one login for all"),
        ("postgresql://h/db?ca_file=/ca.pem", "write postgress:// or tls=true"),
        ("postgres://h/db?sslmode=require", "sslmode must be verify-full"),
        ("postgres://h/db?patience=0.01", "patience must be at least 0.1 s"),
        (f"postgres://u:{SECRET}@h/db?port=1", "unknown option 'port' for postgres://"),
        ("etcd://h?request_timeout=1&timeout=2", "request_timeout and timeout mean the same"),
    ],
)
def test_a_bad_url_gives_one_sentence_without_the_password(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        asyncdlock.connect(url)
    message = str(caught.value)
    assert SECRET not in message
    assert "\n" not in message


@pytest.mark.parametrize("url", ["memory://", "redis://localhost", "redlock://a,b,c"])
def test_an_unknown_option_in_python_is_refused_as_well(url: str) -> None:
    with pytest.raises(ValueError, match="option"):
        asyncdlock.connect(url, nonsense=1)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://user@localhost", "redis://user@localhost"),
        ("redis://user:p@localhost/0", "redis://user:***@localhost/0"),
        ("redis://:p@[::1]:6379/0", "redis://:***@[::1]:6379/0"),
        ("redis://[::1]/0", "redis://[::1]/0"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("redis://:a/b@localhost", "redis://:***@localhost"),
        ("redis://:a?b@localhost", "redis://:***@localhost"),
        ("redis://:a@b@localhost", "redis://:***@localhost"),
        ("redis://:a://b@localhost", "redis://:***@localhost"),
        ("redis://user:p", "redis://user:***"),
        ("unix://:p@/tmp/redis.sock", "unix://:***@/tmp/redis.sock"),
        ("unix:///tmp/redis.sock?password=p&db=1", "unix:///tmp/redis.sock?password=***&db=1"),
        ("etcd://a:1,b:2,c:3/x", "etcd://a:1,b:2,c:3/x"),
        ("no url at all", "no url at all"),
        ("password=p", "password=***"),
        ("--option=sentinel_password=p", "--option=sentinel_password=***"),
        ("postgres:host=h password=p dbname=d", "postgres:host=h password=*** dbname=d"),
        ("postgres:password='a b\\' c' host=h", "postgres:password=*** host=h"),
        ("host=h PASSWORD = p", "host=h PASSWORD = ***"),
        ("sqlite:/tmp/x.db", "sqlite:/tmp/x.db"),
    ],
)
def test_redact_hides_passwords_and_nothing_else(url: str, shown: str) -> None:
    assert redact(url) == shown


def test_options_in_python_win_over_those_in_the_url() -> None:
    parsed = RedisURL.parse(
        "redis://u:p@h:1234/5?call_timeout=1&local_queue=yes&client_name=a",
        {"call_timeout": 2, "client_name": "b"},
        known={"local_queue": bool},
    )
    assert parsed.hosts == [("h", 1234)]
    assert parsed.wire["call_timeout"] == 2.0
    assert parsed.ours == {"local_queue": True}
    assert parsed.theirs["client_name"] == "b"
    assert (parsed.theirs["username"], parsed.theirs["password"], parsed.theirs["db"]) == ("u", "p", 5)


TAKEN: dict[str, _options.Reader] = {
    "on": _options.flag,
    "places": _options.count(1, 9),
    "limit": _options.seconds(60),
    "file": _options.path,
    "word": _options.text,
}


def test_options_read_the_same_from_a_query_and_from_python() -> None:
    query = _options.gather("on=Yes&places=3&limit=1.5&file=/f&word=", {})
    python = {"on": True, "places": 3, "limit": 1.5, "file": Path("/f"), "word": ""}
    expected = {"on": True, "places": 3, "limit": 1.5, "file": "/f", "word": ""}
    assert _options.read(query, TAKEN, scheme="x") == expected
    assert _options.read(python, TAKEN, scheme="x") == expected


def test_an_option_that_is_none_was_not_given() -> None:
    assert _options.read({"on": None, "word": None}, TAKEN, scheme="x") == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"on": 2}, "on must be true or false, not 2"),
        ({"places": 0}, "places must be a whole number of 1..9, not 0"),
        ({"places": 10}, "places must be a whole number of 1..9, not 10"),
        ({"places": 2.5}, "places must be a whole number of 1..9, not 2.5"),
        ({"places": True}, "places must be a whole number of 1..9, not True"),
        ({"places": "1_0"}, "places must be a whole number of 1..9, not '1_0'"),
        ({"limit": "nan"}, "limit must be a positive number of seconds up to 60, not 'nan'"),
        ({"limit": 61}, "limit must be a positive number of seconds up to 60, not 61"),
        ({"limit": []}, "limit must be a positive number of seconds up to 60, not []"),
        ({"file": 7}, "file must be a path, not int"),
        ({"word": b"s3cr3t"}, "word must be text, not bytes"),
        ({"other": 1}, "unknown option 'other' for x://: it takes file, limit, on, places, word"),
    ],
)
def test_an_option_that_cannot_be_meant_is_one_sentence(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError) as caught:
        _options.read(given, TAKEN, scheme="x")
    assert str(caught.value) == says


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("redis://", "localhost", 6379), ("redis://h", "h", 6379), ("redis://[::1]:7", "::1", 7)],
)
def test_host_and_port_have_defaults(url: str, host: str, port: int) -> None:
    assert RedisURL.parse(url, {}, known={}).hosts == [(host, port)]


def test_connecting_sends_nothing() -> None:
    """Not even an event loop is needed."""
    client = asyncdlock.connect("redis://127.0.0.1:1")
    assert client._backend.commands == 0


def test_a_backend_of_ones_own_is_registered_by_scheme() -> None:
    register("mine", "asyncdlock.backends.memory")
    assert schemes()["mine"] == "asyncdlock.backends.memory"
    assert asyncdlock.connect("mine://x")._backend.name == "memory"


# One dialect


def options_of(url: str, **options: object) -> dict[str, object]:
    """What redis-py gets to know of a URL."""
    return RedisURL.parse(url, options, known={}).theirs


@pytest.mark.parametrize(
    ("url", "logins"),
    [
        ("redlock://a,b", [(None, None), (None, None)]),
        ("redlock://u:p@a,b", [("u", "p"), ("u", "p")]),
        ("redlock://:p@a,b", [(None, "p"), (None, "p")]),
        ("redlock://:p,q@a,b", [(None, "p,q"), (None, "p,q")]),
        ("redlock://u:p@a,v:q%2C%40@b", [("u", "p"), ("v", "q,@")]),
        ("redlock://u:p@a:1,u:p@b:2/3?client_name=x", [("u", "p"), ("u", "p")]),
    ],
)
def test_each_node_of_a_quorum_may_have_a_login_of_its_own(
    url: str, logins: list[tuple[str | None, str | None]]
) -> None:
    where = RedisURL.parse(url, {}, known={})
    assert [host for host, _ in where.hosts] == ["a", "b"]
    assert [(login.get("username"), login.get("password")) for login in where.logins] == logins


@pytest.mark.parametrize("scheme", ["redis", "redis-queue", "redlock"])
def test_encryption_is_said_by_the_scheme_or_by_an_option(scheme: str) -> None:
    head, dash, tail = scheme.partition("-")
    files = {"ca_file": "/ca", "cert_file": Path("/cert"), "key_file": "/key"}
    by_scheme = options_of(f"{head}s{dash}{tail}://h", **files)
    assert options_of(f"{scheme}://h?tls=true", **files) == by_scheme
    assert by_scheme["ssl_ca_certs"] == "/ca"
    assert (by_scheme["ssl_certfile"], by_scheme["ssl_keyfile"]) == ("/cert", "/key")
    assert "connection_class" in by_scheme
    assert "connection_class" not in options_of(f"{scheme}://h?tls=false")


def test_the_old_names_of_options_still_count() -> None:
    assert RedisURL.parse("redis://h?call_timeout=3", {}, known={}).wire["call_timeout"] == 3.0
    assert RedisURL.parse("redis://h?request_timeout=3", {}, known={}).wire["call_timeout"] == 3.0
    assert options_of("redis://h?connect_timeout=1.5")["socket_connect_timeout"] == 1.5
    assert options_of("redis://h?socket_connect_timeout=1.5")["socket_connect_timeout"] == 1.5
    assert etcd.parse("etcd://h?request_timeout=3", {}) == etcd.parse("etcd://h?timeout=3", {})
    assert etcd.parse("etcd://h?tls=true", {}) == etcd.parse("etcds://h", {})


def test_a_postgres_url_says_what_psql_would_read_from_it() -> None:
    said = postgres.parse(
        "postgresql://us%40er:pass%2Fword@a,b:6543/my%20db?local_handoffs=0", {"schema": "s"}
    )
    assert [str(address) for address in said.addresses] == ["a:5432", "b:6543"]
    assert (said.user, said.password, said.database, said.schema) == ("us@er", "pass/word", "my db", "s")
    assert (said.local_queue, said.local_handoffs, said.tls) == (False, 0, None)
    assert postgres.parse("postgres://", {}).database is None
    assert postgres.parse("postgres://%2Frun%2Fpostgresql/db", {}).addresses[0].host == "/run/postgresql"
    for encrypted in ("postgress://h/db", "postgres://h/db?tls=true", "postgres://h/db?sslmode=verify-full"):
        tls = postgres.parse(encrypted, {}).tls
        assert tls is not None
        assert tls.check_hostname


@pytest.mark.parametrize("scheme", ["redlocks", "zookeepers", "etcds", "rediss", "rediss-queue", "postgress"])
def test_every_backend_has_an_encrypted_scheme(scheme: str) -> None:
    assert asyncdlock.connect(f"{scheme}://h")._backend.commands == 0


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a", [("a", 7)]),
        ("a:1,b", [("a", 1), ("b", 7)]),
        ("[::1],[fe80::1%25eth0]:2", [("::1", 7), ("fe80::1%eth0", 2)]),
        ("a_b.c-d", [("a_b.c-d", 7)]),
    ],
)
def test_hosts_read_the_same_for_every_backend(text: str, addresses: list[tuple[str, int]]) -> None:
    found = LockURL.split(f"x://{text}/path?query").addresses(7)
    assert [(address.host, address.port) for address in found] == addresses


def test_an_address_shows_itself_as_it_is_written() -> None:
    [name, number] = LockURL.split("x://u:p@a:1,[::1]").addresses(7)
    assert f"{name} {number}" == "a:1 [::1]:7"


@pytest.mark.parametrize(
    ("url", "prefix", "label"),
    [
        ("memory://x?prefix=app:&label=me", "app:", "me"),
        ("memory://x?prefix=a%26b%20c", "a&b c", None),
        ("memory://x", "", None),
    ],
)
def test_prefix_and_label_may_stand_in_the_query(url: str, prefix: str, label: str | None) -> None:
    client = asyncdlock.connect(url)
    assert client._core.prefix == prefix
    assert label is None or client._core.label == label
    assert asyncdlock.connect(url, prefix="mine", label="own")._core.prefix == "mine"


@pytest.mark.parametrize("prefix", ["a\0", "x" * 1025, 7])
def test_a_prefix_that_no_key_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        asyncdlock.connect("memory://x", prefix=prefix)
