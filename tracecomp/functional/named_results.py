"""Named results such as ``(values, indices)``, printed like ``torch.return_types``."""

from __future__ import annotations

import inspect
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from tracecomp.eager.tensor import Tensor

Fields = TypeVar("Fields", bound=tuple[Any, ...])

if TYPE_CHECKING:  # avoids an import cycle: checkers use the real class
    from typing import NamedTuple as NamedTuple
else:

    class NamedTuple(tuple):
        """``typing.NamedTuple``, created ten times as fast: every import creates twenty."""

        __slots__ = ()
        _fields = ()

        def __init_subclass__(cls) -> None:
            if not cls._fields:
                cls._fields = tuple(inspect.get_annotations(cls))
                for place, field in enumerate(cls._fields):
                    setattr(cls, field, property(itemgetter(place)))

        def __new__(cls, *values):
            if len(values) != len(cls._fields):
                raise TypeError(f"{cls.__name__}() takes {len(cls._fields)} values, got {len(values)}")
            return tuple.__new__(cls, values)

        def __getnewargs__(self):
            return tuple(self)


class ValuesIndices(NamedTuple):
    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    min: Tensor
    max: Tensor


class MantissaExponent(NamedTuple):
    mantissa: Tensor
    exponent: Tensor


class CountsEdges(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class CountsAllEdges(NamedTuple):
    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def result_type(name: str, fields: type[Fields]) -> type[Fields]:
    """The class of function ``name``'s results, which have ``fields``."""

    def show(self: Any) -> str:
        inner = ",\n".join(f"{field}={getattr(self, field)!r}" for field in self._fields)
        return f"torch.return_types.{name}(\n{inner})"

    return type(name, (fields,), {"__slots__": (), "__repr__": show, "__module__": "tracecomp.return_types"})


MaxResult = result_type("max", ValuesIndices)
MinResult = result_type("min", ValuesIndices)
AminmaxResult = result_type("aminmax", MinMax)
MedianResult = result_type("median", ValuesIndices)
NanmedianResult = result_type("nanmedian", ValuesIndices)
ModeResult = result_type("mode", ValuesIndices)
KthvalueResult = result_type("kthvalue", ValuesIndices)
SortResult = result_type("sort", ValuesIndices)
TopkResult = result_type("topk", ValuesIndices)
CummaxResult = result_type("cummax", ValuesIndices)
CumminResult = result_type("cummin", ValuesIndices)
FrexpResult = result_type("frexp", MantissaExponent)
HistogramResult = result_type("histogram", CountsEdges)
HistogramddResult = result_type("histogramdd", CountsAllEdges)
