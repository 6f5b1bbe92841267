"""Settings and flags: what a person types, and what the run makes of it."""

import argparse
import json

import pytest

from harness.cli import flags, run
from harness.cli.main import Parser
from harness.config import RunConfig, UsageError, warnings
from harness.load.targets import with_options


def parse(*words: str, environment: dict[str, str] | None = None) -> RunConfig:
    parser = Parser(prog="harness", allow_abbrev=False)
    run.add_arguments(parser)
    return flags.from_arguments(parser.parse_args([*parser.from_environment(environment or {}), *words]))


def refused(
    capsys: pytest.CaptureFixture[str], *words: str, environment: dict[str, str] | None = None
) -> str:
    with pytest.raises(SystemExit) as leaving:
        parse(*words, environment=environment)
    assert leaving.value.code == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1, "one sentence, no usage"
    return said


def test_no_flags_are_the_defaults_and_the_readme_command_is_them_too() -> None:
    assert parse() == RunConfig() == parse("--contenders", "1000", "--rate", "500")


def test_every_flag_is_understood() -> None:
    config = parse(
        *(
            "--backend",
            "etcd",
            "--url",
            "etcd://h:1",
            "--contenders",
            "7",
            "--rate",
            "2.5",
            "--duration",
            "2m",
        ),
        *(
            "--keys",
            "9",
            "--key-distribution",
            "zipf:1.3",
            "--ttl",
            "1500ms",
            "--work",
            "2ms",
            "--pause",
            "3s",
        ),
        *("--pause-every", "5", "--timeout", "none", "--fence", "off", "--arrivals", "poisson"),
        *("--processes", "2", "--seed", "42", "--resource-url", "http://h:2", "--metrics-port", "0"),
        *("--threshold", "acquire.p99<50ms", "--threshold", "failed==0", "--option", "a=b", "--out", "x"),
        *("--warmup", "1s", "--repeat", "3", "--stream", "-", "--abort-on", "failed>5%"),
        "--quiet",
    )
    assert config == RunConfig(
        backend="etcd",
        url="etcd://h:1",
        contenders=7,
        rate=2.5,
        duration=120.0,
        keys=9,
        key_distribution="zipf:1.3",
        ttl=1.5,
        work=0.002,
        pause=3.0,
        pause_every=5,
        timeout=None,
        fence=False,
        arrivals="poisson",
        processes=2,
        seed=42,
        resource_url="http://h:2",
        metrics_port=0,
        thresholds=("acquire.p99<50ms", "failed==0"),
        options=("a=b",),
        out="x",
        quiet=True,
        warmup=1.0,
        repeat=3,
        stream="-",
        abort_on=("failed>5%",),
    )


def test_every_flag_also_reads_its_environment_variable_and_the_command_line_wins() -> None:
    environment = {
        "HARNESS_RATE": "200",
        "HARNESS_KEY_DISTRIBUTION": "zipf",
        "HARNESS_QUIET": "yes",
        "HARNESS_THRESHOLD": "failed==0, acquire.p99<1s",
        "HARNESS_SEED": "-3",
    }
    config = parse("--rate", "300", environment=environment)
    assert (config.rate, config.key_distribution, config.quiet, config.seed) == (300, "zipf", True, -3)
    assert config.thresholds == ("failed==0", "acquire.p99<1s")
    assert parse(environment={"HARNESS_QUIET": "0"}).quiet is False


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--duration", "soon"], "'soon' is not a duration: write 500ms, 2s, 1m"),
        (["--duration", "0"], "longer than zero"),
        (["--contenders", "1000000000"], "must be at most 1000000"),
        (["--repeat", "0"], "at least 1"),
        (["--abort-on", "hold.p99>1s"], "not known before the run is over"),
        (["--rate", "0"], "more than 0"),
        (["--rate", "fast"], "not a rate"),
        (["--contenders", "0"], "at least 1"),
        (["--contenders", "many"], "not a whole number"),
        (["--fence", "maybe"], "neither on nor off"),
        (["--backend", "mysql"], "invalid choice: 'mysql'"),
        (["--kind", "shared"], "write exclusive, shared:0.9 or semaphore:8"),
        (["--kind", "shared:1.5"], "write exclusive, shared:0.9 or semaphore:8"),
        (["--kind", "semaphore:0"], "write exclusive, shared:0.9 or semaphore:8"),
        (["--kind", "exclusive:2"], "write exclusive, shared:0.9 or semaphore:8"),
        (["--key-distribution", "normal"], "write uniform, zipf, or zipf:1.2"),
        (["--key-distribution", "zipf:0"], "write uniform, zipf, or zipf:1.2"),
        (["--metrics-port", "70000"], "not a port"),
        (["--option", "x"], "write NAME=VALUE"),
        (["--threshold", "acquire.p99"], "write for example"),
        (["--threshold", "speed>3"], "not a figure of a run"),
        (["--contender", "5"], "unknown flag --contender, did you mean --contenders?"),
        (["--frobnicate"], "unknown flag --frobnicate"),
        (["--rate"], "expected one argument"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complaint in refused(capsys, *words)


def test_a_bad_environment_variable_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "HARNESS_RATE" in refused(capsys, environment={"HARNESS_RATE": "x"})
    assert "HARNESS_QUIET" in refused(capsys, environment={"HARNESS_QUIET": "perhaps"})
    assert "HARNESS" not in refused(capsys, "--duration", "x", environment={"HARNESS_RATE": "5"})


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"processes": 3, "contenders": 2}, "at least as many contenders"),
        ({"pause_every": 5}, "--pause-every needs --pause"),
        ({"backend": "memory", "processes": 2}, "lives inside one process"),
        ({"url": "memory://", "processes": 2}, "lives inside one process"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        RunConfig.from_json(values)


def test_a_config_survives_json() -> None:
    config = RunConfig(url="redis://h", thresholds=("failed==0",), timeout=None, pause=1.0, pause_every=3)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_passwords_do_not_get_into_files() -> None:
    config = RunConfig(url="redis://user:secret@h:1/0", resource_url="http://user:secret@h:2")
    assert "secret" not in json.dumps(config.to_json())
    assert config.url == "redis://user:secret@h:1/0"


def test_pauses_come_every_so_often_by_default_and_as_often_as_asked() -> None:
    assert RunConfig().pause_period == 0
    assert RunConfig(pause=3, ttl=1, rate=500).pause_period == 2000
    assert RunConfig(pause=3, ttl=0.1, rate=1).pause_period == 2
    assert RunConfig(pause=3, ttl=1, pause_every=7).pause_period == 7


def test_a_run_is_named_after_what_it_talks_to() -> None:
    assert RunConfig(backend="etcd").label == "etcd"
    assert RunConfig(url="redis-queue://h:1/0").label == "redis-queue"


def test_what_was_probably_not_meant_is_pointed_out() -> None:
    assert warnings(RunConfig()) == []
    assert warnings(RunConfig(pause=3, ttl=1)) == []
    (warning,) = warnings(RunConfig(pause=3, ttl=4))
    assert "no lease will expire" in warning
    (warning,) = warnings(RunConfig(pause=30, ttl=10))
    assert "gives up before its lease expires" in warning


@pytest.mark.parametrize(
    ("url", "options", "result"),
    [
        ("redis://h:1/0", (), "redis://h:1/0"),
        ("redis://h:1/0", ("a=1", "b=x y"), "redis://h:1/0?a=1&b=x+y"),
        ("redis-queue://h:1/0?a=1", ("a=2",), "redis-queue://h:1/0?a=2"),
        ("memory://", ("a=1",), "memory://?a=1"),
        ("unix:///tmp/s.sock?db=0", ("a=1",), "unix:///tmp/s.sock?db=0&a=1"),
        ("redlock://a,[::1]:2", ("a=1",), "redlock://a,[::1]:2?a=1"),
    ],
)
def test_options_go_into_the_query(url: str, options: tuple[str, ...], result: str) -> None:
    assert with_options(url, options) == result


def test_the_help_names_every_flag_with_an_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="harness")
    run.add_arguments(parser)
    for action in parser._actions:
        assert action.help
        assert action.help != argparse.SUPPRESS
    parser.print_help()
    assert "acquire.p99<50ms" in capsys.readouterr().out


def test_stages_give_a_run_its_rate_and_its_duration() -> None:
    config = parse("--stages", "500/10s,2000/30s")
    assert config.steps == [(500.0, 10.0), (2000.0, 30.0)]
    assert (config.rate, config.duration) == (1625.0, 40.0)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert parse("--rate", "7", "--duration", "2s").steps == [(7.0, 2.0)]


def test_stages_beside_a_rate_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="leave out --rate and --duration"):
        parse("--stages", "500/10s", "--rate", "100")


@pytest.mark.parametrize(
    "stages", ["500", "500/", "/10s", "0/10s", "500/10s,", "many/10s", "2e6/1s", "5/-1s"]
)
def test_a_stage_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], stages: str) -> None:
    assert "--stages" in refused(capsys, "--stages", stages)


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("--fault", "kil:server@5s"), "there is no fault 'kil'"),
        (("--fault", "kill:server"), "is not a fault"),
        (("--fault", "kill@5s"), "kill takes server or resource"),
        (("--fault", "pause:nobody@5s+1s"), "pause takes holder or server or resource"),
        (("--fault", "pause:server@5s"), "needs a length, as in pause:server@5s+2s"),
        (("--fault", "partition@soon+1s"), "'soon' is not a duration"),
        (("--fault", "kill:resource2@1s"), "nodes are those of the lock server"),
        (("--faults", "random"), "write random:1"),
    ],
)
def test_a_fault_that_is_none_is_refused_in_one_sentence_with_an_example(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], because: str
) -> None:
    assert because in refused(capsys, *words)
