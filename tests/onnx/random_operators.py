"""Random models of one operator: random attributes and shapes, with onnxruntime as reference.

Each maker gives inputs (None for one that is left out) and attributes. Inputs that an operator needs to know when a
model is read (sizes, axes) are constants, others are given at the call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class Node:
    """An operator with its inputs and attributes; ``outputs`` results are compared."""

    inputs: Sequence[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    tolerance: float = 2e-5


class Chance:
    """Random choices from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)

    def shape(self, rank: int | None = None, low: int = 1, high: int = 6) -> tuple[int, ...]:
        return tuple(self.rng.randint(low, high) for _ in range(self.rng.randint(1, 4) if rank is None else rank))

    def floats(self, *shape: int) -> Array:
        return np.asarray(self.numbers.standard_normal(shape) * 3).astype(np.float32)

    def ties(self, *shape: int) -> Array:
        """Floats of which some are equal, and some halves."""
        return np.asarray(self.numbers.integers(-4, 5, shape) / 2).astype(np.float32)

    def special(self, *shape: int) -> Array:
        """Floats with NaN, infinities and zeros of both signs among them."""
        found = self.floats(*shape)
        mask = self.numbers.random(shape) < 0.3
        found[mask] = self.numbers.choice(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32), int(mask.sum()))
        return found

    def ints(self, low: int, high: int, *shape: int, dtype: Any = np.int64) -> Array:
        return self.numbers.integers(low, high, shape).astype(dtype)

    def one(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def axis(self, rank: int) -> int:
        return self.rng.randrange(-rank, rank)

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Some of the attributes."""
        return {name: value for name, value in attributes.items() if self.rng.random() < 0.6}


def whole(*values: int) -> Array:
    """A constant of integers."""
    return np.array(values, np.int64)


def _elementwise(c: Chance) -> Node:
    return Node([c.special(*c.shape())])


def _alpha(c: Chance) -> Node:
    return Node([c.special(*c.shape())], c.some(alpha=c.one(0.1, 0.5, 1.5, 2.0)))


def _two(c: Chance) -> Node:
    shape = c.shape()
    other = tuple(1 if c.rng.random() < 0.4 else n for n in shape)[c.rng.randrange(len(shape)) :]
    return Node([c.special(*shape), c.special(*other)])


def _mod(c: Chance) -> Node:
    shape, fmod = c.shape(), c.one(0, 1)
    if fmod:
        return Node([c.special(*shape), c.special(*shape)], {"fmod": 1})
    other = c.ints(1, 7, *shape) * c.one(1, -1)
    return Node([c.ints(-20, 20, *shape), other], {"fmod": 0})


def _divided(c: Chance) -> Node:
    if c.rng.random() < 0.5:
        return _two(c)
    dtype, shape = c.one(np.int32, np.int64), c.shape()
    return Node([c.ints(-20, 20, *shape, dtype=dtype), c.ints(1, 7, *shape, dtype=dtype) * dtype(c.one(1, -1))])


def _along(c: Chance) -> Node:
    shape = c.shape()
    return Node([c.ties(*shape)], c.some(axis=c.axis(len(shape))))


def _reduce(c: Chance) -> Node:
    shape = c.shape()
    axes = c.rng.sample(range(len(shape)), c.rng.randint(0, len(shape)))
    axes = [a - len(shape) * c.one(0, 1) for a in axes]
    inputs = [c.floats(*shape), whole(*axes)] if c.rng.random() < 0.8 else [c.floats(*shape)]
    return Node(inputs, c.some(keepdims=c.one(0, 1), noop_with_empty_axes=c.one(0, 1)), tolerance=1e-4)


def _argument(c: Chance) -> Node:
    shape = c.shape()
    return Node([c.ties(*shape)], c.some(axis=c.axis(len(shape)), keepdims=c.one(0, 1), select_last_index=c.one(0, 1)))


def _cumsum(c: Chance) -> Node:
    shape = c.shape()
    axis = np.array(c.axis(len(shape)), np.int64)
    return Node([c.floats(*shape), axis], c.some(exclusive=c.one(0, 1), reverse=c.one(0, 1)))


def _topk(c: Chance) -> Node:
    shape = c.shape()
    axis = c.axis(len(shape))
    k = whole(c.rng.randint(1, shape[axis]))
    return Node([c.ties(*shape), k], {"axis": axis} | c.some(largest=c.one(0, 1)), outputs=2)


def _slice(c: Chance) -> Node:
    shape = c.shape()
    axes = c.rng.sample(range(len(shape)), c.rng.randint(1, len(shape)))
    steps = [c.one(1, 2, -1, -2, 3) for _ in axes]
    ends = [[c.one(c.rng.randint(-9, 9), 2**31, -(2**31)) for _ in axes] for _ in range(2)]
    axes = [a - len(shape) * c.one(0, 1) for a in axes]
    return Node([c.floats(*shape), whole(*ends[0]), whole(*ends[1]), whole(*axes), whole(*steps)])


def _pad(c: Chance) -> Node:
    shape, mode = c.shape(low=3), c.one("constant", "reflect", "edge", "wrap")
    low = -1 if mode == "constant" else 0
    pads = [c.rng.randint(low, 2) for _ in range(2 * len(shape))]
    value = np.array(1.5, np.float32) if mode == "constant" and c.rng.random() < 0.5 else None
    return Node([c.floats(*shape), whole(*pads), *([value] if value is not None else [])], {"mode": mode})


def _gather(c: Chance) -> Node:
    shape = c.shape()
    axis = c.axis(len(shape))
    return Node([c.floats(*shape), c.ints(-shape[axis], shape[axis], *c.shape(c.rng.randint(0, 2)))], {"axis": axis})


def _gather_elements(c: Chance) -> Node:
    shape = c.shape()
    axis = c.axis(len(shape))
    own = tuple(c.rng.randint(1, n) for n in shape)
    return Node([c.floats(*shape), c.ints(-shape[axis], shape[axis], *own)], {"axis": axis})


def _gather_nd(c: Chance) -> Node:
    shape, batch = c.shape(3), c.one(0, 0, 1)
    depth = c.rng.randint(1, 3 - batch)
    lead = (shape[0], 2) if batch else (2, 3)
    index = np.stack([c.ints(-n, n, *lead) for n in shape[batch : batch + depth]], -1)
    return Node([c.floats(*shape), index], {"batch_dims": batch})


def _scatter_elements(c: Chance) -> Node:
    shape, how = c.shape(2, 2), c.one("none", "add", "mul", "max", "min")
    axis = c.axis(2)
    own = [c.rng.randint(1, n) for n in shape]
    if how == "none":  # the order of writes is undefined
        own[axis] = 1
    index = c.ints(-shape[axis], shape[axis], *own)
    return Node([c.ties(*shape), index, c.ties(*own)], {"axis": axis, "reduction": how})


def _scatter_nd(c: Chance) -> Node:
    shape, how = c.shape(2, 2), c.one("none", "add", "mul", "max", "min")
    index = c.ints(-shape[0], shape[0], 1 if how == "none" else 3, 1)
    return Node([c.ties(*shape), index, c.ties(len(index), shape[1])], {"reduction": how})


def _resize(c: Chance) -> Node:
    shape, mode = (1, 2, *c.shape(2, 2, 7)), c.one("nearest", "linear", "cubic")
    where = c.one("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric")
    attributes = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        # Between two elements, rounding decides whether a place that is whole is: onnxruntime computes it in float32.
        rounded = ("floor", "ceil") if where in ("asymmetric", "align_corners") else ()
        attributes["nearest_mode"] = c.one("round_prefer_floor", "round_prefer_ceil", *rounded)
    if mode == "cubic":
        attributes |= c.some(cubic_coeff_a=-0.5, exclude_outside=1)
    if mode != "nearest" and where in ("half_pixel", "asymmetric") and c.rng.random() < 0.3:
        attributes["antialias"] = 1
    # With scales onnxruntime aligns corners to the rounded length; onnx and its tests to the length before rounding.
    if where == "align_corners" or c.rng.random() < 0.5:
        return Node([c.floats(*shape), None, None, whole(*shape[:2], *c.shape(2, 1, 9))], attributes, tolerance=1e-4)
    scales = np.array([1, 1, c.one(0.6, 1.5, 2.0, 2.3), c.one(0.5, 0.8, 1.7, 3.0)], np.float32)
    return Node([c.floats(*shape), None, scales], attributes, tolerance=1e-4)


def _windows(c: Chance, rank: int, kernel: Sequence[int]) -> dict[str, Any]:
    found = c.some(strides=[c.rng.randint(1, 3) for _ in range(rank)], dilations=[c.rng.randint(1, 2)] * rank)
    if c.rng.random() < 0.4:
        found["auto_pad"] = c.one("SAME_UPPER", "SAME_LOWER", "VALID")
    else:
        found |= c.some(pads=[c.rng.randint(0, (min(kernel) - 1)) for _ in range(2 * rank)])
    return found


def _pool(c: Chance) -> Node:
    rank = c.one(1, 2)
    kernel = c.shape(rank, 2, 3)
    attributes = {"kernel_shape": kernel, **_windows(c, rank, kernel), **c.some(ceil_mode=1)}
    if "auto_pad" in attributes:
        attributes.pop("dilations", None)
    return Node([c.floats(2, 2, *c.shape(rank, 7, 10))], attributes)


def _average(c: Chance) -> Node:
    found = _pool(c)
    return Node(found.inputs, found.attributes | c.some(count_include_pad=1))


def _lp_pool(c: Chance) -> Node:
    found = _pool(c)
    return Node(
        found.inputs, {k: v for k, v in found.attributes.items() if k != "dilations"} | c.some(p=c.one(1, 2, 3))
    )


def _conv(c: Chance) -> Node:
    rank, groups = c.one(1, 2), c.one(1, 2)
    kernel = c.shape(rank, 1, 3)
    bias = [c.floats(4)] if c.rng.random() < 0.5 else []
    attributes = {"group": groups, **_windows(c, rank, kernel)}
    if "auto_pad" in attributes:
        attributes.pop("dilations", None)
    return Node([c.floats(2, 4, *c.shape(rank, 6, 9)), c.floats(4, 4 // groups, *kernel), *bias], attributes,
                tolerance=1e-4)  # fmt: skip


def _conv_transpose(c: Chance) -> Node:
    rank, groups = c.one(1, 2), c.one(1, 2)
    kernel = c.shape(rank, 2, 3)
    strides = [c.rng.randint(1, 3)] * rank
    if c.rng.random() < 0.5:  # with longer strides onnxruntime has other sizes than the operator is defined with
        strides = [min(strides[0], min(kernel))] * rank
    attributes: dict[str, Any] = {"group": groups, "strides": strides}
    attributes |= c.some(dilations=[c.one(1, 2)] * rank, output_padding=[c.rng.randrange(strides[0])] * rank)
    if max(strides) <= min(kernel) and c.rng.random() < 0.5:
        attributes["auto_pad"] = c.one("SAME_UPPER", "SAME_LOWER", "VALID")
    elif c.rng.random() < 0.5:
        attributes["pads"] = [c.rng.randint(0, 1) for _ in range(2 * rank)]
    return Node([c.floats(1, 4, *c.shape(rank, 3, 6)), c.floats(4, 2, *kernel)], attributes, tolerance=1e-4)


def _grid_sample(c: Chance) -> Node:
    grid = np.asarray(c.numbers.uniform(-1.4, 1.4, (2, 3, 4, 2))).astype(np.float32)
    mode, padding = c.one("linear", "nearest", "cubic"), c.one("zeros", "border", "reflection")
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": c.one(0, 1)}
    return Node([c.floats(2, 2, *c.shape(2, 2, 6)), grid], attributes, tolerance=1e-3)


def _roi_align(c: Chance) -> Node:
    corner = np.asarray(c.numbers.uniform(0, 4, (3, 2)))
    boxes = np.concatenate([corner, corner + c.numbers.uniform(0.5, 5, (3, 2))], 1).astype(np.float32)
    attributes = c.some(
        output_height=c.rng.randint(1, 3), output_width=c.rng.randint(1, 3), sampling_ratio=c.one(0, 2, 3),
        spatial_scale=c.one(0.5, 1.0), coordinate_transformation_mode=c.one("half_pixel", "output_half_pixel"),
        mode=c.one("avg", "max"),
    )  # fmt: skip
    return Node([c.floats(2, 2, 7, 8), boxes, c.ints(0, 2, 3)], attributes, tolerance=1e-3)


def _suppression(c: Chance) -> Node:
    corner = np.asarray(c.numbers.uniform(0, 1, (2, 8, 2)))
    boxes = np.concatenate([corner, corner + c.numbers.uniform(0.1, 1, (2, 8, 2))], 2).astype(np.float32)
    limits = [
        whole(c.rng.randint(0, 4)),
        np.array([c.one(0.2, 0.5)], np.float32),
        np.array([c.one(0.0, 0.5)], np.float32),
    ]
    return Node([boxes, c.numbers.random((2, 2, 8)).astype(np.float32), *limits], c.some(center_point_box=1))


def _matmul(c: Chance) -> Node:
    m, k, n = c.shape(3)
    left = (*c.shape(c.rng.randint(0, 2), 2, 2), m, k) if c.rng.random() < 0.8 else (k,)
    right = (*c.shape(c.rng.randint(0, 2), 2, 2), k, n) if c.rng.random() < 0.8 else (k,)
    return Node([c.floats(*left), c.floats(*right)], tolerance=1e-4)


def _gemm(c: Chance) -> Node:
    m, k, n = c.shape(3)
    a, b = c.one(0, 1), c.one(0, 1)
    bias = c.one((), (1,), (n,), (m, 1), (m, n))
    attributes = {"transA": a, "transB": b, **c.some(alpha=0.5, beta=2.0)}
    more = [c.floats(*bias)] if c.rng.random() < 0.7 else []
    return Node([c.floats(*((k, m) if a else (m, k))), c.floats(*((n, k) if b else (k, n))), *more], attributes,
                tolerance=1e-4)  # fmt: skip


def _quantize(c: Chance) -> Node:
    axis, dtype = c.axis(3), c.one(np.int8, np.uint8)
    shape = c.shape(3)
    n = shape[axis]
    per_axis = c.rng.random() < 0.5
    scale = np.abs(c.ties(*((n,) if per_axis else ()))) + np.float32(0.25)
    zero = c.ints(0, 9, *scale.shape, dtype=dtype)
    return Node([c.ties(*shape) * 20, scale.astype(np.float32), zero], {"axis": axis})


def _dequantize(c: Chance) -> Node:
    found = _quantize(c)
    x, scale, zero = found.inputs
    assert x is not None and zero is not None
    return Node([c.ints(0, 99, *x.shape, dtype=zero.dtype), scale, zero], found.attributes)


def _recurrent(gates: int) -> Callable[[Chance], Node]:
    def make(c: Chance) -> Node:
        way = c.one("forward", "reverse", "bidirectional")
        d, length, batch, inner, hidden = 1 + (way == "bidirectional"), 4, 2, 3, 2
        attributes = {"hidden_size": hidden, "direction": way}
        if gates == 3:
            attributes |= c.some(linear_before_reset=1)
        if c.rng.random() < 0.3:
            attributes["clip"] = 0.5
        bias = c.floats(d, 2 * gates * hidden) if c.rng.random() < 0.6 else None
        lens = c.ints(1, length + 1, batch, dtype=np.int32) if c.rng.random() < 0.5 else None
        start = c.floats(d, batch, hidden) if c.rng.random() < 0.5 else None
        weights = c.floats(d, gates * hidden, inner), c.floats(d, gates * hidden, hidden)
        return Node(
            [c.floats(length, batch, inner), *weights, bias, lens, start], attributes, outputs=2, tolerance=1e-4
        )

    return make


def _normalized(c: Chance) -> Node:
    shape = c.shape(3)
    axis = c.axis(3)
    own = shape[axis:]
    bias = [c.floats(*own)] if c.rng.random() < 0.5 else []
    return Node([c.floats(*shape), c.floats(*own), *bias], {"axis": axis} | c.some(epsilon=1e-2), tolerance=1e-4)


def _groups(c: Chance) -> Node:
    return Node([c.floats(2, 4, 3, 2), c.floats(4), c.floats(4)], {"num_groups": c.one(1, 2, 4)}, tolerance=1e-4)


def _instances(c: Chance) -> Node:
    return Node([c.floats(2, 3, *c.shape(2, 2)), c.floats(3), c.floats(3)], c.some(epsilon=1e-2), tolerance=1e-4)


def _local(c: Chance) -> Node:
    return Node([c.floats(2, 5, 3, 3)], {"size": c.one(1, 3, 5), **c.some(alpha=0.3, beta=0.5, bias=2.0)})


def _norm(c: Chance) -> Node:
    return Node([c.floats(*c.shape(3))], {"axis": c.axis(3), "p": c.one(1, 2)})


def _one_hot(c: Chance) -> Node:
    depth = c.rng.randint(2, 5)
    return Node(
        [c.ints(-depth - 1, depth + 1, *c.shape(2)), whole(depth), c.floats(2)], c.some(axis=c.one(0, 1, 2, -1, -2))
    )


def _trilu(c: Chance) -> Node:
    return Node([c.floats(*c.shape(3)), np.array(c.rng.randint(-4, 4), np.int64)], c.some(upper=c.one(0, 1)))


def _clip(c: Chance) -> Node:
    limits = [np.array(v, np.float32) if c.rng.random() < 0.6 else None for v in (c.one(-1, 2), c.one(1, 0))]
    # Infinities stay without a limit, as onnx's reference has it; onnxruntime cuts them to the greatest number.
    return Node([c.floats(*c.shape()), *limits])


def _blocks(c: Chance) -> Node:
    return Node([c.floats(2, 8, 4, 4)], {"blocksize": 2, **c.some(mode=c.one("DCR", "CRD"))})


def _space(c: Chance) -> Node:
    return Node([c.floats(2, 2, 4, 6)], {"blocksize": 2})


def _reversed(c: Chance) -> Node:
    batch = c.one(0, 1)
    return Node([c.floats(3, 3, 2), c.ints(1, 4, 3)], {"batch_axis": batch, "time_axis": 1 - batch})


def _unique(c: Chance) -> Node:
    return Node([c.ties(*c.shape(2))], c.some(axis=c.axis(2), sorted=1), outputs=4)


def _compress(c: Chance) -> Node:
    shape = c.shape(2)
    axis = c.axis(2)
    return Node([c.floats(*shape), c.numbers.random(c.rng.randint(1, shape[axis])) < 0.5], {"axis": axis})


def _eye(c: Chance) -> Node:
    return Node([c.floats(*c.shape(2))], c.some(k=c.rng.randint(-3, 3)))


def _batches(c: Chance) -> Node:
    return Node([c.floats(2, 3, 2), *[c.floats(3) for _ in range(3)], np.abs(c.floats(3)) + 1], c.some(epsilon=1e-2))


def _expand(c: Chance) -> Node:
    shape = c.shape()
    own = tuple(n if c.rng.random() < 0.6 else 1 for n in shape)
    return Node([c.floats(*own), whole(*c.one(shape, (2, *shape)))])


def _tile(c: Chance) -> Node:
    shape = c.shape()
    return Node([c.floats(*shape), whole(*c.shape(len(shape), 1, 3))])


def _split(c: Chance) -> Node:
    axis = c.axis(2)
    shape = c.shape(2, 5, 9)
    n = shape[axis]
    if c.rng.random() < 0.5:
        return Node([c.floats(*shape), whole(2, n - 2)], {"axis": axis}, outputs=2)
    return Node([c.floats(*shape)], {"axis": axis, "num_outputs": 3}, outputs=3)


def _ranges(c: Chance) -> Node:
    return Node([np.array(v, np.float32) for v in (c.one(0, 1.5), c.one(5, -3, 2.7), c.one(0.5, 1, -0.7))])


def _shift(c: Chance) -> Node:
    shape = c.shape()
    return Node([c.ints(0, 200, *shape, dtype=np.uint8), c.ints(0, 9, *shape, dtype=np.uint8)],
                {"direction": c.one("LEFT", "RIGHT")})  # fmt: skip


def _cast(c: Chance) -> Node:
    to = c.one(1, 2, 3, 5, 6, 7, 9, 10, 11)  # onnx's numbers of types that every finite float below goes into
    return Node([np.abs(c.ties(*c.shape())) if to == 2 else c.ties(*c.shape()) * 3], {"to": to})


UNARY = """
    Abs Neg Ceil Floor Round Sign Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh
    Erf Relu Sigmoid Softplus Softsign Mish IsNaN IsInf HardSwish
"""
ALPHA = "Elu Celu LeakyRelu ThresholdedRelu HardSigmoid Selu"
BINARY = "Add Sub Mul Div Pow Max Min Mean Sum Equal Less LessOrEqual Greater PRelu"
REDUCTIONS = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare"
MAKERS: dict[str, Callable[[Chance], Node]] = {
    **dict.fromkeys(UNARY.split(), _elementwise),
    **dict.fromkeys(ALPHA.split(), _alpha),
    **dict.fromkeys(BINARY.split(), _two),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax", "Flatten"], _along),
    **{f"Reduce{name}": _reduce for name in REDUCTIONS.split()},
    **dict.fromkeys(["ArgMax", "ArgMin"], _argument),
    "Div": _divided, "Mod": _mod, "CumSum": _cumsum, "TopK": _topk, "Slice": _slice, "Pad": _pad, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd, "Resize": _resize, "MaxPool": _pool, "AveragePool": _average, "LpPool": _lp_pool,
    "Conv": _conv, "ConvTranspose": _conv_transpose, "GridSample": _grid_sample, "RoiAlign": _roi_align,
    "NonMaxSuppression": _suppression, "MatMul": _matmul, "Gemm": _gemm, "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize, "RNN": _recurrent(1), "GRU": _recurrent(3), "LSTM": _recurrent(4),
    "LayerNormalization": _normalized, "GroupNormalization": _groups,
    "InstanceNormalization": _instances,
    "LRN": _local, "LpNormalization": _norm, "OneHot": _one_hot, "Trilu": _trilu, "Clip": _clip,
    "DepthToSpace": _blocks, "SpaceToDepth": _space,
    "ReverseSequence": _reversed, "Unique": _unique, "Compress": _compress, "EyeLike": _eye,
    "BatchNormalization": _batches, "Expand": _expand, "Tile": _tile, "Split": _split, "Range": _ranges,
    "BitShift": _shift, "Cast": _cast,
}  # fmt: skip
CONSTANT = {
    "CumSum": (1,), "TopK": (1,), "Slice": (1, 2, 3, 4), "Pad": (1, 2), "Resize": (2, 3), "OneHot": (1,), "Trilu": (1,),
    "Expand": (1,), "Tile": (1,), "Split": (1,), "Range": (0, 1, 2), "NonMaxSuppression": (2, 3, 4),
    **dict.fromkeys([name for name in MAKERS if name.startswith("Reduce")], (1,)),
}  # fmt: skip
"""Inputs that are constants of the model."""
