"""Changes between two reports: kernels, times, memory, bits of the code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

NOISE = 0.15
"""Least relative difference of two times that counts; measured times of one program differ by as much."""
LEAST = 2e-6
"""Least difference in seconds."""


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, str]]:
    """Lines ``what``, ``before``, ``after``, most important first; none if both reports agree."""
    found = [*_costs(old, new)]
    pairs = zip(old["programs"], new["programs"], strict=False)
    for before, after in pairs:
        found += _program(before, after)
    for program in old["programs"][len(new["programs"]) :]:
        found.append(_line(f"graph {program['name']}", "there", "gone"))
    for program in new["programs"][len(old["programs"]) :]:
        found.append(_line(f"graph {program['name']}", "not there", "there"))
    reasons = [Counter(r["facts"]["again"]) for r in (old, new)]
    found += [_line("recorded again", "", reason) for reason in reasons[1] - reasons[0]]
    found += [_line("recorded again", reason, "no more") for reason in reasons[0] - reasons[1]]
    lines = [{*r["environment"].splitlines()} for r in (old, new)]
    found += [_line("environment", "", line) for line in sorted(lines[1] - lines[0])]
    return found


def _costs(old: dict[str, Any], new: dict[str, Any]) -> Iterator[dict[str, str]]:
    costs = [r["facts"]["costs"] or {} for r in (old, new)]
    for name in ("call", "eager", "compiling"):
        yield from _time(f"{name} (seconds)", costs[0].get(name), costs[1].get(name))


def _program(old: dict[str, Any], new: dict[str, Any]) -> Iterator[dict[str, str]]:
    name = new["name"]
    if len(old["calls"]) != len(new["calls"]):
        yield _line(f"{name}: kernel calls", str(len(old["calls"])), str(len(new["calls"])))
    yield from _time(f"{name}: all kernels", old["seconds"], new["seconds"])
    for part in ("arena", "results", "state"):
        if old["memory"][part] != new["memory"][part]:
            yield _line(f"{name}: bytes of {part}", str(old["memory"][part]), str(new["memory"][part]))
    kernels = [{_body(k): key for key, k in p["kernels"].items()} for p in (old, new)]
    for body in kernels[0].keys() - kernels[1].keys():
        yield _line(f"{name}: kernel {kernels[0][body]}", "there", "gone, or other loops")
    for body in kernels[1].keys() - kernels[0].keys():
        yield _line(f"{name}: kernel {kernels[1][body]}", "not there", "new, or other loops")
    times = [_times(p) for p in (old, new)]
    for body in kernels[0].keys() & kernels[1].keys():
        before, after = (t.get(k[body]) for t, k in zip(times, kernels, strict=True))
        yield from _time(f"{name}: {kernels[1][body]}", before, after)
        code = [p["kernels"][k[body]]["assembly"] for p, k in zip((old, new), kernels, strict=True)]
        if len(code[0]) != len(code[1]):
            yield _line(f"{name}: instructions of {kernels[1][body]}", str(len(code[0])), str(len(code[1])))


def _body(kernel: dict[str, Any]) -> str:
    """The contents of a kernel without its numbers."""
    return "\n".join(kernel["loops"][1:])


def _times(program: dict[str, Any]) -> dict[str, float]:
    found: Counter[str] = Counter()
    for call in program["calls"]:
        if call["seconds"] is not None:
            found[call["name"]] += call["seconds"]
    return dict(found)


def _time(what: str, before: float | None, after: float | None) -> Iterator[dict[str, str]]:
    if before is None or after is None or abs(after - before) <= max(NOISE * max(before, after), LEAST):
        return
    yield _line(what, f"{before * 1e6:.1f} us", f"{after * 1e6:.1f} us ({after / before:.2f} times)")


def _line(what: str, before: str, after: str) -> dict[str, str]:
    return {"what": what, "before": before, "after": after}
