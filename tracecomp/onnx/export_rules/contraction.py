"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import onnx

from tracecomp.ir.graph import Node
from tracecomp.onnx.errors import UnsupportedError
from tracecomp.onnx.export_rules.emitter import Emitter, rule


@rule("contract")
def contract(e: Emitter, node: Node, a: str, b: str) -> str:
    operands, out = node.attrs["spec"].split("->")
    left, right = operands.split(",")
    batched = min(map(len, (left, right, out))) >= 2 and left[:-2] == right[:-2] == out[:-2]
    if batched and (left[-1], left[-2], right[-1]) == (right[-2], out[-2], out[-1]):
        return e.node("MatMul", [a, b])
    if len(right) == 2 and left[:-1] == out[:-1] and (left[-1], right[1]) == (right[0], out[-1]):
        return e.node("MatMul", [a, b])
    if e.version < 12:
        return _by_matrices(e, node, a, b)
    return e.node("Einsum", [a, b], equation=node.attrs["spec"])


def _by_matrices(e: Emitter, node: Node, a: str, b: str) -> str:
    """A product without Einsum: dimensions of both and of one side are joined, so that matrices are multiplied."""
    operands, out = node.attrs["spec"].split("->")
    left, right = operands.split(",")
    if any(len({*word}) < len(word) for word in (left, right, out)):
        raise UnsupportedError(f"Einsum ({node.attrs['spec']}) needs opset 12, not {e.version}")
    sizes = {
        c: n for word, v in zip((left, right), node.inputs, strict=True) for c, n in zip(word, v.shape, strict=True)
    }
    a, left = _summed(e, a, left, {*right, *out})
    b, right = _summed(e, b, right, {*left, *out})
    both = [c for c in left if c in right and c in out]
    inner = [c for c in left if c in right and c not in out]
    rows, columns = [c for c in left if c not in right], [c for c in right if c not in left]

    def matrices(x: str, word: str, *groups: Sequence[str]) -> str:
        order = [word.index(c) for c in [*both, *groups[0], *groups[1]]]
        shape = [sizes[c] for c in both] + [_product(sizes[c] for c in group) for group in groups]
        return e.node("Reshape", [e.node("Transpose", [x], perm=order), e.ints(*shape)])

    found = e.node("MatMul", [matrices(a, left, rows, inner), matrices(b, right, inner, columns)])
    have = [*both, *rows, *columns]
    found = e.node("Reshape", [found, e.ints(*[sizes[c] for c in have])])
    return e.node("Transpose", [found], perm=[have.index(c) for c in out])


def _summed(e: Emitter, x: str, word: str, wanted: set[str]) -> tuple[str, str]:
    """An operand summed over the dimensions that nothing else has."""
    gone = [k for k, c in enumerate(word) if c not in wanted]
    if not gone:
        return x, word
    return e.node("ReduceSum", [x, e.ints(*gone)], keepdims=0), "".join(c for c in word if c in wanted)


def _product(numbers: Iterable[Any]) -> Any:
    total: Any = 1
    for n in numbers:
        total = n * total
    return total


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


@rule("grouped_mm")
def grouped_mm(e: Emitter, node: Node, x: str, y: str, ends: str) -> str:
    """A product for each group, of rows that are known when the model runs."""
    out, (groups,) = node.outputs[0], node.inputs[2].shape
    rows = node.inputs[1].ndim == 3
    zeros = e.node("Expand", [e.constant(0, out.dtype.numpy), e.ints(*out.shape)])
    if not groups:
        return zeros
    ends = e.node("Concat", [e.ints(0), e.node("Cast", [ends], to=onnx.TensorProto.INT64)], axis=0)
    places = [e.node("Slice", [ends, e.ints(k), e.ints(k + 1)]) for k in range(groups + 1)]
    found = []
    for k, span in enumerate(pairwise(places)):
        if rows:
            matrix = e.node("Gather", [y, e.constant(k, np.int64)], axis=0)
            found.append(e.node("MatMul", [e.node("Slice", [x, *span, e.ints(0)]), matrix]))
        else:
            parts = [e.node("Slice", [operand, *span, e.ints(axis)]) for operand, axis in ((x, 1), (y, 0))]
            found.append(e.node("Unsqueeze", [e.node("MatMul", parts), e.ints(0)]))
    if rows:  # those that belong to no group
        found.append(e.node("Slice", [zeros, places[-1], e.ints(out.shape[0]), e.ints(0)]))
    return e.node("Concat", found, axis=0)
