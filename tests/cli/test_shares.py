"""Runs that several generators make: their shares add up, and what is missing is said."""

import asyncio
import contextlib
import gzip
import json
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

from harness.config import RunConfig, UsageError
from harness.history import HISTORY_FILE, load_run
from harness.load import dask_fleet
from harness.load.dask_fleet import check_fleet, parse_fleet
from harness.load.pacer import offsets, share
from harness.load.run import run_load
from harness.resource.process import spawn
from harness.servers.catalogue import INSTALLATIONS
from harness.servers.ports import free_port
from tests.cli.program import Program, harness, started

LOAD = ("--rate", "150", "--contenders", "60", "--duration", "2s")


Servers = dict[str, Any]


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    """One lock server and one resource for all."""
    async with INSTALLATIONS["redis-queue"].start() as server, spawn() as resource:
        yield {"url": server.url, "resource_url": resource.url}


def words_of(servers: Servers) -> tuple[str, ...]:
    return "--url", servers["url"], "--resource-url", servers["resource_url"]


async def two_shares(servers: Servers, out: Path) -> list[Path]:
    """Both at once; they begin together when both are ready."""
    ready = asyncio.Barrier(2)
    start = 0.0

    async def agree() -> float:
        nonlocal start
        start = time.time() + 1.0
        await ready.wait()
        return start

    async def run(index: int) -> Path:
        config = RunConfig(
            **servers, share=(index, 2), rate=150, contenders=60, duration=2.0, out=str(out / str(index))
        )
        finished = await run_load(config, agree=agree)
        assert finished.summary.checks["whole"].verdict == "unknown", "a share is not judged by itself"
        return finished.folder

    return list(await asyncio.gather(run(0), run(1)))


def summary_of(folder: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


def assert_sum(whole: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    for name in ("offered", "dispatched", "acquired", "timed_out", "failed", "lost", "abandoned"):
        assert whole["arrivals"][name] == sum(part["arrivals"][name] for part in parts), name
    for name, latency in whole["latency_ms"].items():
        assert latency["count"] == sum(part["latency_ms"][name]["count"] for part in parts), name
        assert latency["max"] == max(part["latency_ms"][name]["max"] for part in parts), name
    assert whole["backend"]["commands"] == sum(part["backend"]["commands"] for part in parts)


def test_shares_are_disjoint_and_their_union_is_the_schedule() -> None:
    whole = list(enumerate(offsets(333, 1.0, arrivals="poisson", seed=5)))
    configs = [
        RunConfig(share=(index, 3), processes=2, url="redis://h", resource_url="http://h")
        for index in range(3)
    ]
    parts = [
        list(share(offsets(333, 1.0, arrivals="poisson", seed=5), process, config.all_processes))
        for config in configs
        for process in config.own_processes
    ]
    assert sorted(arrival for part in parts for arrival in part) == whole
    assert sum(map(len, parts)) == len(whole)


async def test_two_shares_merge_into_one_run_with_one_verdict(servers: Servers, tmp_path: Path) -> None:
    folders = await two_shares(servers, tmp_path)
    merged = await harness("merge", *map(str, folders), "--out", str(tmp_path / "merged"))
    merged.assert_well()
    whole = merged.summary()
    assert_sum(whole, [summary_of(folder) for folder in folders])
    assert whole["arrivals"]["offered"] == 300
    history = load_run(merged.folder())
    assert sorted(row.id for row in history.rows) == list(range(300))
    assert (
        whole["resource"]["accepted"]
        == len(history.log or ())
        == sum(row.write == "accepted" for row in history.rows)
    )
    machines = whole["certificate"]["machines"]
    assert [machine["share"] for machine in machines] == [1, 2]
    # One machine, one clock: they can differ by no more than what the bound allows, and the start's error.
    assert abs(machines[1]["start_offset_ms"]) <= machines[1]["offset_bound_ms"] + 50

    alone = await harness("merge", str(folders[0]), "--out", str(tmp_path / "alone"))
    assert alone.code == 3
    assert "share 2 of 2 is missing" in alone.stdout
    assert alone.summary()["verdict"] == "unknown"
    assert alone.summary()["certificate"]["machines"][1]["missing"]

    shutil.copytree(folders[0], tmp_path / "again")
    twice = await harness("merge", str(folders[0]), str(tmp_path / "again"), "--out", str(tmp_path / "x"))
    assert twice.code == 2
    assert "both share 1" in twice.stderr
    assert not list((tmp_path / "x").iterdir())


async def test_a_share_from_a_machine_with_another_clock_meets_the_others(
    servers: Servers, tmp_path: Path
) -> None:
    """The monotonic clock of another machine counts from another time: only the writes can tell how much."""
    folders = await two_shares(servers, tmp_path)
    moved = folders[1]
    document = json.loads((moved / "share.json").read_text())
    document["result"]["start"] += 10**15
    (moved / "share.json").write_text(json.dumps(document))
    header, _, rest = gzip.decompress((moved / HISTORY_FILE).read_bytes()).partition(b"\n")
    there = json.loads(header)
    there["origin_ns"] += 10**15
    (moved / HISTORY_FILE).write_bytes(gzip.compress(json.dumps(there).encode() + b"\n" + rest))
    merged = await harness("merge", *map(str, folders), "--out", str(tmp_path / "merged"))
    merged.assert_well()
    machine = merged.summary()["certificate"]["machines"][1]
    assert abs(machine["start_offset_ms"]) <= machine["offset_bound_ms"] + 50


async def test_shares_of_different_runs_do_not_merge(servers: Servers, tmp_path: Path) -> None:
    words = (
        *words_of(servers),
        "--contenders",
        "10",
        "--duration",
        "300ms",
        "--quiet",
        "--out",
        str(tmp_path),
    )
    one = await harness(*words, "--share", "1/2", "--rate", "20")
    two = await harness(*words, "--share", "2/2", "--rate", "30")
    merged = await harness("merge", str(one.folder()), str(two.folder()), "--out", str(tmp_path / "m"))
    assert merged.code == 2
    assert "not the same rate" in merged.stderr
    plain = await harness("merge", str(tmp_path), "--out", str(tmp_path / "m"))
    assert plain.code == 2
    assert "no share of a run" in plain.stderr


async def test_a_generator_that_misses_the_agreed_start_says_so(servers: Servers, tmp_path: Path) -> None:
    words = (*words_of(servers), "--rate", "20", "--contenders", "10", "--duration", "2s", "--share", "1/2")
    run = await harness(*words, "--start-at", str(time.time() - 1.0), "--out", str(tmp_path))
    assert run.code == 3
    assert any("after the agreed start" in doubt for doubt in run.summary()["doubts"])


async def test_a_fleet_makes_one_run_whose_counts_are_the_sum_of_its_parts(tmp_path: Path) -> None:
    run = await harness("--fleet", "local:3", "--backend", "redis-queue", *LOAD, "--out", str(tmp_path))
    run.assert_well()
    whole = run.summary()
    parts = [summary_of(run.folder() / "shares" / str(number)) for number in (1, 2, 3)]
    assert_sum(whole, parts)
    assert whole["arrivals"]["offered"] == 300
    assert whole["arrivals"]["acquired"] == whole["resource"]["accepted"] == 300
    assert sorted(row.id for row in load_run(run.folder()).rows) == list(range(300))
    assert [machine["share"] for machine in whole["certificate"]["machines"]] == [1, 2, 3]
    assert "clocks less ours" in run.stdout
    assert "share 3" in (run.folder() / "report.html").read_text()


def workers_of(program: Program) -> list[psutil.Process]:
    """The Dask workers: whoever started a generator."""
    found = {}
    for process in program.descendants():
        try:
            if "harness.load.member" in process.cmdline():
                parent = process.parent()
                assert parent is not None
                found[parent.pid] = parent
        except psutil.NoSuchProcess:
            continue
    return list(found.values())


async def test_a_worker_that_is_killed_is_missing_from_verdict_and_certificate(tmp_path: Path) -> None:
    words = ("--fleet", "local:3", "--backend", "redis-queue", "--rate", "100", "--contenders", "30")
    async with started(*words, "--duration", "8s", "--out", str(tmp_path)) as program:
        await program.line(lambda text: "arrivals/s" in text)
        workers = workers_of(program)
        assert len(workers) == 3
        time.sleep(3)  # into the middle of the load
        workers[0].send_signal(signal.SIGKILL)
        run = await program.ended()
    assert run.code == 3, run.stdout + run.stderr
    summary = run.summary()
    assert summary["verdict"] == "unknown"
    (missing,) = [machine for machine in summary["certificate"]["machines"] if machine["missing"]]
    assert "died before its share was over" in missing["missing"]
    assert any(f"share {missing['share']} of 3 is missing" in doubt for doubt in summary["doubts"])
    left = [summary_of(path) for path in (run.folder() / "shares").iterdir()]
    assert len(left) == 2
    assert_sum(summary, left)
    assert summary["resource"]["accepted"] > sum(part["arrivals"]["acquired"] for part in left), (
        "it had begun"
    )


@pytest.mark.parametrize("moment", ["starting", "arrivals/s"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_in_a_terminal_reaches_no_worker(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    """It goes to the whole process group: the shares are told to stop, and hand over what they have."""
    (tmp_path / "tmp").mkdir()
    words = ("--fleet", "local:2", "--rate", "100", "--contenders", "30", "--duration", "60s")
    async with started(
        *words, "--out", str(tmp_path / "runs"), env={"TMPDIR": str(tmp_path / "tmp")}, in_terminal=True
    ) as program:
        await program.line(lambda text: moment in text)
        program.signal_group(number)
        run = await program.ended()
    assert run.code == 130, run.stdout + run.stderr
    assert run.stderr == ""
    assert run.summary()["interrupted"]
    assert [machine["missing"] for machine in run.summary()["certificate"]["machines"]] == ["", ""]
    assert not list((tmp_path / "tmp").iterdir()), "nothing is left behind"


async def test_a_worker_that_freezes_is_given_up(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection to the scheduler stays, and nothing ever comes over it."""
    monkeypatch.setattr(dask_fleet, "_SILENT", 10.0)
    config = RunConfig(
        **servers, fleet="local:2", rate=40, contenders=20, duration=4.0, out=str(tmp_path / "runs")
    )
    frozen: list[psutil.Process] = []

    def status(text: str) -> None:
        if "arrivals/s" in text:
            members = [
                process
                for process in psutil.Process().children(recursive=True)
                if "harness.load.member" in process.cmdline()
            ]
            assert len(members) == 2
            worker = members[0].parent()
            assert worker is not None
            worker.suspend()
            frozen.append(worker)

    finished = await dask_fleet.run_fleet(config, command=[], status=status, interrupted=asyncio.Event())
    assert frozen, "it was under load"
    missing = [machine.missing for machine in finished.summary.certificate.machines]
    assert sum("was not heard for 10 s" in (reason or "") for reason in missing) == 1, missing
    assert finished.summary.verdict == "unknown"
    assert not frozen[0].is_running(), "nothing is left behind"


@pytest.mark.parametrize("text", ["local", "local:0", "local:x", "host:8786", "tcp://host", "http://h:1"])
def test_what_is_no_fleet_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a fleet: write local:4"):
        parse_fleet(text)


@pytest.mark.parametrize(
    "words",
    [("--live", "0"), ("--faults", "random:0"), ("--fault", "kill:server@1s"), ("--start-at", "0")],
)
async def test_what_is_for_a_single_generator_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    run = await harness("--fleet", "local:2", *words, "--out", str(tmp_path / "runs"))
    assert run.code == 2
    assert f"{words[0]} is for a single generator" in run.stderr
    assert not (tmp_path / "runs").exists()


async def test_a_fleet_elsewhere_needs_servers_that_it_can_reach(tmp_path: Path) -> None:
    run = await harness("--fleet", "tcp://198.51.100.1:8786", "--out", str(tmp_path))
    assert run.code == 2
    assert "name --url and --resource-url" in run.stderr


def test_a_share_needs_servers_that_all_can_use() -> None:
    with pytest.raises(UsageError, match="--share needs --url and --resource-url"):
        RunConfig(share=(0, 2))


@contextlib.asynccontextmanager
async def scheduler(workers: int, folder: Path) -> AsyncIterator[str]:
    """A real Dask scheduler and its workers, as separate programs; its address."""
    address = f"tcp://127.0.0.1:{free_port()}"
    programs: list[tuple[str, ...]] = [("dask_scheduler", "--host", address, "--no-dashboard")]
    programs += [
        ("dask_worker", address, "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder))
    ] * workers
    children = []
    try:
        for name, *words in programs:
            children.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", f"distributed.cli.{name}", *words),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                )
            )
        async with Client(address, asynchronous=True, timeout=60) as client:
            await client.wait_for_workers(workers, timeout=60)
        yield address
    finally:
        for child in reversed(children):
            child.terminate()
        for child in children:
            await child.wait()


async def test_the_workers_of_a_scheduler_elsewhere_make_one_run(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    async with scheduler(2, tmp_path / "workers") as address:
        run = await harness(*("--fleet", address, *words_of(servers), *LOAD), "--out", str(tmp_path / "runs"))
        run.assert_well()
        whole = run.summary()
        assert_sum(whole, [summary_of(run.folder() / "shares" / number) for number in "12"])
        assert whole["arrivals"]["acquired"] == whole["resource"]["accepted"] == 300
        left = [
            path for path in (tmp_path / "workers").rglob("*") if path.name.startswith("asyncdlock-share")
        ]
        assert left == [], "workers keep nothing of a run"


async def test_a_scheduler_that_does_not_answer_is_named(servers: Servers, tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    run = await harness("--fleet", address, *words_of(servers), "--out", str(tmp_path / "runs"))
    assert run.code == 2
    assert f"no Dask scheduler answers at {address}" in run.stderr
    assert len(run.err) == 1


def test_without_dask_a_fleet_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UsageError, match=r"pip install 'asyncdlock\[fleet\]'"):
        check_fleet(RunConfig(fleet="local:2"))
