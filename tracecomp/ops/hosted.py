"""Complex operators that the host runs in a graph without complex types: between compiled parts, on memory.

Machine code and eager mode call the same function on the same numbers, so the results have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tracecomp.ir.arrays import Array
from tracecomp.ir.graph import Node
from tracecomp.ir.op import OPS, External, Op, Operand, Sample, register
from tracecomp.ir.types import TensorType
from tracecomp.ops.define import of
from tracecomp.ops.prim import prim


def on_memory(node: Node, operands: Sequence[Operand]) -> tuple[Any, ...]:
    """Return the results of ``node``; complex operands and results are pairs along a last axis."""
    apart = tuple(v.dtype.is_complex for v in node.inputs)
    found = prim.hosted(*operands, op=node.op.name, pairs=apart, given=tuple(sorted(node.attrs.items())))
    return found if isinstance(found, tuple) else (found,)


def _infer(
    *types: TensorType, op: str, pairs: tuple[bool, ...], given: tuple[tuple[str, object], ...]
) -> tuple[TensorType, ...]:
    operands = [
        TensorType(t.dtype.to_complex(), t.shape[:-1]) if pair else t for t, pair in zip(types, pairs, strict=True)
    ]
    results = OPS[op].result_types(operands, dict(given))
    return tuple(TensorType(t.dtype.to_real(), (*t.shape, 2)) if t.dtype.is_complex else t for t in results)


def _impl(*arrays: Array, op: str, pairs: tuple[bool, ...], given: tuple[tuple[str, object], ...]) -> Any:
    complex_of, real_of = OPS["view_as_complex"].impl, OPS["view_as_real"].impl
    operands = [complex_of(x) if pair else x for x, pair in zip(arrays, pairs, strict=True)]
    found = OPS[op].impl(*operands, **dict(given))
    results = found if isinstance(found, tuple) else (found,)
    return tuple(real_of(x) if np.iscomplexobj(x) else x for x in results)


register(
    Op(
        name="hosted", kind="external", infer=_infer, impl=_impl, loop=External(),
        doc="the operator ``op`` with attributes ``given``; complex operands and results as pairs along a last axis",
        attrs={"op": str, "pairs": tuple, "given": tuple},
        samples=tuple(
            Sample((of(d, *lead, 3, 3, 2),), {"op": "svd", "pairs": (True,), "given": (("full", False),)})
            for d in ("f32", "f64") for lead in ((), (2,), (0,))
        ),
    )
)  # fmt: skip
