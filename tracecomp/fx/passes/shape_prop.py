"""ShapeProp: runs a graph and notes the shape and type of every value."""

from __future__ import annotations

from typing import Any, NamedTuple

from tracecomp.eager.device import channels_last, channels_last_3d, contiguous_format
from tracecomp.eager.tensor import Tensor
from tracecomp.fx.interpreter import Interpreter
from tracecomp.fx.node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """Properties of a tensor without its elements."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    orders = (contiguous_format, channels_last, channels_last_3d) if include_contiguity else ()
    order = next((o for o in orders if result.is_contiguous(memory_format=o)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), order, False, {})


class ShapeProp(Interpreter):
    """Runs the graph on given values; ``node.meta["tensor_meta"]`` says what each value is."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        found = False

        def told(value: object) -> Any:
            nonlocal found
            if isinstance(value, Tensor):
                found = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, told)
        if found:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run on these arguments; the result."""
        return super().run(*args)
