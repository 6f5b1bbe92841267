"""Writes the outcome of a contest: JSON with every figure, a table to read, a chart."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.claims import CLAIMS, Table
from bench.contest import LONGER_BEYOND
from bench.figures import remark
from bench.save import save

_COLUMNS = (
    ("sections/s", "sections_per_s", "{:,.0f}"),
    ("wait p50 ms", "wait_p50_ms", "{:.2f}"),
    ("p99 ms", "wait_p99_ms", "{:.1f}"),
    ("max ms", "wait_max_ms", "{:.1f}"),
    ("Jain", "jain", "{:.3f}"),
    ("starved", "starved", "{:.0f}"),
    ("commands", "commands_per_section", "{:.2f}"),
    ("client CPU µs", "client_cpu_us", "{:.1f}"),
    ("server CPU µs", "server_cpu_us", "{:.1f}"),
)


def write(outcome: dict[str, Any], folder: Path) -> list[Path]:
    """Write `peers.json`, `peers.md` and `peers.svg` into `folder`."""
    chart = folder / "peers.svg"
    written = save("peers", outcome, _markdown(outcome), folder)
    _draw(outcome, chart)
    return [*written, chart]


def _markdown(outcome: Mapping[str, Any]) -> Iterator[str]:
    where = outcome["environment"]
    yield "# asyncdlock beside its peers"
    yield ""
    rounds = f"medians of {outcome['rounds']} rounds of {outcome['seconds_per_round']} s, interleaved"
    yield f"`{outcome['command'].strip()}`: {rounds}; longer where over {LONGER_BEYOND} contend."
    yield f"{where['server']}, Python {where['python']}, {where['cpus']} cores. Commands, CPU: per section."
    for place, workloads in outcome["figures"].items():
        if claims := list(_claims(workloads)):
            yield from ("", f"## {place.capitalize()}: what is claimed", "")
            yield "| ratio | measured | bound | the raw limit reaches |"
            yield "|---|---|---|---|"
            yield from claims
        for work, subjects in workloads.items():
            yield from ("", f"## {place.capitalize()}: {work}", "")
            yield "| | " + " | ".join(title for title, _, _ in _COLUMNS) + " |"
            yield "|---|" + "---|" * len(_COLUMNS)
            for name, figures in sorted(subjects.items(), key=lambda item: -item[1]["sections_per_s"]):
                cells = [form.format(figures[key]) for _, key, form in _COLUMNS]
                yield f"| {name}{remark(figures)} | " + " | ".join(cells) + " |"
    if outcome["failed"]:
        yield from ("", "## Could not do the work", "")
        yield from (f"- {what}: {why}" for what, why in outcome["failed"].items())


def _claims(workloads: Mapping[str, Table]) -> Iterator[str]:
    """A line for every claim whose workloads and subjects were part of this run."""
    for claim in CLAIMS:
        try:
            value = claim.value(workloads)
            allowed = "" if claim.allowed is None else f"{claim.allowed(workloads):,.3g}"
        except KeyError:
            continue
        sign = "≤" if claim.at_most else "≥"
        mark = "" if claim.holds(value) else " **missed**"
        yield f"| {claim.text} | {value:,.3g}{mark} | {sign} {claim.bound:g} | {allowed} |"


def _draw(outcome: Mapping[str, Any], path: Path) -> None:
    """Sections per second by subject, one panel per workload, on a logarithmic scale."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "asyncdlock"
    from matplotlib import pyplot

    place, workloads = next(iter(outcome["figures"].items()))
    columns = 2
    rows = -(-len(workloads) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(12, 2.6 * rows), squeeze=False, layout="constrained"
    )
    for axis, (work, subjects) in zip(axes.flat, workloads.items(), strict=False):
        ordered = sorted(subjects.items(), key=lambda item: item[1]["sections_per_s"])
        names = [name for name, _ in ordered]
        rates = [figures["sections_per_s"] for _, figures in ordered]
        colours = ["#2a6fdb" if name.startswith("asyncdlock") else "#b0b0b0" for name in names]
        bars = axis.barh(names, rates, color=colours)
        axis.bar_label(bars, [f"{rate:,.0f}/s" for rate in rates], padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.set_xlim(right=max(rates) * 8)
        axis.set_title(work, fontsize=10)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in list(axes.flat)[len(workloads) :]:
        axis.set_visible(False)
    figure.suptitle(f"Critical sections per second ({place}; {outcome['environment']['server']})")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
