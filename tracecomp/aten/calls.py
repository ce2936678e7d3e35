"""Primitives as the operators of ``torch.ops`` that ``__torch_dispatch__`` receives.

A primitive is one or a few calls of operators of ``aten``; one without a counterpart in PyTorch arrives as
``prims.name``. A function that is composed of several primitives arrives as these: ``softmax`` as ``amax``, ``sub``,
``exp``, ``sum``, ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager import dispatch
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.ir.op import OPS, Attrs, Number, Op
from tracecomp.library import ops
from tracecomp.ops.contraction import parse_spec
from tracecomp.record.symbolic.sym_int import forms

Operands = tuple[Any, ...]


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call the operator ``name`` (``"add.Tensor"``) of ``aten`` with dispatch to modes and subclasses."""
    packet, _, overload = name.partition(".")
    return through(getattr(getattr(ops.aten, packet), overload or "default"), args, kwargs)


def through(func: Any, args: Operands, kwargs: dict[str, object]) -> Any:
    """Dispatch ``func(*args, **kwargs)`` to the innermost mode, or to the classes of the arguments.

    TypeError when all of them return NotImplemented.
    """
    found = _to_ask([args, kwargs])
    if not modes.dispatch_modes and not found:
        return func(*args, **kwargs)
    return dispatch.first_answer("__torch_dispatch__", f"torch.ops.{func}", func, found, args, kwargs)


def _to_ask(values: list[object]) -> list[Any]:
    """One object of each class with ``__torch_dispatch__``, subclasses before their bases."""
    found: list[Any] = []
    waiting = list(values)
    while waiting:
        x = waiting.pop(0)
        kind = type(x)
        if isinstance(x, tuple | list | dict):
            waiting[:0] = x.values() if isinstance(x, dict) else x
        elif kind in dispatch.CLASSES and all(type(y) is not kind for y in found):
            place = next((i for i, y in enumerate(found) if issubclass(kind, type(y))), len(found))
            found.insert(place, x)
    return found


def answer(op: Op, operands: Operands, attrs: Attrs) -> Any:
    """Compute the results of a primitive by calls of operators."""
    rule = _RULES.get(op.name)
    found = NotImplemented if rule is None else rule(operands, attrs)
    return _as_primitive(op, operands, attrs) if found is NotImplemented else found


def _as_primitive(op: Op, operands: Operands, attrs: Attrs) -> Any:
    return through(getattr(ops.prims, op.name).default, operands, dict(attrs))


Rule = Callable[[Operands, Attrs], Any]


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two shapes are equal for all dynamic sizes; no constraint on these is recorded."""
    return bool(forms(tuple(a)) == forms(tuple(b)))


def _plain(name: str) -> Rule:
    return lambda operands, attrs: call(name, *operands)


def _binary(name: str) -> Rule:
    def rule(operands: Operands, attrs: Attrs) -> Any:
        a, b = operands
        if not isinstance(a, Tensor):
            return _number_first(name, a, b)
        if name in _SCALARS and not isinstance(b, Tensor):
            return call(f"{name}.{_SCALARS[name]}", a, b)
        return call(f"{name}.{_TENSOR.get(name, 'Tensor')}", a, b)

    return rule


def _number_first(name: str, a: Number, b: Tensor) -> Any:
    if name in ("add", "mul"):
        return call(f"{name}.Tensor", b, a)
    if name == "sub":
        return call("rsub.Scalar", b, a)
    if name == "div" and a == 1:
        return call("reciprocal", b)
    return call("pow.Scalar", a, b) if name == "pow" else NotImplemented


_TENSOR = {"pow": "Tensor_Tensor", "atan2": "default", "hypot": "default", "maximum": "default", "minimum": "default",
           "floor_divide": "default", "nextafter": "default"}  # fmt: skip
_SCALARS = dict.fromkeys(
    ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign"),
    "Scalar",
) | {"pow": "Tensor_Scalar"}


def _cast(operands: Operands, attrs: Attrs) -> Any:
    (x,), dtype = operands, attrs["dtype"]
    return call("clone", x) if dtype is x.dtype else call("_to_copy", x, dtype=dtype)


def _sum(operands: Operands, attrs: Attrs) -> Any:
    (x,), axes = operands, attrs["axes"]
    kept = {} if x.dtype.differentiable else {"dtype": x.dtype}
    if len(axes) == x.ndim:
        return call("sum", x, **kept)
    return call("sum.dim_IntList", x, list(axes), **kept)


def _one_axis(name: str) -> Rule:
    """Reductions of one axis, applied to each, the last first."""

    def rule(operands: Operands, attrs: Attrs) -> Any:
        (x,) = operands
        if len(attrs["axes"]) != 1 and name.startswith("arg"):
            return NotImplemented
        for axis in reversed(attrs["axes"]):
            x = call(name, x, axis)
        return x

    return rule


def _reshape(operands: Operands, attrs: Attrs) -> Any:
    (x,), shape = operands, list(attrs["shape"])
    if _same(shape, x.shape):
        return call("alias", x)
    if modes.recorder is not None and modes.recorder.sized:
        return call("reshape", x, shape)  # contiguity may depend on sizes
    kept = [n for n in x.shape if not _same((n,), (1,))]
    fits = x.is_contiguous() or _same(kept, [n for n in shape if not _same((n,), (1,))])
    return call("view", x, shape) if fits else call("_unsafe_view", call("clone", x), shape)


def _permute(operands: Operands, attrs: Attrs) -> Any:
    (x,), dims = operands, attrs["dims"]
    moved = [i for i, d in enumerate(dims) if i != d]
    if len(moved) != 2:
        return call("permute", x, list(dims))
    return call("t", x) if len(dims) == 2 else call("transpose.int", x, *moved)


def _slice(operands: Operands, attrs: Attrs) -> Any:
    (x,) = operands
    for axis, (n, start, stop, step) in enumerate(
        zip(x.shape, attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
    ):
        if not _same((start, stop, step), (0, n, 1)):
            x = call("slice.Tensor", x, axis, start, stop, step)
    return call("alias", x) if x is operands[0] else x


def _contract(operands: Operands, attrs: Attrs) -> Any:
    x, y = operands
    a, b, out = parse_spec(attrs["spec"])
    # ATen has no contraction: one matrix product, with axes merged by their roles.
    if (a, b) == (b, a) and not out:
        return call("dot", x, y) if len(a) == 1 else NotImplemented
    batch = [c for c in out if c in a and c in b]
    rows, columns = [c for c in out if c not in b], [c for c in out if c not in a]
    inner = [c for c in a if c in b and c not in out]
    sizes = dict(zip(a + b, (*x.shape, *y.shape), strict=True))
    left = _merged(x, a, (batch, rows, inner), sizes, bool(batch))
    right = _merged(y, b, (batch, inner, columns), sizes, bool(batch))
    found = call("bmm" if batch else "mm", left, right)
    labels = [*batch, *rows, *columns]
    shape = [sizes[c] for c in labels]
    found = found if _same(found.shape, shape) else call("view", found, shape)
    order = [labels.index(c) for c in out]
    return found if order == [*range(len(order))] else _permute((found,), {"dims": tuple(order)})


def _merged(x: Any, labels: str, groups: Sequence[Sequence[str]], sizes: dict[str, int], batched: bool) -> Any:
    """``x`` as a matrix, or a batch of them, of the axes in each of ``groups``."""
    order = [labels.index(c) for group in groups for c in group]
    if order != [*range(len(order))]:
        x = _permute((x,), {"dims": tuple(order)})
    shape = [math.prod(sizes[c] for c in group) for group in (groups if batched else groups[1:])]
    return x if _same(x.shape, shape) else _reshape((x,), {"shape": tuple(shape)})


def _conv(operands: Operands, attrs: Attrs) -> Any:
    x, weight = operands
    pads = attrs["padding"]
    if any(low != high for low, high in pads):
        x = call("constant_pad_nd", x, [n for pair in reversed(pads) for n in pair], 0)
        pads = ((0, 0),) * len(pads)
    n = len(pads)
    kernel = [list(attrs["stride"]), [low for low, _ in pads], list(attrs["dilation"]), False, [0] * n]
    return call("convolution", x, weight, None, *kernel, attrs["groups"])


def _pad(operands: Operands, attrs: Attrs) -> Any:
    if any(attrs["interior"]):
        return NotImplemented
    pairs = [*zip(attrs["low"], attrs["high"], strict=True)]
    return call("constant_pad_nd", operands[0], [n for pair in reversed(pairs) for n in pair], attrs["value"])


def _take(operands: Operands, attrs: Attrs) -> Any:
    x, index = operands
    if attrs["axis"] == 0 and x.ndim == 2 and index.ndim != 1:
        return call("embedding", x, index)
    return call("index_select", x, attrs["axis"], index) if index.ndim == 1 else NotImplemented


def _scatter(operands: Operands, attrs: Attrs) -> Any:
    x, index, src = operands
    name = {"add": "scatter_add", "set": "scatter.src"}.get(attrs["mode"])
    return NotImplemented if name is None else call(name, x, attrs["axis"], index, src)


def _full(operands: Operands, attrs: Attrs) -> Any:
    return call("full", list(attrs["shape"]), attrs["value"], dtype=attrs["dtype"])


def _take_along(operands: Operands, attrs: Attrs) -> Any:
    return call("gather", operands[0], attrs["axis"], operands[1])


_UNARY = """
    neg abs sign relu exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
    erf erfc erfinv lgamma digamma sqrt rsqrt sigmoid floor ceil trunc round logical_not bitwise_not isnan real imag
    view_as_real view_as_complex complex
"""
_BINARY = """
    add sub mul div floor_divide remainder fmod pow atan2 hypot maximum minimum eq ne lt le gt ge bitwise_and bitwise_or
    bitwise_xor copysign nextafter
"""
_RULES: dict[str, Rule] = {
    **{name: _plain(name) for name in _UNARY.split()},
    **{name: _binary(name) for name in _BINARY.split()},
    "where": _plain("where.self"), "conj": _plain("_conj"), "cast": _cast, "full": _full,
    "sum": _sum, "prod": _one_axis("prod.dim_int"), "any": _one_axis("any.dim"), "all": _one_axis("all.dim"),
    "argmax": _one_axis("argmax"), "argmin": _one_axis("argmin"),
    "max": lambda operands, attrs: call("amax", *operands, list(attrs["axes"])),
    "min": lambda operands, attrs: call("amin", *operands, list(attrs["axes"])),
    "cumsum": lambda operands, attrs: call("cumsum", *operands, attrs["axis"]),
    "cumprod": lambda operands, attrs: call("cumprod", *operands, attrs["axis"]),
    "reshape": _reshape, "permute": _permute, "slice": _slice,
    "expand": lambda operands, attrs: call("expand", *operands, list(attrs["shape"])),
    "flip": lambda operands, attrs: call("flip", *operands, list(attrs["axes"])),
    "contract": _contract, "conv": _conv, "pad": _pad, "take": _take, "gather": _take_along, "scatter": _scatter,
    "concat": lambda operands, attrs: call("cat", list(operands), attrs["axis"]),
    "sort": lambda operands, attrs: call("sort", *operands, attrs["axis"], attrs["descending"]),
}  # fmt: skip
assert _RULES.keys() <= OPS.keys()

dispatch.above.answer = answer  # type: ignore[method-assign]
dispatch.above.call = call  # type: ignore[method-assign]
