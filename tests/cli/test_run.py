"""The main job: what a run promises to the person who typed the command."""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import aiohttp
import pytest

from harness.history import History, load_run
from harness.resource.process import spawn
from harness.servers import ServerMissing
from tests.cli.program import ROOT, Program, harness, needs, started

SMALL = ("--contenders", "50", "--rate", "100", "--duration", "1500ms")


def out(tmp_path: Path) -> tuple[str, str]:
    return "--out", str(tmp_path / "runs")


def assert_accounted_for(history: History, offered: int) -> None:
    """One row for each arrival, whatever became of it."""
    assert sorted(row.id for row in history.rows) == list(range(offered))


async def test_a_run_ends_with_verdict_ok_and_leaves_its_files(tmp_path: Path) -> None:
    run = await harness(*SMALL, *out(tmp_path))
    run.assert_well()
    assert run.stderr == ""
    verdict = run.summary()["verdict"]
    assert f"verdict {verdict}" in run.stdout
    assert any("offered" in line and "p99" in line and "left" in line for line in run.out), "a line a second"
    assert "\x1b" not in run.stdout, "no colours and no cursor movements in a pipe"
    folder = run.folder()
    assert folder.parent == tmp_path / "runs"
    assert folder.name.endswith("Z-redis-queue")
    for name in ("summary.json", "latency.hlog", "history.jsonl.gz", "report.html"):
        assert (folder / name).stat().st_size > 0
    summary = run.summary()
    assert summary["arrivals"]["offered"] == summary["arrivals"]["dispatched"] == 150
    assert summary["arrivals"]["acquired"] == summary["resource"]["accepted"] == 150
    assert summary["latency_ms"]["schedule_lag"]["early"] == 0
    assert summary["backend"]["commands"] > 0
    assert_accounted_for(load_run(folder), 150)

    again = await harness("report", str(folder))
    assert again.code == run.code
    assert "150 offered" in again.stdout
    checked = await harness("check", str(folder))
    assert checked.code == run.code
    assert f"verdict: {verdict}" in checked.stdout


async def test_every_acquire_of_the_plain_recipe_takes_a_command_and_its_release_another(
    tmp_path: Path,
) -> None:
    run = await harness(*SMALL, *out(tmp_path), "--backend", "redis")
    run.assert_well()
    assert run.folder().name.endswith("Z-redis")
    backend = run.summary()["backend"]
    assert backend["commands_per_acquire"] >= 2
    assert backend["commands"] == pytest.approx(150 * backend["commands_per_acquire"], abs=1)


PAUSED = ("--contenders", "100", "--rate", "60", "--duration", "1500ms", "--ttl", "300ms", "--pause", "1s")


async def test_without_fencing_two_writers_are_accepted_and_the_run_says_so(tmp_path: Path) -> None:
    run = await harness(*PAUSED, *out(tmp_path), "--fence", "off")
    assert run.code == 1
    assert "verdict violated" in run.stdout
    summary = run.summary()
    assert summary["verdict"] == "violated"
    assert summary["checks"]["exclusion"]["verdict"] == "violated"
    assert "two writers" in summary["checks"]["exclusion"]["findings"][0]
    assert summary["resource"]["stale_rejections"] == 0
    assert (await harness("check", str(run.folder()))).code == 1


async def test_with_fencing_the_same_load_is_safe_and_every_rejection_is_counted_everywhere(
    tmp_path: Path,
) -> None:
    async with spawn() as resource, aiohttp.ClientSession() as session:
        run = await harness(*PAUSED, *out(tmp_path), "--pause-every", "40", "--resource-url", resource.url)
        async with session.get(f"{resource.url}/metrics") as reply:
            exposition = await reply.text()
    run.assert_well()
    summary = run.summary()
    history = load_run(run.folder())
    told = sum(row.write == "stale" for row in history.rows)
    assert told >= 2, "holders 0 and 40 were frozen past their TTL"
    assert all(row.paused for row in history.rows if row.write == "stale")
    assert f"resource_stale_token_rejections_total {float(told)}" in exposition
    assert summary["resource"]["stale_rejections"] == summary["resource"]["stale_rejections_reported"] == told
    assert history.log is not None
    assert sum(decision.outcome == "stale" for decision in history.log) == told


async def test_a_second_of_standstill_is_found_in_the_latency_of_all_who_arrived_in_it(
    tmp_path: Path,
) -> None:
    """No coordinated omission: not one slow sample, but every arrival that had to wait."""
    async with spawn() as resource:
        words = ("--contenders", "200", "--rate", "50", "--duration", "4s", "--resource-url", resource.url)
        async with started(*words, *out(tmp_path)) as run:
            await run.under_load()
            resource.pause()
            await asyncio.sleep(1.0)
            resource.resume()
            await run.ended()
    run.assert_well()
    summary = run.summary()
    assert summary["arrivals"]["offered"] == 200, "arrivals kept coming"
    grant = summary["latency_ms"]["arrival_to_grant"]
    assert grant["max"] > 900
    # A quarter of all arrivals fell into that second; a closed loop would have slow ones by the handful.
    rows = load_run(run.folder()).rows
    assert sum((row.granted or 0) - row.intended > 300e6 for row in rows) >= 20


async def test_a_killed_resource_loses_no_acknowledged_write_and_accepts_no_stale_token(
    tmp_path: Path,
) -> None:
    async with spawn() as resource, aiohttp.ClientSession() as session:
        words = ("--contenders", "100", "--rate", "100", "--duration", "3s", "--resource-url", resource.url)
        async with started(*words, *out(tmp_path)) as run:
            await run.under_load()
            resource.kill()
            await resource.start()
            await run.ended()
        async with session.put(f"{resource.url}/r/hot", data=b"x", headers={"X-Fence-Token": "1"}) as reply:
            assert reply.status == 409
    run.assert_well()
    history = load_run(run.folder())
    assert_accounted_for(history, 300)
    assert history.log is not None
    logged = {decision.token for decision in history.log if decision.accepted}
    acknowledged = {row.fence for row in history.rows if row.write == "accepted"}
    assert acknowledged <= logged


async def test_work_beyond_capacity_queues_and_the_latency_shows_it(tmp_path: Path) -> None:
    words = ("--contenders", "5", "--rate", "60", "--duration", "2s", "--work", "100ms", "--timeout", "1s")
    run = await harness(*words, *out(tmp_path))
    run.assert_well()
    summary = run.summary()
    arrivals = summary["arrivals"]
    assert arrivals["offered"] == 120, "the rate is kept whatever the lock does"
    assert arrivals["backlog_max"] > 20
    assert arrivals["timed_out"] > 50
    assert arrivals["acquired"] + arrivals["timed_out"] == 120
    assert summary["latency_ms"]["arrival_to_grant"]["p50"] > summary["latency_ms"]["acquire"]["p50"]
    assert summary["bound"]["name"] == "serialisation"
    assert "work is the largest part" in summary["bound"]["because"]
    assert_accounted_for(load_run(run.folder()), 120)


async def test_several_processes_make_one_run_with_one_verdict(tmp_path: Path) -> None:
    run = await harness(*SMALL, *out(tmp_path), "--processes", "2", "--keys", "5", "--arrivals", "poisson")
    run.assert_well()
    history = load_run(run.folder())
    assert {row.process for row in history.rows} == {0, 1}
    assert history.complete
    summary = run.summary()
    assert_accounted_for(history, summary["arrivals"]["offered"])
    assert summary["latency_ms"]["acquire"]["count"] == summary["arrivals"]["acquired"]
    assert len(summary["client"]["cpu"]) == 2
    assert {row.key for row in history.rows} == {f"key-{number}" for number in range(5)}
    assert not list(run.folder().glob("*-[01].*")), "the processes' own files were merged"


async def test_a_failed_threshold_is_exit_code_4(tmp_path: Path) -> None:
    run = await harness(*SMALL, *out(tmp_path), "--threshold", "acquire.p50<1us", "--threshold", "failed==0")
    assert run.code == 4 or run.summary()["doubts"]
    assert "acquire.p50<1us: failed, it was" in run.stdout
    assert "failed==0: passed" in run.stdout


async def test_a_quiet_run_says_in_one_line_which_threshold_failed(tmp_path: Path) -> None:
    junit = tmp_path / "ci" / "junit.xml"
    words = (*SMALL, *out(tmp_path), "--quiet", "--junit", str(junit))
    run = await harness(*words, "--threshold", "acquire.p99<1us", env={"GITHUB_ACTIONS": "true"})
    assert run.code in (3, 4)
    (line,) = run.out
    if run.code == 3:  # a busy machine: that is graver than a threshold
        run.assert_well()
        assert line.startswith("untrusted: the load generator ")
        return
    assert re.fullmatch(r"failed: acquire\.p99<1us, was [0-9.]+ [µm]?s \S+", line)
    assert run.err == [f"::error title=acquire.p99<1us::{run.summary()['thresholds'][0]['sentence']}"]
    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.get("failures") == "1"
    assert {case.get("name") for case in suite if len(case)} == {"acquire.p99<1us"}
    assert {"holders", "exclusion", "completeness", "trust"} <= {case.get("name") for case in suite}


async def test_a_second_run_among_another_runs_marks_is_not_called_ok(tmp_path: Path) -> None:
    """The memory backend counts its fences from one again; the resource has seen higher ones."""
    words = ("--backend", "memory", "--contenders", "20", "--rate", "100", "--duration", "500ms")
    async with spawn() as resource:
        first = await harness(*words, *out(tmp_path), "--resource-url", resource.url)
        second = await harness(*words, *out(tmp_path), "--resource-url", resource.url)
    first.assert_well()
    assert second.code == 3
    assert second.summary()["verdict"] == "unknown"
    assert "another run's marks are on the resource" in " ".join(second.stdout.split())
    assert (await harness("check", str(second.folder()))).code == 3


async def test_flags_come_from_the_environment_too(tmp_path: Path) -> None:
    environment = {"HARNESS_RATE": "40", "HARNESS_DURATION": "500ms", "HARNESS_BACKEND": "memory"}
    run = await harness(*out(tmp_path), "--contenders", "10", env=environment)
    run.assert_well()
    assert run.folder().name.endswith("-memory")
    assert run.summary()["arrivals"]["offered"] == 20


def _zookeeper_is_installed() -> bool:
    try:
        needs("zookeeper")
    except ServerMissing:
        return False
    return True


async def test_every_backend_runs(tmp_path: Path) -> None:
    """Each with its own real servers, side by side."""
    backends = ["redis-queue", "redlock", "etcd", *(["zookeeper"] if _zookeeper_is_installed() else [])]
    words = ("--contenders", "20", "--rate", "20", "--duration", "1s", "--quiet", *out(tmp_path))
    runs: list[Program] = await asyncio.gather(
        *(harness(*words, "--backend", backend) for backend in backends)
    )
    for backend, run in zip(backends, runs, strict=True):
        assert len(run.out) == 1, "quiet: the verdict and the folder"
        run.assert_well()
        assert run.out[0].startswith("ok " if run.code == 0 else "untrusted: the load generator "), backend
        assert run.summary()["arrivals"]["acquired"] == 20, backend


async def test_metrics_of_a_run_add_up_and_are_well_formed(tmp_path: Path) -> None:
    words = (*SMALL, *out(tmp_path), "--metrics-port", "0", "--processes", "2", "--duration", "2500ms")
    async with started(*words) as run, aiohttp.ClientSession() as session:
        url = (await run.line(lambda line: line.startswith("metrics at"))).split()[-1]
        await run.under_load()
        async with session.get(url) as reply:
            exposition = await reply.text()
        await run.ended()
    figures = dict(line.rsplit(" ", 1) for line in exposition.splitlines() if not line.startswith("#"))
    assert 0 < float(figures["harness_offered_total"]) <= 250
    assert float(figures['asyncdlock_acquired_total{backend="redis-queue"}']) >= float(
        figures["harness_acquired_total"]
    )
    promtool = shutil.which("promtool")
    if promtool is not None:
        check = await asyncio.create_subprocess_exec(
            promtool, "check", "metrics", stdin=asyncio.subprocess.PIPE, stdout=sys.stdout, stderr=sys.stderr
        )
        await check.communicate(exposition.encode())
        assert check.returncode == 0


async def test_the_same_seed_asks_for_the_same_keys_at_the_same_times(tmp_path: Path) -> None:
    words = ["--backend", "memory", "--rate", "50", "--duration", "500ms", "--seed", "5", *out(tmp_path)]
    words += ["--keys", "9", "--key-distribution", "zipf", "--arrivals", "poisson"]
    first, second = await asyncio.gather(harness(*words), harness(*words))

    def asked(run: Program) -> list[tuple[int, int, str]]:
        return sorted((row.id, row.intended, row.key) for row in load_run(run.folder()).rows)

    assert asked(first) == asked(second)


def test_a_terminal_gets_a_picture_and_then_the_summary(tmp_path: Path) -> None:
    """On a real pseudo-terminal: drawn over in place, gone at the end."""
    words = ["--backend", "memory", "--contenders", "30", "--rate", "50", "--duration", "1200ms"]
    # In a child of its own: pty.spawn forks, which a process with threads must not do.
    program = [sys.executable, "-c", _SPAWN, sys.executable, "-m", "harness", *words, *out(tmp_path)]
    done = subprocess.run(
        program, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False
    )
    shown = done.stdout.decode()
    assert done.returncode in (0, 3), shown  # 3: on a busy machine
    assert "\x1b[2K" in shown, "the picture is erased and drawn again"
    assert "arrival → grant p50" in shown
    verdict = "verdict ok" if done.returncode == 0 else "verdict unknown"
    assert shown.rindex(verdict) > shown.rindex("arrival → grant p50")


_SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
