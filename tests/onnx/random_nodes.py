"""Nodes of random models (``random_graphs``): one function for each kind of node, and models of a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from tests.onnx.random_graphs import VERSIONS, Graph, Unfit, reads
from tests.onnx.random_operators import Chance

H = onnx.helper

UNARY = (
    "Abs Neg Relu Sigmoid Tanh Floor Ceil Identity LeakyRelu Elu Softplus Softsign HardSigmoid Selu Sign:9 Erf:9 Sin "
    "Cos Round:11 Atan Asinh:9 ThresholdedRelu:10 Celu:12 HardSwish:14 Mish:18 Gelu:20 Sqrt Exp Log Reciprocal"
)
REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare"


def _known(names: str, version: int) -> list[str]:
    """Those of ``name:since`` that a version has."""
    return [n.split(":")[0] for n in names.split() if int(n.partition(":")[2] or 1) <= version]


def unary(g: Graph) -> None:
    g.put(g.chance.one(*_known(UNARY, g.version)), [g.floats()])


def binary(g: Graph) -> None:
    a = g.floats()
    shape = g.shape(a)
    fits = [
        n
        for n, v in g.known.items()
        if isinstance(v, np.ndarray) and v.dtype == np.float32 and _broadcast(v.shape, shape)
    ]
    b = g.chance.one(*fits, g.leaf(g.chance.floats(*[n if g.chance.one(0, 1) else 1 for n in shape])))
    pair = [a, b] if g.chance.one(0, 1) else [b, a]
    op = g.chance.one(
        "Add", "Sub", "Mul", "Add", "Div", "Max", "Min", "Mean", "Sum", "Less", "Greater", "Equal", "PRelu"
    )
    g.put(op, pair)


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def logic(g: Graph) -> None:
    a = g.pick(lambda v: v.dtype == bool and v.size > 0)
    if g.chance.one(0, 1) or g.version < 9:
        g.put(g.chance.one("And", "Or", "Xor"), [a, a]) if g.chance.one(0, 1) else g.put("Not", [a])
    else:
        x = g.floats()
        if not _broadcast(g.shape(a), g.shape(x)):
            raise Unfit
        g.put("Where", [a, x, g.leaf(np.array(0.5, np.float32))])


def cast(g: Graph) -> None:
    kinds = [onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL]
    g.put("Cast", [g.any()], to=g.chance.one(*kinds, kinds[0]))


def clip(g: Graph) -> None:
    x = g.floats()
    if g.version < 11:
        g.put("Clip", [x], **g.chance.one({}, {"min": -1.0}, {"max": 0.5}, {"min": -0.5, "max": 2.0}))
    else:
        low, high = g.leaf(np.array(-0.5, np.float32)), g.leaf(np.array(1.5, np.float32))
        g.put("Clip", g.chance.one([x, low, high], [x, "", high], [x, low]))


def transposed(g: Graph) -> None:
    x = g.any(1)
    order = [*range(len(g.shape(x)))]
    g.chance.rng.shuffle(order)
    g.put("Transpose", [x], **g.chance.one({}, {"perm": order}, {"perm": order}))


def reshaped(g: Graph) -> None:
    x = g.any(1)
    shape = [*g.shape(x)]
    turned = g.chance.one([-1], [0, -1], [*shape[::-1]], [1, *shape], [shape[0], -1], [-1, shape[-1]])
    g.put("Reshape", [x, g.fixed(*turned)])


def by_shape(g: Graph) -> None:
    """A shape that is computed: cut from one that is read, and joined with numbers."""
    x, y = g.any(1), g.any(1)
    g.put("Shape", [y])
    whole = [*g.known][-1]
    g.put("Gather", [whole, g.fixed(0)], axis=0)
    first = [*g.known][-1]
    if g.version >= 9 and g.chance.one(0, 1):
        g.put(
            "ConstantOfShape",
            [first],
            **g.chance.one({}, {"value": onnx.numpy_helper.from_array(np.array([2.5], np.float32))}),
        )
    elif g.shape(x)[0] == g.shape(y)[0]:
        g.put("Concat", [first, g.fixed(-1)], axis=0)
        g.put("Reshape", [x, [*g.known][-1]])
    else:
        g.put("Mul", [first, g.fixed(2)])
        g.put("Cast", [[*g.known][-1]], to=onnx.TensorProto.FLOAT)


def squeezed(g: Graph) -> None:
    x = g.any()
    rank = len(g.shape(x))
    if g.chance.one(0, 1):
        axes = [g.chance.rng.randrange(-(rank + 1) if g.version >= 11 else 0, rank + 1)]
        op = "Unsqueeze"
    else:
        ones = [k for k, n in enumerate(g.shape(x)) if n == 1]
        axes, op = g.chance.one(ones[:1], ones), "Squeeze"
        if not axes:
            raise Unfit
    if g.version < 13:
        g.put(op, [x], axes=axes)
    else:
        g.put(op, [x, g.fixed(*axes)])


def joined(g: Graph) -> None:
    x = g.any(1)
    axis = g.chance.rng.randrange(len(g.shape(x)))
    dtype, shape = g.known[x].dtype, g.shape(x)
    y = g.pick(lambda v: v.dtype == dtype and v.ndim == len(shape) and _but(v.shape, axis) == _but(shape, axis))
    g.put("Concat", [x, y, x][: g.chance.one(2, 3)], axis=axis)


def _but(shape: Sequence[int], axis: int) -> list[int]:
    return [n for k, n in enumerate(shape) if k != axis]


def split(g: Graph) -> None:
    x = g.any(1)
    axis = g.chance.rng.randrange(len(g.shape(x)))
    n = g.shape(x)[axis]
    if n < 2:
        raise Unfit
    first = g.chance.rng.randrange(1, n)
    if g.version < 13:
        g.put("Split", [x], 2, axis=axis, split=[first, n - first])
    else:
        g.put("Split", [x, g.fixed(first, n - first)], 2, axis=axis)


def sliced(g: Graph) -> None:
    x = g.any(1)
    axis = g.chance.rng.randrange(len(g.shape(x)))
    n = g.shape(x)[axis]
    start, stop = sorted((g.chance.rng.randint(-n, n), g.chance.rng.randint(0, n + 2)))
    if g.version < 10:
        g.put("Slice", [x], axes=[axis], starts=[start], ends=[stop])
    elif g.chance.one(0, 1):
        g.put("Slice", [x, g.fixed(start), g.fixed(stop), g.fixed(axis), g.fixed(g.chance.one(1, 2, 3))])
    else:
        g.put("Slice", [x, g.fixed(-1), g.fixed(-n - 5), g.fixed(axis), g.fixed(-g.chance.one(1, 2))])


def gathered(g: Graph) -> None:
    x = g.any(1)
    axis = g.chance.rng.randrange(len(g.shape(x)))
    n = g.shape(x)[axis]
    low = -n if g.version >= 11 else 0
    g.put("Gather", [x, g.leaf(g.chance.ints(low, n, *g.chance.shape(g.chance.one(0, 1, 2), 1, 3)))], axis=axis)


def repeated(g: Graph) -> None:
    x = g.any(1)
    shape = g.shape(x)
    if g.version >= 8 and g.chance.one(0, 1):
        g.put("Expand", [x, g.fixed(2, *[n if g.chance.one(0, 1) else 1 for n in shape])])
    else:
        g.put("Tile", [x, g.fixed(*[g.chance.one(1, 2) for _ in shape])])


def padded(g: Graph) -> None:
    x = g.floats(1, 4)
    pads = [g.chance.one(0, 1, 2) for _ in range(2 * len(g.shape(x)))]
    mode = g.chance.one("constant", "constant", "edge", "reflect")
    if g.version < 11:
        g.put("Pad", [x], pads=pads, mode=mode, value=g.chance.one(0.0, 1.5))
    else:
        value = [g.leaf(np.array(1.5, np.float32))] if g.chance.one(0, 1) else []
        g.put("Pad", [x, g.fixed(*pads), *value], mode=mode)


def reduced(g: Graph) -> None:
    x = g.floats(1)
    op, rank = g.chance.one(*REDUCTIONS.split()), len(g.shape(x))
    axes = g.chance.rng.sample(range(rank), g.chance.rng.randint(1, rank))
    keep = {"keepdims": g.chance.one(0, 1)}
    if g.chance.one(0, 0, 0, 1):
        g.put(op, [x], **keep)
    elif g.version >= (13 if op == "ReduceSum" else 18):
        g.put(op, [x, g.fixed(*axes)], **keep)
    else:
        g.put(op, [x], axes=axes, **keep)


def along(g: Graph) -> None:
    x = g.floats(1)
    axis = g.chance.rng.randrange(len(g.shape(x)))
    op = g.chance.one("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "LpNormalization", "CumSum", "Flatten")
    if op == "CumSum":
        g.put(op, [x, g.fixed(axis)], exclusive=g.chance.one(0, 1), reverse=g.chance.one(0, 1))
    elif op.startswith("Arg"):
        g.put(op, [x], axis=axis, keepdims=g.chance.one(0, 1))
    elif op in ("Softmax", "LogSoftmax", "Hardmax") and g.chance.one(0, 0, 1):
        g.put(op, [x])  # older versions have a different default axis
    else:
        g.put(op, [x], axis=axis)


def largest(g: Graph) -> None:
    x = g.floats(1)
    axis = g.chance.rng.randrange(len(g.shape(x)))
    k = g.chance.rng.randint(1, g.shape(x)[axis])
    if g.version < 10:
        g.put("TopK", [x], 2, axis=axis, k=k)
    else:
        more = {"largest": g.chance.one(0, 1)} if g.version >= 11 else {}
        g.put("TopK", [x, g.fixed(k)], 2, axis=axis, **more)


def product(g: Graph) -> None:
    x = g.floats(1, 4)
    n = g.shape(x)[-1]
    w = g.leaf(g.chance.floats(n, g.chance.one(1, 3)), g.chance.one("weight", "input"))
    if len(g.shape(x)) == 2 and g.chance.one(0, 1):
        bias = g.leaf(g.chance.floats(g.shape(w)[1]))
        g.put("Gemm", [x, w, bias], alpha=g.chance.one(1.0, 0.5), beta=g.chance.one(1.0, 2.0))
    else:
        g.put("MatMul", [x, w])


def window(g: Graph) -> None:
    x = g.floats(4, 4)
    channels = g.shape(x)[1]
    how: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [g.chance.one(1, 2)] * 2, "pads": [0, 1, 1, 0]}
    op = g.chance.one("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "LRN",
                      "InstanceNormalization", "Upsample", "DepthToSpace")  # fmt: skip
    if op == "Conv":
        g.put(op, [x, g.leaf(g.chance.floats(3, channels, 2, 2), "weight")], **how)
    elif op == "BatchNormalization":
        mean, var = (g.leaf(np.abs(g.chance.floats(channels)) + 0.5, "weight") for _ in range(2))
        g.put(op, [x, mean, var, mean, var], epsilon=1e-3)
    elif op == "InstanceNormalization":
        weights = [g.leaf(g.chance.floats(channels)) for _ in range(2)]
        g.put(op, [x, *weights], epsilon=0.1)  # less would show the last bits of equal elements
    elif op == "LRN":
        g.put(op, [x], size=3)
    elif op == "DepthToSpace":
        g.put(op, [x], blocksize=g.chance.one(1, 2))
    elif op == "Upsample":
        _upsampled(g, x)
    else:
        g.put(op, [x], **({} if op.startswith("Global") else how))


def _upsampled(g: Graph, x: str) -> None:
    scales, mode = [1.0, 1.0, 2.0, g.chance.one(1.0, 3.0)], g.chance.one("nearest", "linear")
    if g.version < 9:
        g.put("Upsample", [x], scales=scales, mode=mode)
    elif g.version < 11:
        factors = g.leaf(np.array(scales, np.float32), "weight")
        g.put("Resize" if g.version == 10 else "Upsample", [x, factors], mode=mode)
    else:
        g.put("Resize", [x, "", g.leaf(np.array(scales, np.float32), "weight")], mode=mode)


def left_out(g: Graph) -> None:
    # The mask of older versions is undefined if no element is dropped.
    g.put("Dropout", [g.floats()], 1 if g.version < 12 else 2, **({"ratio": 0.3} if g.version < 12 else {}))


def hot(g: Graph) -> None:
    places = g.pick(lambda v: v.dtype == np.int64 and v.ndim < 3 and 0 < v.size < 50)
    values = g.leaf(g.chance.one(np.array([0, 1], np.float32), np.array([2, -1], np.float32)))
    g.put("OneHot", [places, g.leaf(np.array(5, np.int64), "weight"), values], axis=g.chance.one(-1, 0))


def chosen(g: Graph) -> None:
    """A branch; both bodies read outer values."""
    x = g.floats()
    test = g.leaf(np.array(g.chance.one(True, False)))
    shape = [None] * len(g.shape(x))
    bodies = []
    for k, op in enumerate((g.chance.one("Neg", "Relu"), g.chance.one("Tanh", "Abs"))):
        name = f"b{len(g.known)}_{k}"
        out = H.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        inner = [H.make_node(op, [x], [name + "i"]), H.make_node("Add", [name + "i", x], [name])]
        bodies.append(H.make_graph(inner, "body", [], [out]))
    g.put("If", [test], then_branch=bodies[0], else_branch=bodies[1])


def looped(g: Graph) -> None:
    x = g.floats()
    shape, n = [None] * len(g.shape(x)), len(g.known)
    told = H.make_tensor_value_info
    names = [f"{k}{n}" for k in ("turn", "go", "s", "go_on", "t", "seen", "half")]
    turn, go, state, go_on, new, seen, half = names
    factor = onnx.numpy_helper.from_array(np.array(0.5, np.float32))
    inner = [
        H.make_node("Identity", [go], [go_on]), H.make_node("Constant", [], [half], value=factor),
        H.make_node("Mul", [state, half], [new + "m"]), H.make_node("Sub", [x, new + "m"], [new]),
        H.make_node("Identity", [new], [seen]),
    ]  # fmt: skip
    whole, truth, number = onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.FLOAT
    operands = [told(turn, whole, []), told(go, truth, []), told(state, number, shape)]
    results = [told(go_on, truth, []), told(new, number, shape), told(seen, number, shape)]
    body = H.make_graph(inner, "body", operands, results)
    count = g.leaf(np.array(g.chance.one(1, 2, 4), np.int64))
    g.put("Loop", [count, "", x], 2, body=body)


def scanned(g: Graph) -> None:
    if g.version < 9:
        raise Unfit
    x = g.floats(2)
    shape, n = [None] * (len(g.shape(x)) - 1), len(g.known)
    told = H.make_tensor_value_info
    first = g.leaf(g.chance.floats(*g.shape(x)[1:]))
    inner = [
        H.make_node("Add", [f"s{n}", f"e{n}"], [f"a{n}"]),
        H.make_node("Tanh", [f"a{n}"], [f"t{n}"]),
        H.make_node("Mul", [f"t{n}", f"e{n}"], [f"o{n}"]),
    ]
    body = H.make_graph(
        inner, "step", [told(f"{k}{n}", 1, shape) for k in "se"], [told(f"{k}{n}", 1, shape) for k in "to"]
    )
    g.put("Scan", [first, x], 2, body=body, num_scan_inputs=1, scan_input_directions=[g.chance.one(0, 1)])


def listed(g: Graph) -> None:
    """Sequences, and what comes of them."""
    x = g.floats(1)
    g.put(*g.chance.one(("SequenceConstruct", [x, x]), ("SplitToSequence", [x])))
    row = [*g.known][-1]
    how = g.chance.one("at", "join", "count")
    if how == "at":
        g.put("SequenceAt", [row, g.leaf(np.array(g.chance.one(0, -1), np.int64))])
    elif how == "join":
        g.put("ConcatFromSequence", [row], axis=0, **({"new_axis": 1} if g.chance.one(0, 1) else {}))
    else:
        g.put("SequenceLength", [row])


def counted(g: Graph) -> None:
    x = g.any(1)
    g.put(g.chance.one("NonZero", "Size", "Shape", "IsNaN"), [x])


KINDS: tuple[Callable[[Graph], None], ...] = (
    unary, unary, binary, binary, binary, logic, cast, clip, transposed, reshaped, by_shape, squeezed, joined, split,
    sliced, gathered, repeated, padded, reduced, reduced, along, largest, product, window, left_out, hot, chosen,
    looped, scanned, listed, counted,
)  # fmt: skip


def graph_of(seed: int, length: int = 12) -> Graph:
    """The random model of a seed."""
    chance = Chance(seed)
    g = Graph(chance, chance.one(*VERSIONS))
    g.leaf(chance.floats(*chance.shape(4, 1, 4)), "input")
    g.leaf(chance.floats(*chance.shape(chance.one(1, 2, 3), 1, 5)), "input")
    for _ in range(4 * length):
        before, leaves = dict(g.known), dict(g.leaves)
        try:
            chance.one(*KINDS)(g)
        except Exception:  # onnxruntime's errors have no common class; nodes that it refuses are left out
            used = {n for node in g.nodes for n in (*node.output, *reads(node))}
            g.known = before | {n: v for n, v in g.known.items() if n in used}
            g.leaves = leaves | {n: place for n, place in g.leaves.items() if n in used}
        if len(g.nodes) >= length:
            break
    return g
