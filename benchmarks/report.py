"""Tables of results, in markdown."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.bars import Results, geomean, table
from benchmarks.cases import WORKLOADS
from benchmarks.engines import PEERS
from benchmarks.speed import OURS


def ratios(rows: dict[str, Any]) -> dict[str, float]:
    """Time of each peer over tracecomp's."""
    return {e: r["ratio"] for e, r in rows.items() if e in PEERS and "ratio" in r}


def time_text(seconds: float) -> str:
    """A time in a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def _share(workload: str, seconds: float, machine: dict[str, Any], threads: str) -> str:
    """Return the share of the machine's peak that the time amounts to."""
    w = WORKLOADS.get(workload)
    if w is None or threads not in machine["flops"]:
        return ""
    flops, moved = w.flops / seconds / machine["flops"][threads], w.bytes / seconds / machine["bandwidth"][threads]
    if not flops and not moved:
        return ""
    return f"{100 * flops:.0f} % FMA" if flops >= moved else f"{100 * moved:.0f} % mem"


def _line(workload: str, rows: dict[str, Any], machine: dict[str, Any], threads: str) -> str:
    """One row: our time, our share of peak, each peer's time over ours."""
    ours = rows.get(OURS, {})
    cells = [workload.split("/", 1)[1]]
    if "seconds" in ours:
        cells += [time_text(ours["seconds"]), _share(workload, ours["seconds"], machine, threads)]
    else:
        cells += ["failed" if "failed" in ours else "-", ""]
    found = ratios(rows)
    for peer in PEERS:
        row = rows.get(peer, {})
        if peer in found:
            cells.append(f"{found[peer]:.2f}")
        elif "seconds" in row:
            cells.append(time_text(row["seconds"]))
        else:
            cells.append("failed" if "failed" in row else "")
    best = min(found.values(), default=math.nan)
    cells.append("" if math.isnan(best) else f"**{best:.2f}**" if best < 1 else f"{best:.2f}")
    return "| " + " | ".join(cells) + " |"


def speed_table(results: Results, threads: str) -> str:
    """Every workload by class; geometric means."""
    lines: list[str] = []
    speed = results["speed"][threads]
    for kind in dict.fromkeys(w.split("/", 1)[0] for w in speed):
        chosen = {w: rows for w, rows in speed.items() if w.startswith(f"{kind}/")}
        lines += [
            "",
            f"| {kind} | tracecomp | of peak | {' | '.join(PEERS)} | best peer |",
            "|---" * (len(PEERS) + 4) + "|",
        ]
        lines += [_line(w, rows, results["machine"], threads) for w, rows in chosen.items()]
        found = [ratios(rows) for rows in chosen.values()]
        means = [geomean([f[p] for f in found if p in f]) for p in PEERS] + [
            geomean([min(f.values()) for f in found if f])
        ]
        cells = ["" if math.isnan(m) else f"{m:.2f}" for m in means]
        lines.append(f"| *geometric mean* | | | {' | '.join(cells)} |")
    return "\n".join(lines)


def start_table(results: Results) -> str:
    """First call, warm start and memory."""
    lines = [
        "| work | engine | cold (processor) | warm (processor) | eager call (processor) | settled | import "
        "| peak, cold | peak, warm |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for workload, engines in results.get("start", {}).items():
        for engine, row in engines.items():
            if "cold" not in row:
                lines.append(f"| {workload} | {engine} | {'failed' if 'failed' in row else 'missing'} | | | | | | |")
                continue
            times = [_start_text(row, kind) for kind in ("cold", "warm", "eager")]
            times += [time_text(row["settled"]), time_text(row["import_seconds"])]
            memory = [f"{row[m] / 2**20:.0f} MB" if row.get(m) else "" for m in ("peak", "warm_peak")]
            lines.append(f"| {workload} | {engine} | {' | '.join([*times, *memory])} |")
    return "\n".join(lines)


def _start_text(row: dict[str, Any], kind: str) -> str:
    if row.get(kind) is None or row.get(f"{kind}_cpu") is None:
        return ""
    return f"{row[kind]:.2f} s ({row[f'{kind}_cpu']:.2f} s)"


def load_table(results: Results) -> str:
    """Steps on a busy machine."""
    lines = [
        "| engine | 1 thread | 2 threads | 1 thread, busy | 2 threads, busy | busy: 2 / 1 |",
        "|---|---|---|---|---|---|",
    ]
    for engine, row in results.get("load", {}).items():
        if "busy 2" not in row:
            lines.append(f"| {engine} | {'failed' if 'failed' in row else 'missing'} | | | | |")
            continue
        times = [time_text(row[k]) for k in ("alone 1", "alone 2", "busy 1", "busy 2")]
        lines.append(f"| {engine} | {' | '.join(times)} | {row['busy 2'] / row['busy 1']:.2f} |")
    return "\n".join(lines)


def machine_text(results: Results) -> str:
    """The machine and the command."""
    machine = results["machine"]
    peaks = ", ".join(
        f"{n} thread{'s' if n != '1' else ''}: {machine['flops'][n] / 1e9:.0f} GFLOP/s float32 multiply-add, "
        f"{machine['bandwidth'][n] / 1e9:.1f} GB/s copy (read and write)"
        for n in machine["flops"]
    )
    packages = ", ".join(f"{p} {v}" for p, v in machine["packages"].items())
    system = f"{machine['cores']} cores; {machine['system']}; Python {machine['python']}"
    clock = f"\nTimes are {results['clock']}." if "clock" in results else ""
    commands = "\n".join(f"Command: {c}." for c in results["commands"])
    return f"{machine['processor']}; {system}; {packages}.\nMeasured peaks: {peaks}.\n{commands}{clock}"


def failures(results: Results) -> str:
    """Return the failures and their reasons, tracecomp first."""
    lines = []
    for threads, speed in results.get("speed", {}).items():
        for workload, rows in speed.items():
            lines += [
                f"* {engine}, {threads} thread(s), {workload}: {row['failed']}"
                for engine, row in rows.items()
                if "failed" in row
            ]
    return "\n".join(sorted(lines, key=lambda line: not line.startswith(f"* {OURS},")))


def behind(results: Results) -> str:
    """Return the workloads for which the best peer is faster, the worst first."""
    found = []
    for threads, speed in results.get("speed", {}).items():
        for workload, rows in speed.items():
            best = min(ratios(rows).items(), key=lambda p: p[1], default=None)
            if best is not None and best[1] < 1:
                cpu = rows[best[0]]["cpu"] / rows[OURS]["cpu"]
                figures = f"{best[1]:.2f} of {best[0]}'s speed ({cpu:.2f} by processor time)"
                found.append((best[1], f"* {figures}, {threads} thread(s): {workload}"))
    return "\n".join(text for _, text in sorted(found))


def full(results: Results) -> str:
    """Everything."""
    parts = [machine_text(results), f"### Bars\n\n{table(results)}"]
    for threads in results.get("speed", {}):
        parts.append(f"### Speed, threads: {threads}\n{speed_table(results, threads)}")
    if results.get("start"):
        parts.append(f"### First call, warm start, memory\n\n{start_table(results)}")
    if results.get("load"):
        parts.append(f"### Busy machine\n\n{load_table(results)}")
    parts += [
        f"### {title}\n\n{text}" for title, text in (("Behind", behind(results)), ("Failed", failures(results))) if text
    ]
    return "\n\n".join(parts)
