"""A plot of results: time of every peer over tracecomp's, by class."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.bars import Results, geomean
from benchmarks.cases import KINDS
from benchmarks.engines import PEERS
from benchmarks.report import ratios


def classes(results: Results) -> list[str]:
    """The classes that were measured with any number of threads, in the order of the tables."""
    found = {w.split("/", 1)[0] for speed in results["speed"].values() for w in speed}
    return [kind for kind in KINDS if kind in found]


def draw(results: Results, path: Path) -> None:
    """Write the plot, readable at the width of a page's text; ImportError without matplotlib."""
    import_module("matplotlib").use("Agg")
    plt = import_module("matplotlib.pyplot")
    counts, kinds = list(results["speed"]), classes(results)
    size = (2 + 3 * len(counts), 1.6 + 0.34 * len(kinds))
    figure, axes = plt.subplots(1, len(counts), figsize=size, squeeze=False, sharex=True, sharey=True)
    for axis, threads in zip(axes[0], counts, strict=True):
        for y in range(0, len(kinds), 2):
            axis.axhspan(y - 0.5, y + 0.5, color="0.95", linewidth=0)
        for n, peer in enumerate(PEERS):
            _points(axis, results["speed"][threads], kinds, n, peer)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.axvline(1, color="black", linewidth=1)
        axis.set_yticks(range(len(kinds)), kinds)
        axis.set_ylim(len(kinds) - 0.5, -0.5)
        axis.tick_params(labelsize=9, length=2)
        axis.set_title("1 thread" if threads == "1" else f"{threads} threads", fontsize=10)
        axis.grid(axis="x", alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, fontsize=9, frameon=False)
    clock = results.get("clock", "time")
    figure.supxlabel(f"{clock} divided by tracecomp's; diamonds are geometric means", fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.5 / size[1]))
    figure.savefig(path, dpi=200)


def _points(axis: Any, speed: dict[str, Any], kinds: list[str], n: int, peer: str) -> None:
    """Add the ratios of one peer, each workload as a dot and each class's mean as a diamond."""
    values, places, means, rows = [], [], [], []
    for y, kind in enumerate(kinds):
        found = [r[peer] for w, rs in speed.items() if w.startswith(f"{kind}/") and peer in (r := ratios(rs))]
        at = y + 0.14 * (n - (len(PEERS) - 1) / 2)
        places += [at] * len(found)
        values += found
        if found:
            means.append(geomean(found))
            rows.append(at)
    axis.plot(values, places, ".", color=f"C{n}", alpha=0.35, markersize=3, markeredgewidth=0)
    axis.plot(means, rows, "D", color=f"C{n}", label=peer, markersize=4)
