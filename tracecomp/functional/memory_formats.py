"""Memory formats of results, as in PyTorch: requested, that of an operand, or channels last."""

from __future__ import annotations

from tracecomp.eager.device import MemoryFormat, contiguous_format, memory_format, preserve_format
from tracecomp.eager.memory_formats import Order, order_of, preserved, suggested
from tracecomp.eager.meta import in_order
from tracecomp.eager.tensor import Tensor, own


def lay(result: Tensor, order: Order) -> Tensor:
    """Return ``result``, which is new and unshared, with its elements in ``order``."""
    if result._base is not None:
        result = own(result)
    result._data = in_order(result._data, order)
    return result


def copied(input: Tensor, copy: Tensor, format: MemoryFormat) -> Tensor:
    """A new tensor like ``input`` in the order of ``format``; by default in that of ``input``."""
    if format is not None and format is not preserve_format:
        return lay(copy, order_of(format, input.ndim))
    if input._data.flags.c_contiguous and copy._data.flags.c_contiguous:
        return copy
    return lay(copy, preserved(input._data.shape, [input._data]))


def following(result: Tensor, *operands: Tensor | None) -> Tensor:
    """``result`` with channels last if an operand has them last, else in row-major order."""
    for x in operands:
        format = contiguous_format if x is None else suggested(x._data)
        if format is not contiguous_format and result.ndim == x._data.ndim:  # type: ignore[union-attr]
            return lay(result, order_of(format, result.ndim))
    return result


def common_format(parts: list[Tensor]) -> memory_format:
    """The format of tensors that agree about one."""
    formats = {suggested(x._data) for x in parts}
    return formats.pop() if len(formats) == 1 else contiguous_format
