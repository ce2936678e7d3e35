"""A plot of results: time of every peer over tracecomp's, by class."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from benchmarks.bars import Results, geomean
from benchmarks.cases import KINDS
from benchmarks.engines import PEERS
from benchmarks.report import ratios


def classes(results: Results) -> list[str]:
    """The classes that were measured with any number of threads, in the order of the tables."""
    found = {w.split("/", 1)[0] for speed in results["speed"].values() for w in speed}
    return [kind for kind in KINDS if kind in found]


def draw(results: Results, path: Path) -> None:
    """Write the plot; ImportError without matplotlib."""
    import_module("matplotlib").use("Agg")
    plt = import_module("matplotlib.pyplot")
    counts, kinds = list(results["speed"]), classes(results)
    figure, axes = plt.subplots(1, len(counts), figsize=(7 * len(counts), 9), squeeze=False, sharey=True)
    for axis, threads in zip(axes[0], counts, strict=True):
        speed = results["speed"][threads]
        for n, peer in enumerate(PEERS):
            places, values, means, rows = [], [], [], []
            for y, kind in enumerate(kinds):
                found = [r[peer] for w, rs in speed.items() if w.startswith(f"{kind}/") and peer in (r := ratios(rs))]
                at = y + 0.12 * (n - len(PEERS) / 2)
                places += [at] * len(found)
                values += found
                if found:
                    means.append(geomean(found))
                    rows.append(at)
            axis.plot(values, places, ".", color=f"C{n}", alpha=0.35, markersize=6)
            axis.plot(means, rows, "D", color=f"C{n}", label=peer, markersize=6)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.axvline(1, color="black", linewidth=1)
        axis.set_yticks(range(len(kinds)), kinds)
        axis.set_title(f"threads: {threads}")
        axis.set_xlabel(f"{results.get('clock', 'time')}: peer / tracecomp (right of the line: tracecomp is faster)")
        axis.grid(axis="x", alpha=0.3)
    axes[0][0].invert_yaxis()
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, title="diamond: geometric mean", loc="upper center", ncols=6, fontsize="small")
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(path, dpi=120)
