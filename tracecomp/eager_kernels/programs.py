"""Machine code for one operator and frequent shapes, compiled on a second thread.

Specialized programs of convolutions and recurrent layers are faster than the code for any shape. A program is used only
after it has returned the same bits, on copies of the operands and on random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from tracecomp import eager_kernels
from tracecomp.base.errors import LinAlgError
from tracecomp.eager_kernels import background
from tracecomp.ir.arrays import same_bits
from tracecomp.ir.graph import Graph
from tracecomp.ir.op import Op
from tracecomp.ir.types import TensorType, from_numpy_dtype
from tracecomp.passes.cost.machine import host
from tracecomp.runtime import program_cache
from tracecomp.runtime.loaded import loaded

Array = np.ndarray[Any, Any]
Attrs: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Sequence[Array]], tuple[Array, ...]]
Key: TypeAlias = tuple[Any, ...]

AFTER = 8
"""Calls with the same shapes after which a program is compiled."""
MANY = 1024
"""Most kinds of calls that are counted."""
MOST_BYTES = 2**26
"""Most bytes of operands, as they are copied."""


class _Program:
    """The calls of an operator with operands of some types, and the program that serves them."""

    def __init__(self) -> None:
        self.calls = 0
        self.run: Run | None = None

    def make(self, op: Op, arrays: list[Array], attrs: Attrs, eager: Run) -> None:
        """Serve calls like this one, if the program gives the bits of ``eager``."""
        graph = Graph(op.name)
        types = [TensorType(from_numpy_dtype(x.dtype), x.shape) for x in arrays]
        for value in graph.add(op, [graph.add_input(t, f"in{n}") for n, t in enumerate(types)], attrs):
            graph.add_output(value)
        code = loaded(program_cache.image_of(graph, host(), lambda: eager_kernels.program_image(graph)))
        outs = [o.value.type for o in graph.outputs]

        def run(given: Sequence[Array]) -> tuple[Array, ...]:
            results = tuple([np.empty(t.shape, t.dtype.numpy) for t in outs])
            code.run((*[np.asarray(x, order="C") for x in given], *results), None)
            return results

        rng = np.random.default_rng(0)
        others = [np.asarray(rng.standard_normal(x.shape), x.dtype) if x.dtype.kind == "f" else x for x in arrays]
        if all(_agree(run, eager, given) for given in (arrays, others)):
            self.run = run


def _agree(run: Run, eager: Run, given: Sequence[Array]) -> bool:
    """Whether both return the same bits, or both raise for invalid matrices."""
    found, wanted = (_outcome(one, given) for one in (run, eager))
    if isinstance(found, str) or isinstance(wanted, str):
        return found == wanted
    return all(same_bits(x, y, any_nan=True) for x, y in zip(found, wanted, strict=True))


def _outcome(run: Run, given: Sequence[Array]) -> tuple[Array, ...] | str:
    try:
        return run(given)
    except LinAlgError as error:
        return str(error)


_programs: dict[Key, _Program] = {}


def served(op: Op, arrays: Sequence[Array], attrs: Attrs, eager: Run) -> tuple[Array, ...] | None:
    """Return the results of a program, if there is one; None: the caller computes them like ``eager``."""
    key = (op.name, *[(x.dtype, x.shape) for x in arrays], *attrs.values())
    found = _programs.get(key)
    if found is None:
        if len(_programs) >= MANY:
            _programs.clear()
        found = _programs[key] = _Program()
    if found.run is not None:
        return found.run(arrays)
    found.calls += 1
    if found.calls == AFTER and sum(x.nbytes for x in arrays) <= MOST_BYTES:
        copies = [np.array(x, order="C") for x in arrays]
        background.begin(op.name, partial(found.make, op, copies, attrs, eager))
    return None
