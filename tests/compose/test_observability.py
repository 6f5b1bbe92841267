"""Prometheus and Grafana beside a run: valid files, alerts that fire for their causes, panels with data."""

import asyncio
import contextlib
import json
import math
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from harness.cli import flags
from harness.cli.main import Parser
from harness.resource.process import spawn
from harness.servers.ports import free_port
from tests.cli.program import started
from tests.compose.specification import service_names

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose"
PROMETHEUS = COMPOSE / "prometheus"
MODEL: dict[str, Any] = yaml.safe_load((COMPOSE / "observability.yaml").read_text())
DASHBOARD: dict[str, Any] = json.loads((COMPOSE / "grafana/dashboards/asyncdlock.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"]
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")


def test_the_compose_file_is_valid_pinned_and_keeps_to_loopback() -> None:
    assert service_names(MODEL) == sorted(MODEL["services"])
    for name, service in MODEL["services"].items():
        tag = service["image"].partition(":")[2]
        assert re.fullmatch(r"v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", tag), f"{name} runs {tag!r}"
        assert "ports" not in service
        assert service["healthcheck"]["test"][0] == "CMD"
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert source in MODEL["volumes"] or (COMPOSE / source).is_dir()
    assert "--web.listen-address=127.0.0.1:9090" in MODEL["services"]["prometheus"]["command"]
    assert MODEL["services"]["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
)
def test_promtool_finds_nothing_wrong(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_has_a_section_in_the_runbook() -> None:
    runbook = (ROOT / "docs/runbook.md").read_text()
    document = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())
    firing = {
        case["alertname"]
        for test in document["tests"]
        for case in test["alert_rule_test"]
        if "exp_alerts" in case
    }
    silent = {
        case["alertname"]
        for test in document["tests"]
        for case in test["alert_rule_test"]
        if "exp_alerts" not in case
    }
    names = {rule["alert"] for rule in RULES}
    assert firing == silent == names
    assert names == set(re.findall(r"^## (\w+)$", runbook, re.MULTILINE))
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_the_dashboard_is_provisioned_where_grafana_looks_for_it() -> None:
    volumes = dict(volume.split(":")[:2] for volume in MODEL["services"]["grafana"]["volumes"])
    provider = yaml.safe_load((COMPOSE / "grafana/provisioning/dashboards/dashboards.yaml").read_text())
    assert volumes["./grafana/dashboards"] == provider["providers"][0]["options"]["path"]
    source = yaml.safe_load((COMPOSE / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["datasources"][0]["uid"]}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@contextlib.asynccontextmanager
async def prometheus(folder: Path, targets: dict[str, str]) -> AsyncIterator[str]:
    """A real one with our configuration, which scrapes these targets every second; its address."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("apt-get install prometheus")
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    assert {job["job_name"] for job in config["scrape_configs"]} == targets.keys()
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [targets[job["job_name"]]]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(PROMETHEUS / "alerts.yml", folder)
    address = f"127.0.0.1:{free_port()}"
    with (folder / "log").open("wb") as log:
        child = await asyncio.create_subprocess_exec(
            *(
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
            ),
            f"--web.listen-address={address}",
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://{address}"
    finally:
        child.terminate()
        await child.wait()


async def asked(session: aiohttp.ClientSession, url: str, query: str) -> list[float]:
    """The values that a query gives now, those that are none left out."""
    try:
        async with session.get(f"{url}/api/v1/query", params={"query": query}) as reply:
            answer = await reply.json()
    except aiohttp.ClientConnectionError:
        return []  # it is starting
    assert answer["status"] == "success", f"{query}: {answer}"
    values = [float(series["value"][1]) for series in answer["data"]["result"]]
    return [value for value in values if not math.isnan(value)]


async def test_every_query_of_the_dashboard_has_data_while_a_real_run_lasts(tmp_path: Path) -> None:
    words = (
        "--backend",
        "redis-queue",
        "--rate",
        "100",
        "--contenders",
        "50",
        "--duration",
        "5m",
        "--metrics-port",
        "0",
    )
    async with (
        spawn() as resource,
        started(*words, "--resource-url", resource.url, "--out", str(tmp_path / "runs")) as run,
    ):
        metrics = (await run.line(lambda line: line.startswith("metrics at"))).split("/")[2]
        targets = {"harness": metrics, "resource": resource.address}
        (tmp_path / "prometheus").mkdir()
        async with (
            prometheus(tmp_path / "prometheus", targets) as url,
            aiohttp.ClientSession() as session,
            asyncio.timeout(120),
        ):
            empty = list(QUERIES)
            while empty:
                await asyncio.sleep(1.0)
                empty = [query for query in empty if not await asked(session, url, query)]
            (acquired,) = await asked(session, url, "sum(asyncdlock_acquired_total)")
            assert acquired > 0
            async with session.get(f"{url}/api/v1/rules") as reply:
                groups = (await reply.json())["data"]["groups"]
            assert {rule["name"] for group in groups for rule in group["rules"]} == {
                r["alert"] for r in RULES
            }
            assert all(rule["health"] in ("ok", "unknown") for group in groups for rule in group["rules"])
        run.interrupt()
        await run.ended()


def test_the_kubernetes_job_makes_shares_with_flags_that_the_harness_knows() -> None:
    job = yaml.safe_load((COMPOSE / "kubernetes/job.yaml").read_text())
    spec = job["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == 4
    container = spec["template"]["spec"]["containers"][0]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    for index in range(spec["completions"]):
        script = container["args"][0].replace("exec python -m harness", "printf '%s\\n'")
        said = subprocess.run(
            [*container["command"], script],
            env=environment | {"JOB_COMPLETION_INDEX": str(index)},
            capture_output=True,
            text=True,
            check=True,
        )
        parser = Parser(prog="harness", allow_abbrev=False)
        flags.add_arguments(parser)
        config = flags.from_arguments(parser.parse_args(said.stdout.splitlines()))
        assert config.share == (index, 4)
        assert config.url == environment["LOCK_URL"]
