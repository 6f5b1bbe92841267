"""Trouble: bad input is one sentence, an interruption keeps everything, nothing is left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness import servers
from harness.cli.commands import COMMANDS
from harness.cli.main import main
from harness.history import Row, load_run, read
from tests.cli.program import ROOT, harness, started

SOUND = ROOT / "tests" / "histories" / "ok-one-after-the-other.jsonl"
LONG = ("--contenders", "50", "--rate", "100", "--duration", "60s")


def assert_one_sentence(said: str) -> None:
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1, said


async def all_gone(processes: list[psutil.Process]) -> None:
    async with asyncio.timeout(60):
        while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--frobnicate"], "unknown flag --frobnicate"),
        (["--duration", "soon"], "'soon' is not a duration"),
        (["--url", "mysql://h"], "must start with one of"),
        (["--url", "redis://[::1"], "bad host"),
        (["--url", "redis://127.0.0.1:1/0"], "cannot be reached"),
        (["--resource-url", "http://127.0.0.1:1"], "no fenced resource answers"),
        (["--resource-url", "127.0.0.1:1"], "must start with http"),
        (["--backend", "memory", "--option", "nonsense=1"], "takes no options"),
        (["--backend", "etcd", "--ttl", "1500ms"], "1.5 s"),
        (["--junit", "/dev/null/checks.xml"], "'/dev/null/checks.xml' cannot be written"),
        (["worker"], "required: --url, --key"),
        (["expriment"], "did you mean experiment?"),
        (["report", "nowhere"], "name the folder of a finished run"),
        (["check", "nowhere"], "nowhere"),
        (["check", str(SOUND), "--junit", "/dev/null/x"], "'/dev/null/x' cannot be written"),
        (["simulate", "--sweep", "hosts=1", "--svg", "/dev/null/x"], "'/dev/null/x' cannot be written"),
        (["simulate", "--rate", "1e6", "--duration", "1m"], "60,000,000 arrivals are more than"),
        (["simulate", "--sweep", "rate=1,1000000", "--duration", "1m"], "choose a shorter --duration"),
        (["--start-at", "nan"], "'nan' is no time"),
        (["--start-at", "1e300"], "'1e300' is no time"),
    ],
)
async def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path, words: list[str], complaint: str
) -> None:
    run_flags = ["--out", str(tmp_path / "runs")] if words[0].startswith("-") else []
    program = await harness(*words, *run_flags)
    assert program.code == 2
    assert complaint in program.stderr
    assert_one_sentence(program.stderr)
    assert not list(tmp_path.glob("runs/*")), "a run that never began leaves no folder"


async def test_a_folder_that_cannot_be_written_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    program = await harness("--out", str(tmp_path / "file" / "runs"))
    assert program.code == 2
    assert "choose another with --out" in program.stderr
    assert_one_sentence(program.stderr)


@pytest.mark.parametrize("flag", ["--metrics-port", "--live"])
async def test_a_taken_port_is_one_sentence_and_exit_code_2(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        program = await harness(flag, port, "--out", str(tmp_path))
    assert program.code == 2
    assert f"choose another {flag}" in program.stderr
    assert_one_sentence(program.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_run_keeps_what_it_has_and_stops_what_it_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with started(*LONG, "--out", str(tmp_path)) as run:
        await run.under_load()
        children = run.descendants()
        assert len(children) >= 3, "a lock server, a resource and a generator"
        run.child.send_signal(number)
        await run.ended()
    assert run.code == 130
    assert run.stderr == ""
    summary = run.summary()
    assert summary["interrupted"]
    assert summary["verdict"] == ("unknown" if summary["doubts"] else "ok"), summary["checks"]
    assert summary["arrivals"]["acquired"] > 0
    history = load_run(run.folder())
    assert history.complete
    assert len(history.rows) == summary["arrivals"]["offered"]
    for name in ("latency.hlog", "report.html"):
        assert (run.folder() / name).exists()
    await all_gone(children)


async def test_a_command_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM is what `timeout` and build machines send."""
    (tmp_path / "tmp").mkdir()
    words = ("experiment", "unsafe-release", "--quick", "--out", str(tmp_path / "runs"))
    async with started(*words, env={"TMPDIR": str(tmp_path / "tmp")}) as program:
        async with asyncio.timeout(60):
            while not any((tmp_path / "tmp").iterdir()):
                await asyncio.sleep(0.01)
        program.child.terminate()
        await program.ended()
    assert program.code == 130
    assert program.stderr == "harness: interrupted"
    assert not list((tmp_path / "tmp").iterdir())


_INTERRUPTED_WHILE_IT_LOADS = """
import signal, sys
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "harness.cli.main":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
from harness.__main__ import run
sys.exit(run())
"""


def test_ctrl_c_while_the_program_loads_is_one_sentence() -> None:
    command = [sys.executable, "-c", _INTERRUPTED_WHILE_IT_LOADS]
    program = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (program.returncode, program.stderr) == (130, "harness: interrupted\n")


def test_a_run_whose_standard_streams_are_closed_goes_on_without_them(tmp_path: Path) -> None:
    words = ["--quiet", "--duration", "500ms", "--rate", "20", "--contenders", "5", "--out", str(tmp_path)]
    command = ["sh", "-c", 'exec "$0" "$@" <&- >&-', sys.executable, "-m", "harness", *words]
    program = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, timeout=120, check=False)
    assert (program.returncode, program.stderr) in [(0, b""), (3, b"")]
    assert len(list(tmp_path.glob("*/summary.json"))) == 1


async def test_ctrl_c_before_the_load_leaves_nothing(tmp_path: Path) -> None:
    async with started(*LONG, "--out", str(tmp_path)) as run:
        await run.line(lambda line: line.startswith("starting"))
        children = run.descendants()
        run.interrupt()
        run.interrupt()
        await run.ended()
        children += [child for child in children if child.is_running()]
    assert run.code == 130
    assert "Traceback" not in run.stderr
    await all_gone(children)


async def test_a_killed_run_leaves_no_process_behind(tmp_path: Path) -> None:
    async with started(*LONG, "--out", str(tmp_path), "--processes", "2") as run:
        await run.under_load()
        children = run.descendants()
        run.child.kill()
        await run.ended()
    await all_gone(children)


async def test_a_lock_server_that_dies_makes_the_run_untrustworthy(
    tmp_path: Path, redis_server: servers.RedisNode
) -> None:
    """Exit code 3, with the files of what happened until then."""
    words = ("--contenders", "20", "--rate", "50", "--duration", "2500ms", "--timeout", "1s")
    async with started(*words, "--url", redis_server.url, "--out", str(tmp_path)) as run:
        await run.under_load()
        redis_server.kill()
        await run.ended()
    assert run.code == 3
    assert "do not trust" in run.stdout
    assert "Traceback" not in run.stderr
    summary = run.summary()
    assert any("lock server did not answer" in doubt for doubt in summary["doubts"])
    assert summary["arrivals"]["failed"] > 0
    assert summary["errors"]


async def test_a_generator_that_dies_makes_the_run_untrustworthy(tmp_path: Path) -> None:
    async with started(*LONG, "--out", str(tmp_path), "--duration", "3s", "--processes", "2") as run:
        await run.under_load()
        generator = next(child for child in run.descendants() if "harness.load.member" in child.cmdline())
        generator.kill()
        await run.ended()
    assert run.code == 3
    assert any("ended with code -9" in doubt for doubt in run.summary()["doubts"])
    assert run.summary()["verdict"] == "unknown", "what a killed generator did not record may be anything"
    assert not load_run(run.folder()).complete
    assert (await harness("check", str(run.folder()))).code == 3


async def test_a_crash_of_the_tool_is_one_sentence_and_never_looks_like_a_violation(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import harness.cli.check as command\n"
        "def crash(args):\n"
        "    raise ZeroDivisionError('by nought')\n"
        "command.run = crash\n"
    )
    places = os.pathsep.join([str(tmp_path), str(ROOT)])
    program = await harness("check", "anything", env={"PYTHONPATH": places, "TMPDIR": str(tmp_path)})
    assert program.code == 70
    assert program.stdout == ""
    assert_one_sentence(program.stderr)
    assert "ZeroDivisionError: by nought" in program.stderr
    (trace,) = tmp_path.glob("harness-crash-*.txt")
    assert str(trace) in program.stderr
    assert "Traceback" in trace.read_text()


async def test_a_full_disk_is_no_crash_and_what_was_recorded_is_kept(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, harness.load.run as command\n"
        "def full(*files):\n"
        "    raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "command.merge = full\n"
    )
    places = os.pathsep.join([str(tmp_path), str(ROOT)])
    words = ("--rate", "50", "--duration", "1s", "--out", str(tmp_path / "runs"), "--quiet")
    program = await harness(*words, env={"PYTHONPATH": places})
    assert program.code == 3, program.stderr
    assert_one_sentence(program.stderr)
    assert "choose another folder with --out" in program.stderr
    (part,) = tmp_path.glob("runs/*/history-0.jsonl.gz")
    assert any(isinstance(line, Row) for line in read(part))


async def test_a_stream_that_cannot_be_written_any_more_does_not_end_the_run(tmp_path: Path) -> None:
    words = ("--stream", "/dev/full", "--rate", "50", "--duration", "1s", "--out", str(tmp_path), "--quiet")
    program = await harness(*words)
    assert program.code in (0, 3), program.stderr  # 3: on a machine too busy to be trusted
    assert "--stream cannot be written any more: No space left on device; the run goes on" in program.stderr
    assert (program.folder() / "summary.json").is_file()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_percent_sign_in_a_help_text_is_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """argparse reads `%` in help texts as the beginning of a format."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "option_strings" not in capsys.readouterr().out


async def test_help_explains_with_examples() -> None:
    program = await harness("--help")
    assert program.code == 0
    assert "python -m harness --contenders 1000 --rate 500" in program.stdout
    for command in ("report", "check", "worker", "resource", "servers"):
        assert any(line.strip().startswith(command) for line in program.out)
        assert (await harness(command, "--help")).code == 0
