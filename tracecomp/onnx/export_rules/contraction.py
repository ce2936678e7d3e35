"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracecomp.ir.graph import Node
from tracecomp.onnx.export_rules.emitter import Emitter, rule
from tracecomp.onnx.model import UnsupportedError


@rule("contract")
def contract(e: Emitter, node: Node, a: str, b: str) -> str:
    operands, out = node.attrs["spec"].split("->")
    left, right = operands.split(",")
    batched = len(left) >= 2 <= len(right) and left[:-2] == right[:-2] == out[:-2]
    if batched and (left[-1], left[-2], right[-1]) == (right[-2], out[-2], out[-1]):
        return e.node("MatMul", [a, b])
    if len(right) == 2 and left[:-1] == out[:-1] and (left[-1], right[1]) == (right[0], out[-1]):
        return e.node("MatMul", [a, b])
    return e.node("Einsum", [a, b], equation=node.attrs["spec"])


def _window_attrs(node: Node) -> dict[str, Any]:
    pads = node.attrs["padding"]
    return {
        "strides": [*node.attrs["stride"]], "dilations": [*node.attrs["dilation"]], "group": node.attrs["groups"],
        "pads": [*[low for low, _ in pads], *[high for _, high in pads]],
    }  # fmt: skip


def _refuse_integers(node: Node) -> None:
    if node.inputs[0].dtype.kind != "float":
        raise UnsupportedError("convolutions of integers")


@rule("det")
def det(e: Emitter, node: Node, x: str) -> str:
    return e.node("Det", [x])


@rule("conv")
def conv(e: Emitter, node: Node, x: str, w: str) -> str:
    _refuse_integers(node)
    return e.node("Conv", [x, w], kernel_shape=[*node.inputs[1].shape[2:]], **_window_attrs(node))


@rule("conv_transpose")
def conv_transpose(e: Emitter, node: Node, g: str, w: str) -> str:
    _refuse_integers(node)
    attrs = _window_attrs(node)
    rank = len(attrs["strides"])
    kernel, sizes = node.inputs[1].shape[2:], node.inputs[0].shape[2:]
    plain = [
        (n - 1) * s + (k - 1) * d + 1 - attrs["pads"][j] - attrs["pads"][j + rank]
        for j, (n, s, k, d) in enumerate(zip(sizes, attrs["strides"], kernel, attrs["dilations"], strict=True))
    ]
    extra = [n - p for n, p in zip(node.outputs[0].shape[2:], plain, strict=True)]
    return e.node("ConvTranspose", [g, w], kernel_shape=[*kernel], output_padding=extra, **attrs)


@rule("conv_weight")
def conv_weight(e: Emitter, node: Node, x: str, g: str) -> str:
    """A convolution of the operand with the gradients as its kernel: images are summed over, as channels are."""
    _refuse_integers(node)
    if node.inputs[0].shape[0] == 0:
        return e.node("Expand", [e.constant(0, node.inputs[0].dtype.numpy), e.ints(*node.outputs[0].shape)])
    rank, groups, kernel = len(node.attrs["stride"]), node.attrs["groups"], node.attrs["kernel"]
    batch, channels, outs = node.inputs[0].shape[0], node.inputs[0].shape[1], node.inputs[1].shape[1]
    space, axes = [*range(3, 3 + rank)], [2 + k for k in range(rank)]

    def apart(value: str, count: int, shape: Sequence[int], order: Sequence[int], lead: Sequence[int]) -> str:
        split = e.node("Reshape", [value, e.ints(batch, groups, count // groups, *shape)])
        return e.node("Reshape", [e.node("Transpose", [split], perm=[*order, *space]), e.ints(*lead, *shape)])

    images = apart(x, channels, node.inputs[0].shape[2:], (2, 1, 0), (channels // groups, groups * batch))
    kernels = apart(g, outs, node.inputs[1].shape[2:], (1, 2, 0), (outs, batch))
    given = _window_attrs(node)
    given |= {"strides": given["dilations"], "dilations": given["strides"]}
    found = e.node("Conv", [images, kernels], kernel_shape=[*node.inputs[1].shape[2:]], **given)
    found = e.node("Slice", [found, e.ints(*[0] * rank), e.ints(*kernel[-rank:]), e.ints(*axes)])
    return e.node("Transpose", [found], perm=[1, 0, *axes])
