"""The recordings of a compiled function that a file contains: those of the given calls, or of all dynamic sizes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tracecomp.base import config
from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.base.errors import CaptureError
from tracecomp.compiled.function import Compiled
from tracecomp.compiled.open_sizes import OpenSizes, add_marked, argument_names, asked_for, bounded
from tracecomp.compiled.program_files.levels import chosen
from tracecomp.compiled.program_files.open_sizes import LeftOpen, served
from tracecomp.compiled.program_files.save import Case, save_code, save_graph
from tracecomp.compiled.program_state import SavedState
from tracecomp.compiled.recompile_policy import MAX_UNSETTLED
from tracecomp.record.pytree import flatten_call
from tracecomp.record.recording import Recording
from tracecomp.record.symbolic.sizes import SizeSource


def save(
    compiled: Compiled, path: str | os.PathLike[str], args: tuple[object, ...], also: Sequence[tuple[object, ...]],
    kind: str, levels: Sequence[str] | None, dynamic_shapes: object,
) -> str:  # fmt: skip
    """Implementation of ``Compiled.save``."""
    names = argument_names(compiled.fn, args)
    asked = asked_for("save()", args, names, None, dynamic_shapes)
    add_marked(asked, args, names)
    cases = _open_cases(compiled, args, asked) if asked.names else _cases(compiled, args)
    cases += [case for given in also for case in _cases(compiled, given)]
    if kind not in ("code", "graph"):
        raise ValueError(f"save(): kind must be 'code' or 'graph', got {kind!r}")
    with config.override(fast_math=compiled.fast_math or config.current().fast_math):
        if kind == "graph":
            return save_graph(path, compiled._name, cases, names)
        return save_code(path, compiled._name, cases, names, chosen(levels))


def _cases(compiled: Compiled, args: tuple[object, ...]) -> list[Case]:
    """The recordings that serve calls with ``args``."""
    structure, leaves = flatten_call(args, {})
    for _ in range(MAX_UNSETTLED):
        fitting = [e.recording for e in compiled.entries if e.recording.guards.miss(structure, leaves) is None]
        if fitting:
            return [Case(r, structure[1], leaves) for r in fitting]
        compiled._general(*args)
    why = compiled.parts.reason if compiled.parts is not None else compiled.eager_because
    if why is not None:
        raise CaptureError(f"{compiled._name} cannot be saved: it is not a single graph: {why}")
    cause = f"{compiled._name} needs a new recording for every call: {', '.join(compiled.misses[-1:])}"
    raise CaptureError(str(BreakReason(cause, Section.FIND)))


def _open_cases(compiled: Compiled, args: tuple[object, ...], asked: OpenSizes) -> list[Case]:
    """The recordings that serve calls with ``args`` and other sizes, made by a function that is compiled with the same
    settings."""
    fn, fast_math = compiled.fn, compiled.fast_math
    ranges = bounded("save()", asked)
    if not compiled.entries:
        _cases(compiled, args)  # state that the first calls make is there
    before = SavedState({"args": args, compiled._name: fn})
    twin = Compiled(fn, fullgraph=True, backend="interpret", fast_math=fast_math)
    first = [len(flatten_call(args[:k], {})[1]) for k in range(len(args))]
    sources = {SizeSource(("argument", first[k]), axis): name for (k, axis), name in asked.names.items()}
    for source, name in sources.items():
        twin._recompile.learned.sizes.follow(source, ranges[name])

    def fitting(given: tuple[object, ...]) -> tuple[Recording, bool] | None:
        structure, leaves = flatten_call(given, {})
        fit = [e for e in twin.entries if e.recording.guards.miss(structure, leaves) is None]
        best = next((e for e in fit if e.is_sized()), fit[0] if fit else None)
        return None if best is None else (best.recording, best.is_sized())

    left_open, cases = LeftOpen(sources, ranges), []
    try:
        for one in served(compiled._name, args, asked, left_open, fitting, twin._general):
            if one.sized:
                structure, leaves = flatten_call(one.args, {})
                cases.append(Case(one.recording, structure[1], leaves, left_open))
            else:
                alone = Compiled(fn, fullgraph=True, backend="interpret", dynamic=False)
                cases += _cases(alone, one.args)
    except CaptureError as error:
        raise CaptureError(". ".join([str(error), *twin.misses[-1:]])) from None
    finally:
        before.restore()
    return cases
