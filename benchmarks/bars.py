"""The project's performance targets, and the measured values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.cases import WORKLOADS
from benchmarks.cases.models import STARTS
from benchmarks.speed import OURS

Results = dict[str, Any]
Rows = dict[str, Any]
COMPILERS = ("torch", "torch channels_last", "torch.compile", "jax.jit")
MEMORY_KINDS = ("elementwise", "rows and columns", "movement")


def geomean(values: list[float]) -> float:
    """The geometric mean; nan of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def _measured(results: Results, threads: str, *kinds: str) -> Iterator[tuple[str, Rows]]:
    """The workloads of some classes that tracecomp ran."""
    for workload, rows in results["speed"].get(threads, {}).items():
        if workload.split("/", 1)[0] in kinds and "seconds" in rows.get(OURS, {}):
            yield workload, rows


def _best(rows: Rows, peers: tuple[str, ...] | None = None) -> float:
    """The fastest peer's time over ours; nan without peers."""
    found = [r["ratio"] for e, r in rows.items() if e != OURS and "ratio" in r and (peers is None or e in peers)]
    return min(found, default=math.nan)


def _peak(results: Results, threads: str, workload: str, rows: Rows) -> float:
    share: float = WORKLOADS[workload].flops / rows[OURS]["seconds"] / results["machine"]["flops"][threads]
    return share


def _against(found: list[float]) -> str:
    """How many are ahead, the mean and the worst."""
    known = [f for f in found if not math.isnan(f)]
    if not known:
        return "not measured"
    ahead = sum(f > 1 for f in known)
    return f"ahead in {ahead} of {len(known)}, geomean {geomean(known):.2f}, worst {min(known):.2f}"


def _matmul(results: Results, threads: str) -> str:
    rows = list(_measured(results, threads, "matmul"))
    wide = [_peak(results, threads, w, r) for w, r in rows if WORKLOADS[w].smallest >= 128]
    if not wide:
        return "not measured"
    peers = _against([_best(r, ("torch", "numpy")) for _, r in rows])
    vector = [
        WORKLOADS[w].bytes / r[OURS]["seconds"] / results["machine"]["bandwidth"][threads]
        for w, r in rows
        if WORKLOADS[w].smallest == 1
    ]
    shares = ", ".join(f"{100 * v:.0f} %" for v in vector)
    return (
        f"dims >= 128: {100 * min(wide):.0f} to {100 * max(wide):.0f} % of peak; torch and numpy: {peers}; "
        f"GEMV: {shares} of copy bandwidth (operands that fit the cache can pass 100 %)"
    )


def _conv(results: Results, threads: str) -> str:
    parts = []
    for kind in ("conv forward", "conv data gradient", "conv weight gradient"):
        rows = list(_measured(results, threads, kind))
        main = [(w, r) for w, r in rows if "64-64, 8x56x56" in w]
        if main:
            share = _peak(results, threads, *main[0])
            parts.append(f"{kind} {100 * share:.0f} % of peak, best peer {_best(main[0][1]):.2f}")
        parts.append(f"all shapes: {_against([_best(r) for _, r in rows])}")
    return "; ".join(parts)


def _memory_bound(results: Results, threads: str) -> str:
    rows = list(_measured(results, threads, *MEMORY_KINDS))
    found = _against([_best(r) for _, r in rows])
    large = [
        WORKLOADS[w].bytes / r[OURS]["seconds"] / results["machine"]["bandwidth"][threads]
        for w, r in rows
        if w.startswith("movement/") and WORKLOADS[w].bytes > 30e6
    ]
    shares = ", ".join(f"{100 * v:.0f} %" for v in large)
    return f"{found}; of copy bandwidth where operands fit no cache: {shares or 'not measured'}"


def _inference(results: Results, threads: str) -> str:
    rows = list(_measured(results, threads, "inference"))
    runtime = _against([_best(r, ("onnxruntime",)) for _, r in rows])
    return f"torch, torch.compile, jax: {_against([_best(r, COMPILERS) for _, r in rows])}; onnxruntime: {runtime}"


def _training(results: Results, threads: str) -> str:
    return _against([_best(r, COMPILERS) for _, r in _measured(results, threads, "training")])


def _calls(results: Results, threads: str) -> str:
    found = dict(_measured(results, threads, "call"))
    times = [
        f"{label} {found[w][OURS]['seconds'] * 1e9:.0f} ns"
        for label, w in (("preallocated", "call/add preallocated 4"), ("new output", "call/add 4"))
        if w in found
    ]
    return ", ".join(times) or "not measured"


def _first_call(results: Results) -> str:
    rows = results["start"].get(STARTS[0], {})
    ours = rows.get(OURS, {})
    if ours.get("eager") is None:
        return "not measured"
    beyond, busy = ours["cold"] - ours["eager"], ours["cold_cpu"] - ours["eager_cpu"]
    parts = [f"{beyond:.2f} s ({busy:.2f} s of processor time)"]
    for peer in ("torch.compile", "jax.jit"):
        if "cold" in rows.get(peer, {}):
            parts.append(f"{peer} {rows[peer]['cold']:.2f} s ({rows[peer]['cold_cpu']:.2f} s)")
    return "; ".join(parts)


def _warm(results: Results) -> str:
    parts = []
    for workload, rows in results["start"].items():
        ours = rows.get(OURS, {})
        if all(ours.get(f"{k}_cpu") is not None for k in ("cold", "warm", "eager")):
            cold, warm = (ours[f"{k}_cpu"] - ours["eager_cpu"] for k in ("cold", "warm"))
            wall = ours["warm"] - ours["eager"]
            parts.append(
                f"{workload.split('/', 1)[1]}: {wall:.2f} s; {warm:.2f} s of processor time, {warm / cold:.2f} of cold"
            )
    return "; ".join(parts) or "not measured"


def _memory(results: Results) -> str:
    parts = []
    for workload, rows in results["start"].items():
        ours, torch = rows.get(OURS, {}), rows.get("torch", {})
        if ours.get("warm_peak") and "peak" in torch:
            base, theirs = ours["imported"], torch["imported"]
            whole = [100 * (ours[k] + base) / (torch["peak"] + theirs) for k in ("peak", "warm_peak")]
            beyond = [100 * ours[k] / torch["peak"] for k in ("peak", "warm_peak")]
            parts.append(
                f"{workload.split('/', 1)[1]}: the process {whole[0]:.0f} % with compiling, {whole[1]:.0f} % when it "
                f"loads what another compiled; beyond the import {beyond[0]:.0f} and {beyond[1]:.0f} %"
            )
    return "; ".join(parts) or "not measured"


def _load(results: Results) -> str:
    ours = results.get("load", {}).get(OURS, {})
    return f"{ours['busy 2'] / ours['busy 1']:.2f}" if "busy 2" in ours else "not measured"


_BY_THREADS: tuple[tuple[str, str, Callable[[Results, str], str]], ...] = (
    (
        "matmul",
        ">= 90 % of peak from 128 up; faster than torch and numpy everywhere; GEMV at memory bandwidth",
        _matmul,
    ),
    ("conv 3x3, 64 channels, 56x56", ">= 90 % of peak forward, >= 80 % gradients; faster than the peers", _conv),
    (
        "elementwise, norm, softmax, loss, statistics, transposes",
        "faster than the best peer on every one; >= 80 % of bandwidth",
        _memory_bound,
    ),
    (
        "models, inference",
        "faster than torch, torch.compile, jax on every one; geomean >= 1.15 against onnxruntime",
        _inference,
    ),
    (
        "models, training step",
        "geomean >= 1.5 against the best of torch, torch.compile, jax; behind on none",
        _training,
    ),
    ("call on tiny tensors", "<= 150 ns preallocated, <= 500 ns new output", _calls),
)
_ONCE: tuple[tuple[str, str, Callable[[Results], str]], ...] = (
    ("first call beyond the eager run, GPT step", "<= 1/10 of torch.compile, below jax.jit", _first_call),
    ("second process", "<= 0.5 s for the GPT step, <= 1/4 of cold everywhere", _warm),
    ("peak memory of a step", "<= 60 % of torch eager", _memory),
    ("on a busy machine", "2 threads <= 1.3 x 1 thread", _load),
)


def table(results: Results) -> str:
    """Return each target with its measured value."""
    lines = ["| work | bar | threads | measured |", "|---|---|---|---|"]
    for work, bar, measure in _BY_THREADS:
        lines += [f"| {work} | {bar} | {n} | {measure(results, n)} |" for n in results["speed"]]
    lines += [f"| {work} | {bar} | | {measure(results)} |" for work, bar, measure in _ONCE]
    return "\n".join(lines)
