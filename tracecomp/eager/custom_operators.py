"""Calls of code that a recording does not look into: custom operators, as nodes whose function every call runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tracecomp.base.capture_guide import Section
from tracecomp.eager.device import device
from tracecomp.eager.modes import modes, no_grad, unseen
from tracecomp.eager.rng import default_generator
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.op import OPS
from tracecomp.ir.types import DType
from tracecomp.ops.opaque import FUNCTIONS, STATIC, Function, Spec

Run = Callable[..., Any]


class NotOpaque(RuntimeError):
    """Why a call cannot be a node; the text begins with a verb."""


def register(name: str, run: Run) -> None:
    """Let ``run`` be the function of the nodes of operator ``name``, also those in files and caches."""
    FUNCTIONS[name] = _on_arrays(run)


def call(name: str, run: Run, fake: Run, args: Sequence[object], written: Sequence[bool]) -> Any:
    """Record ``run(*args)`` as one node; ``fake`` tells the results. The recorder refuses calls that cannot be one.

    ``written`` tells for each argument whether ``run`` writes to its tensors.
    """
    recorder = modes.recorder
    assert recorder is not None
    tensors: list[Tensor] = []
    targets: list[Tensor] = []
    try:
        given = recorder.plain(list(args))
        specs = tuple(_encoded(x, tensors, targets if w else None) for x, w in zip(given, written, strict=True))
        with no_grad():
            told = fake(*args)
        results = _listed(told)
        if not results and not targets:
            raise NotOpaque(f"calls {name}, which returns nothing")
        types = tuple((t.dtype, tuple(recorder.sizes.shape_of(t))) for t in (*results, *targets))
    except NotOpaque as reason:
        recorder.refuse_here(str(reason), Section.EXCLUDE)
        with no_grad():
            return run(*args)
    autocast = modes.autocast if isinstance(modes.autocast, DType) else False
    attrs = {"name": name, "arguments": (autocast, *specs), "results": types, "valid": STATIC}
    with no_grad():
        found = Tensor.__tracecomp_apply__(OPS["opaque"], tuple(tensors), attrs)
        made = list(found) if isinstance(found, tuple) else [found]
        for target, new in zip(targets, made[len(results) :], strict=True):
            target.copy_(new)
    own = made[: len(results)]
    return own[0] if isinstance(told, Tensor) else None if told is None else type(told)(own)


def _listed(results: object) -> list[Tensor]:
    """The tensors that an operator returned."""
    found = [] if results is None else list(results) if isinstance(results, tuple | list) else [results]
    tensors = [t for t in found if isinstance(t, Tensor)]
    if len(tensors) < len(found):
        raise NotOpaque("calls an operator whose results are not all tensors")
    return tensors


def _encoded(x: Any, tensors: list[Tensor], targets: list[Tensor] | None) -> Spec:
    """``x`` as an attribute; its tensors are added to ``tensors``, and to ``targets`` if the call writes to them."""
    if isinstance(x, Tensor):
        tensors.append(x)
        if targets is None:
            return ("tensor",)
        targets.append(x)
        return ("written",)
    if x is None:
        return ("none",)
    if isinstance(x, tuple | list):
        return ("list" if isinstance(x, list) else "tuple", *(_encoded(part, tensors, targets) for part in x))
    if isinstance(x, device):
        return ("device", str(x))
    for kind in (bool, int, float, complex, str, DType):
        if isinstance(x, kind):
            return ("plain", x) if kind is not int else ("int", x)
    raise NotOpaque(f"passes {type(x).__name__} to a custom operator")


def _decoded(spec: Spec, arrays: Iterator[Any], written: list[Tensor]) -> Any:
    """The argument that ``spec`` and the next arrays are; written tensors are copies."""
    kind, *parts = spec
    if kind == "tensor":
        return Tensor._wrap(next(arrays))
    if kind == "written":
        written.append(Tensor._wrap(np.array(next(arrays), order="C")))
        return written[-1]
    if kind in ("list", "tuple"):
        found = [_decoded(part, arrays, written) for part in parts]
        return found if kind == "list" else tuple(found)
    return None if kind == "none" else device(parts[0]) if kind == "device" else parts[0]


def _on_arrays(run: Run) -> Function:
    """``run`` as a function of arrays and encoded arguments; written arrays follow the results."""

    def function(arrays: Sequence[Any], arguments: Spec) -> list[Any]:
        autocast, *specs = arguments
        written: list[Tensor] = []
        given = iter(arrays)
        args = [_decoded(spec, given, written) for spec in specs]
        with _outside_recording(), unseen():
            before, modes.autocast = modes.autocast, autocast or None
            try:
                results = run(*args)
            finally:
                modes.autocast = before
        return [t._data for t in (*_listed(results), *written)]

    return function


@contextmanager
def _outside_recording() -> Iterator[None]:
    """Observe nothing inside, because every call repeats it; refuse draws from the generator that graphs advance."""
    recorder = modes.recorder
    if recorder is None:
        yield
        return
    tracing, state = sys.gettrace(), default_generator.state._data.copy()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracing)
    if not np.array_equal(state, default_generator.state._data):
        recorder.refuse_here("draws random numbers in a custom operator", Section.IMPURE)
