"""Padding of calls that graphs do not contain: the host cuts operands to their valid sizes, and pads the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.ir.op import Op
from tracecomp.ops.autodiff import Sym
from tracecomp.record.dynamic_shapes.padding import Meant, Padding
from tracecomp.record.size_forms import Form


def call(p: Padding, op: Op, xs: Sequence[Sym], attrs: dict[str, Any], meant: Meant) -> tuple[Sym, ...]:
    """The results of ``op``, with its dynamic sizes as further operands."""
    places: dict[Form, int] = {}

    def axes(extents: Meant) -> tuple[int, ...]:
        return tuple(-1 if isinstance(e, int) else places.setdefault(e, len(places)) for e in extents)

    valid = (tuple(axes(p.meant(x)) for x in xs), tuple(axes(extents) for _, extents in attrs["results"]))
    own = {
        "arguments": _sizes_as_operands(attrs["arguments"], places),
        "results": tuple((dtype, p.lengths(extents)) for dtype, extents in attrs["results"]),
        "valid": valid,
    }
    operands = [*xs, *map(p.count, places)]
    return tuple(Sym(p.graph, v) for v in p.graph.add(op, [x.value for x in operands], {**attrs, **own}))


def _sizes_as_operands(spec: Any, places: dict[Form, int]) -> Any:
    """``spec`` with the places of dynamic sizes, which are added to ``places``."""
    if not isinstance(spec, tuple):
        return spec
    if spec[:1] == ("int",) and isinstance(spec[1], Form):
        form = spec[1]
        return ("size", places.setdefault(form, len(places)))
    return tuple(_sizes_as_operands(part, places) for part in spec)
