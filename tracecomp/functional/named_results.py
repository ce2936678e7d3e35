"""Named results such as ``(values, indices)``, printed like ``torch.return_types``."""

from __future__ import annotations

from collections import namedtuple
from functools import cache
from typing import Any


def result_type_named(name: str, fields: str) -> Any:
    """A named tuple class for the results of function ``name``."""
    base = _tuple_of(fields)

    def show(self: Any) -> str:
        inner = ",\n".join(f"{field}={getattr(self, field)!r}" for field in fields.split())
        return f"torch.return_types.{name}(\n{inner})"

    return type(name, (base,), {"__slots__": (), "__repr__": show, "__module__": "tracecomp.return_types"})


@cache
def _tuple_of(fields: str) -> Any:
    return namedtuple("fields", fields)


MaxResult = result_type_named("max", "values indices")
MinResult = result_type_named("min", "values indices")
AminmaxResult = result_type_named("aminmax", "min max")
MedianResult = result_type_named("median", "values indices")
NanmedianResult = result_type_named("nanmedian", "values indices")
ModeResult = result_type_named("mode", "values indices")
KthvalueResult = result_type_named("kthvalue", "values indices")
SortResult = result_type_named("sort", "values indices")
TopkResult = result_type_named("topk", "values indices")
CummaxResult = result_type_named("cummax", "values indices")
CumminResult = result_type_named("cummin", "values indices")
FrexpResult = result_type_named("frexp", "mantissa exponent")
HistogramResult = result_type_named("histogram", "hist bin_edges")
