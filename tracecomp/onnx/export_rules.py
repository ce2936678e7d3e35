"""How each primitive is written in ONNX: one rule for each, found by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from tracecomp.ir.graph import Node, Value
from tracecomp.onnx.model import UnsupportedError
from tracecomp.onnx.sizes import Reciprocal, Size

Array = np.ndarray[Any, Any]


class Emitter:
    """Collects nodes and weights. ``names`` are those of values that are written already."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.names: dict[Value, str] = {}
        self.scope = ""
        self.open: dict[str, tuple[str, int]] = {}
        """Where open sizes are read: the name of an input, and its dimension."""
        self._sizes: dict[Any, str] = {}
        self._taken: set[str] = set()
        self._constants: dict[tuple[Any, ...], str] = {}

    def node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """The name of an operator's result."""
        return self.several(op, inputs, 1, **attrs)[0]

    def several(self, op: str, inputs: Sequence[str], count: int, **attrs: Any) -> list[str]:
        """The names of an operator's results."""
        number = len(self.nodes)
        outputs = [f"v{number}" if count == 1 else f"v{number}.{k}" for k in range(count)]
        name = f"{self.scope}/{op}.{number}" if self.scope else f"{op}.{number}"
        self.nodes.append(onnx.helper.make_node(op, [*inputs], outputs, name, **attrs))
        return outputs

    def define(self, values: Sequence[Value], found: str | Sequence[str]) -> None:
        """Note the names of a node's results."""
        names = [found] if isinstance(found, str) else [*found]
        self.names.update(zip(values, names, strict=True))

    def weight(self, name: str, array: Array) -> str:
        """The name of an initializer."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        self.weights.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def constant(self, array: object, dtype: Any = None) -> str:
        """The name of a constant; equal ones are one."""
        array = np.ascontiguousarray(array, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(f"constant{len(self._constants)}", array)
        return self._constants[key]

    def ints(self, *values: int | Size) -> str:
        """A vector of numbers, which may follow from open sizes."""
        if not any(isinstance(v, Size) for v in values):
            return self.constant([*values], np.int64)
        if values not in self._sizes:
            parts = [self._size(v) if isinstance(v, Size) else self.constant([v], np.int64) for v in values]
            self._sizes[values] = parts[0] if len(parts) == 1 else self.node("Concat", parts, axis=0)
        return self._sizes[values]

    def scalar(self, value: Size | Reciprocal, dtype: Any) -> str:
        """A number that follows from open sizes, without dimensions."""
        size = value.size if isinstance(value, Reciprocal) else value
        whole = self.node("Squeeze", [self.ints(size)])
        found = self.node("Cast", [whole], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        return self.node("Reciprocal", [found]) if isinstance(value, Reciprocal) else found

    def _size(self, size: Size) -> str:
        """A vector of the one number."""
        total = ""
        for symbols, factor in size.terms.items():
            product = self.constant([factor], np.int64)
            for symbol in symbols:
                product = self._times(product, self._open(symbol))
            total = self.node("Add", [total, product]) if total else product
        return total if size.divisor == 1 else self.node("Div", [total, self.constant([size.divisor], np.int64)])

    def _times(self, a: str, b: str) -> str:
        return b if a == self.constant([1], np.int64) else self.node("Mul", [a, b])

    def _open(self, symbol: str) -> str:
        if symbol not in self._sizes:
            name, axis = self.open[symbol]
            self._sizes[symbol] = self.node("Shape", [name], start=axis, end=axis + 1)
        return self._sizes[symbol]

    def count(self, stop: int | Size) -> str:
        """The whole numbers below ``stop``."""
        if isinstance(stop, int):
            return self.constant(np.arange(stop), np.int64)
        return self.node("Range", [self.constant(0, np.int64), self.scalar(stop, np.int64), self.constant(1, np.int64)])


Rule = Callable[..., str | Sequence[str]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Make a function the rule of these primitives: it takes the emitter, the node and the operands' names."""

    def put(fn: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, fn))
        return fn

    return put


_SAME = {
    "neg": "Neg", "abs": "Abs", "sign": "Sign", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan",
    "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh",
    "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "sqrt": "Sqrt", "sigmoid": "Sigmoid", "relu": "Relu",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "logical_not": "Not", "bitwise_not": "BitwiseNot",
    "isnan": "IsNaN", "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "eq": "Equal", "lt": "Less",
    "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "where": "Where",
}  # fmt: skip


def _same(primitive: str, op: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, *xs: str) -> str:
        return e.node(op, xs)


for _primitive, _op in _SAME.items():
    _same(_primitive, _op)


def _scalar(e: Emitter, node: Node, value: float) -> str:
    return e.constant(value, node.inputs[0].dtype.numpy)


@rule("rsqrt")
def rsqrt(e: Emitter, node: Node, x: str) -> str:
    return e.node("Reciprocal", [e.node("Sqrt", [x])])


@rule("exp2")
def exp2(e: Emitter, node: Node, x: str) -> str:
    return e.node("Pow", [_scalar(e, node, 2.0), x])


@rule("expm1")
def expm1(e: Emitter, node: Node, x: str) -> str:
    return e.node("Sub", [e.node("Exp", [x]), _scalar(e, node, 1.0)])


@rule("log1p")
def log1p(e: Emitter, node: Node, x: str) -> str:
    return e.node("Log", [e.node("Add", [x, _scalar(e, node, 1.0)])])


@rule("log2")
def log2(e: Emitter, node: Node, x: str) -> str:
    return e.node("Div", [e.node("Log", [x]), _scalar(e, node, math.log(2))])


@rule("log10")
def log10(e: Emitter, node: Node, x: str) -> str:
    return e.node("Div", [e.node("Log", [x]), _scalar(e, node, math.log(10))])


@rule("erfc")
def erfc(e: Emitter, node: Node, x: str) -> str:
    return e.node("Sub", [_scalar(e, node, 1.0), e.node("Erf", [x])])


@rule("trunc")
def trunc(e: Emitter, node: Node, x: str) -> str:
    below = e.node("Less", [x, _scalar(e, node, 0.0)])
    return e.node("Where", [below, e.node("Ceil", [x]), e.node("Floor", [x])])


@rule("ne")
def ne(e: Emitter, node: Node, a: str, b: str) -> str:
    return e.node("Not", [e.node("Equal", [a, b])])


def _chosen(primitive: str, of_bools: str, of_ints: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, a: str, b: str) -> str:
        return e.node(of_bools if node.inputs[0].dtype.kind == "bool" else of_ints, [a, b])


_chosen("bitwise_and", "And", "BitwiseAnd")
_chosen("bitwise_or", "Or", "BitwiseOr")
_chosen("bitwise_xor", "Xor", "BitwiseXor")


def _propagating(primitive: str, op: str) -> None:
    """ONNX does not say what becomes of NaN: a sum with both operands has it where either is."""

    @rule(primitive)
    def write(e: Emitter, node: Node, a: str, b: str) -> str:
        found = e.node(op, [a, b])
        if node.inputs[0].dtype.kind != "float":
            return found
        either = e.node("Add", [a, b])
        odd = e.node("Or", [e.node("IsNaN", [a]), e.node("IsNaN", [b])])
        return e.node("Where", [odd, either, found])


_propagating("maximum", "Max")
_propagating("minimum", "Min")


@rule("remainder")
def remainder(e: Emitter, node: Node, a: str, b: str) -> str:
    if node.inputs[0].dtype.kind != "float":
        return e.node("Mod", [a, b])
    return e.node("Sub", [a, e.node("Mul", [e.node("Floor", [e.node("Div", [a, b])]), b])])


@rule("fmod")
def fmod(e: Emitter, node: Node, a: str, b: str) -> str:
    return e.node("Mod", [a, b], fmod=1)


@rule("floor_divide")
def floor_divide(e: Emitter, node: Node, a: str, b: str) -> str:
    if node.inputs[0].dtype.kind == "float":
        return e.node("Floor", [e.node("Div", [a, b])])
    return e.node("Div", [e.node("Sub", [a, e.node("Mod", [a, b])]), b])


@rule("cast")
def cast(e: Emitter, node: Node, x: str) -> str:
    return e.node("Cast", [x], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(node.outputs[0].dtype.numpy)))


# ---- fewer elements


def _reduction(primitive: str, op: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, x: str) -> str:
        axes = node.attrs["axes"]
        if not axes:
            return x
        if op == "ReduceMax" and (pool := _max_pool(e, node)) is not None:
            return pool
        if node.inputs[0].dtype.kind == "bool":
            whole = e.node("Cast", [x], to=onnx.TensorProto.INT32)
            found = e.node(op, [whole, e.ints(*axes)], keepdims=0)
            return e.node("Cast", [found], to=onnx.TensorProto.BOOL)
        return e.node(op, [x, e.ints(*axes)], keepdims=0)


for _primitive, _op in {
    "sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin", "any": "ReduceMax",
    "all": "ReduceMin",
}.items():  # fmt: skip
    _reduction(_primitive, _op)


def _best(primitive: str, op: str) -> None:
    @rule(primitive)
    def write(e: Emitter, node: Node, x: str) -> str:
        axes, shape = node.attrs["axes"], node.inputs[0].shape
        if len(axes) > 1:
            if tuple(axes) != tuple(range(len(shape))):
                raise UnsupportedError(f"{primitive} over several dimensions")
            x, axes = e.node("Reshape", [x, e.ints(-1)]), (0,)
        return e.node(op, [x], axis=axes[0], keepdims=0)


_best("argmax", "ArgMax")
_best("argmin", "ArgMin")


def _max_pool(e: Emitter, node: Node) -> str | None:
    """The greatest of windows, seen through the views that put a window's places together."""
    value, axes = node.inputs[0], set(node.attrs["axes"])
    chain: list[Node] = []
    while value.node is not None and value.node.op.name in ("reshape", "permute") and len(chain) < 2:
        chain.append(value.node)
        value = value.node.inputs[0]
    made = value.node
    if made is None or made.op.name != "windows" or made.inputs[0].dtype.kind != "float":
        return None
    sizes = made.attrs["sizes"]
    rank = len(sizes)
    outer = made.outputs[0].ndim - 2 * rank
    wanted = (*range(outer), *range(outer + rank, outer + 2 * rank), *range(outer, outer + rank))
    kinds = [n.op.name for n in chain]
    if kinds[-1:] != ["permute"] or tuple(chain[-1].attrs["dims"]) != wanted or outer != 2 or rank > 3:
        return None
    merged = kinds == ["reshape", "permute"]
    shape = made.outputs[0].shape
    if merged and chain[0].outputs[0].shape != (*shape[:2], math.prod(sizes), *shape[2 : 2 + rank]):
        return None
    if axes != ({2} if merged else set(range(2, 2 + rank))):
        return None
    attrs = {"kernel_shape": [*sizes], "strides": [*made.attrs["strides"]], "dilations": [*made.attrs["dilations"]]}
    return e.node("MaxPool", [e.names[made.inputs[0]]], **attrs)


@rule("cumsum", "cumprod")
def running(e: Emitter, node: Node, x: str) -> str:
    if node.op.name == "cumprod":
        raise UnsupportedError("cumprod")
    return e.node("CumSum", [x, e.constant(node.attrs["axis"], np.int64)])


@rule("sort")
def sort(e: Emitter, node: Node, x: str) -> Sequence[str]:
    count = node.inputs[0].shape[node.attrs["axis"]]
    return _top(e, x, count, node.attrs["axis"], node.attrs["descending"])


@rule("topk")
def topk(e: Emitter, node: Node, x: str) -> Sequence[str]:
    return _top(e, x, node.attrs["count"], node.attrs["axis"], node.attrs["descending"])


def _top(e: Emitter, x: str, count: int, axis: int, descending: bool) -> Sequence[str]:
    return e.several("TopK", [x, e.ints(count)], 2, axis=axis, largest=int(descending), sorted=1)


# ---- views


@rule("reshape")
def reshape(e: Emitter, node: Node, x: str) -> str:
    return e.node("Reshape", [x, e.ints(*node.attrs["shape"])], allowzero=int(0 in node.attrs["shape"]))


@rule("permute")
def permute(e: Emitter, node: Node, x: str) -> str:
    return e.node("Transpose", [x], perm=[*node.attrs["dims"]])


@rule("expand")
def expand(e: Emitter, node: Node, x: str) -> str:
    return e.node("Expand", [x, e.ints(*node.attrs["shape"])])


@rule("slice")
def slice_(e: Emitter, node: Node, x: str) -> str:
    starts, stops, steps = node.attrs["starts"], node.attrs["stops"], node.attrs["steps"]
    axes = [k for k, n in enumerate(node.inputs[0].shape) if (starts[k], stops[k], steps[k]) != (0, n, 1)]
    if not axes:
        return x
    parts = [e.ints(*[v[k] for k in axes]) for v in (starts, stops)]
    return e.node("Slice", [x, *parts, e.ints(*axes), e.ints(*[steps[k] for k in axes])])


@rule("flip")
def flip(e: Emitter, node: Node, x: str) -> str:
    axes = node.attrs["axes"]
    least = -(2**63)
    starts, ends, steps = (e.ints(*[v] * len(axes)) for v in (-1, least, -1))
    return e.node("Slice", [x, starts, ends, e.ints(*axes), steps])


@rule("windows")
def windows(e: Emitter, node: Node, x: str) -> str:
    """By index: each place of a window is looked up."""
    sizes, strides, dilations = (node.attrs[n] for n in ("sizes", "strides", "dilations"))
    rank, outer = len(sizes), node.inputs[0].ndim - len(sizes)
    for k in range(rank):  # each lookup leaves its window's dimension behind the one it came from
        count = node.outputs[0].shape[outer + k]
        first = e.node("Mul", [e.count(count), e.constant(strides[k], np.int64)])
        inside = e.constant(np.arange(sizes[k]) * dilations[k], np.int64)
        places = e.node("Add", [e.node("Unsqueeze", [first, e.ints(1)]), inside])
        x = e.node("Gather", [x, places], axis=outer + 2 * k)
    order = [*range(outer), *[outer + 2 * k for k in range(rank)], *[outer + 2 * k + 1 for k in range(rank)]]
    return e.node("Transpose", [x], perm=order)


@rule("pad")
def pad(e: Emitter, node: Node, x: str) -> str:
    low, high, interior = (node.attrs[n] for n in ("low", "high", "interior"))
    if any(interior):
        raise UnsupportedError("padding between elements")
    return e.node("Pad", [x, e.ints(*low, *high), _scalar(e, node, node.attrs["value"])])


@rule("concat")
def concat(e: Emitter, node: Node, *xs: str) -> str:
    return e.node("Concat", xs, axis=node.attrs["axis"])


@rule("full")
def full(e: Emitter, node: Node) -> str:
    out, value = node.outputs[0], node.attrs["value"]
    if isinstance(value, Size | Reciprocal):
        number = e.scalar(value, out.dtype.numpy)
        return e.node("Expand", [number, e.ints(*out.shape)]) if out.shape else number
    if not out.shape:
        return e.constant(value, out.dtype.numpy)
    value = onnx.numpy_helper.from_array(np.array([node.attrs["value"]], out.dtype.numpy))
    return e.node("ConstantOfShape", [e.ints(*out.shape)], value=value)


@rule("iota")
def iota(e: Emitter, node: Node) -> str:
    out, axis = node.outputs[0], node.attrs["axis"]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(out.dtype.numpy))
    line = e.node("Cast", [e.count(out.shape[axis])], to=kind)
    line = e.node("Reshape", [line, e.ints(*[-1 if k == axis else 1 for k in range(out.ndim)])])
    return e.node("Expand", [line, e.ints(*out.shape)])


# ---- products


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


@rule("conv")
def conv(e: Emitter, node: Node, x: str, w: str) -> str:
    return e.node("Conv", [x, w], kernel_shape=[*node.inputs[1].shape[2:]], **_window_attrs(node))


@rule("conv_transpose")
def conv_transpose(e: Emitter, node: Node, g: str, w: str) -> str:
    attrs = _window_attrs(node)
    rank = len(attrs["strides"])
    kernel, sizes = node.inputs[1].shape[2:], node.inputs[0].shape[2:]
    plain = [
        (n - 1) * s + (k - 1) * d + 1 - attrs["pads"][j] - attrs["pads"][j + rank]
        for j, (n, s, k, d) in enumerate(zip(sizes, attrs["strides"], kernel, attrs["dilations"], strict=True))
    ]
    extra = [n - p for n, p in zip(node.outputs[0].shape[2:], plain, strict=True)]
    return e.node("ConvTranspose", [g, w], kernel_shape=[*kernel], output_padding=extra, **attrs)


# ---- by index


@rule("take")
def take(e: Emitter, node: Node, x: str, index: str) -> str:
    return e.node("Gather", [x, index], axis=node.attrs["axis"])


@rule("gather")
def gather(e: Emitter, node: Node, x: str, index: str) -> str:
    return e.node("GatherElements", [x, index], axis=node.attrs["axis"])


@rule("scatter")
def scatter(e: Emitter, node: Node, base: str, index: str, src: str) -> str:
    mode = node.attrs["mode"]
    how = {} if mode == "set" else {"reduction": mode}
    return e.node("ScatterElements", [base, index, src], axis=node.attrs["axis"], **how)
