"""Random bits, from numbers that the runtime of the model draws."""

from __future__ import annotations

from tracecomp.ir.graph import Node
from tracecomp.ir.types import float32, int64
from tracecomp.onnx.export_rules.emitter import Emitter, rule
from tracecomp.onnx.export_rules.formula import Term


@rule("random_bits")
def random_bits(e: Emitter, node: Node, state: str) -> str:
    """The state is not read. A uniform float32 has 16 good bits and more; two of them make one element."""

    def half() -> Term:
        zeros = e.node("ConstantOfShape", [e.ints(*node.outputs[0].shape)])
        drawn = e.node("RandomUniformLike", [zeros], high=65536.0)
        return Term(e, drawn, float32.numpy).of("Floor").cast(int64.numpy)

    return (half() * 65536 + half() - 2**31).cast("int32").name
