"""Keeps the figures of an experiment in the repository: `python -m harness.lab.scale.publish RUN…`.

Copies `summary.json` to `bench/results/experiments/NAME.json`, a record a line, with the machine and the
versions of the servers beside it, and every chart to `NAME-CHART.svg`, all of it one line: a new
measurement changes few lines. Then it writes the page that shows them all, so that no figure is copied by
hand.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.report.compact_json import compact_json
from harness.servers import ServerMissing, etcd_cluster, redis_node

RESULTS = Path("bench/results/experiments")


def publish(run: Path, results: Path = RESULTS) -> list[Path]:
    """Copy what the run found; returns the files.

    :raises OSError, ValueError: not the folder of an experiment, or nothing can be written.
    """
    summary = json.loads((run / "summary.json").read_text())
    if not str(summary.get("schema", "")).startswith("asyncdlock-experiment/"):
        raise ValueError(f"{run} is not the folder of an experiment")
    name = summary["experiment"]["name"]
    summary["environment"] = summary["environment"] | {"processor": processor(), "servers": server_versions()}
    results.mkdir(parents=True, exist_ok=True)
    for old in results.glob(f"{name}-*.svg"):
        old.unlink()
    written = [results / f"{name}.json"]
    written[0].write_text(compact_json(summary) + "\n")
    for chart in sorted(run.glob("*.svg")):
        written.append(results / f"{name}-{chart.name}")
        written[-1].write_text(" ".join(chart.read_text().splitlines()) + "\n")
    return written


def write_overview(results: Path = RESULTS) -> Path:
    """`README.md` of the folder: every answer there is, with its command, machine and charts.

    :raises OSError: it cannot be written.
    """
    summaries = [json.loads(path.read_text()) for path in results.glob("*.json")]
    parts = [
        "# Figures of the experiments",
        "Written by `python -m harness.lab.scale.publish`: do not edit. How to read them: "
        "[docs/scale.md](../../../docs/scale.md), [docs/findings.md](../../../docs/findings.md).",
    ]
    for summary in sorted(summaries, key=lambda one: int(one["experiment"]["number"])):
        name, where = summary["experiment"]["name"], summary["environment"]
        verdict = "as predicted" if summary["as_predicted"] else "NOT as predicted"
        servers = ", ".join(where.get("servers", {}).values())
        parts += [
            f"## {summary['experiment']['number']}: {name}",
            f"**{summary['question']}**",
            f"```\n{summary['command']}\n```",
            f"{summary['started']}, {summary['duration_s']:.0f} s, {verdict}; {where['cpus']} × "
            f"{where.get('processor', 'unknown')}, load {where['load_average'][0]}, Python "
            f"{where['python']}; {servers}",
            summary["answer"],
            *([summary["repeated"]] if summary.get("repeated") else []),
            *(f"![{chart.stem}]({chart.name})" for chart in sorted(results.glob(f"{name}-*.svg"))),
        ]
    path = results / "README.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def processor() -> str:
    """The model of the processor, where the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown"


def server_versions() -> dict[str, str]:
    """What the servers that an experiment starts say of themselves."""
    found: dict[str, Any] = {}
    for name, find in (("redis", redis_node.find_binary), ("etcd", etcd_cluster.find_binary)):
        try:
            said = subprocess.run([find(), "--version"], capture_output=True, text=True, check=False)
        except (ServerMissing, OSError):
            continue
        found[name] = said.stdout.strip().splitlines()[0] if said.stdout.strip() else "unknown"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.lab.scale.publish", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders that experiments left")
    try:
        for run in parser.parse_args().runs:
            for path in publish(run):
                print(path)
        print(write_overview())
    except (OSError, ValueError) as error:
        print(f"harness: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
