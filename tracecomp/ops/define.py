"""Defaults per kind, so that a record states only the particulars of its operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeGuard

from tracecomp.base.errors import at_user_line
from tracecomp.ir import scalars
from tracecomp.ir.loops import Expr
from tracecomp.ir.op import BadInput, Impl, Number, Op, Operand, Parts, Pointwise, Sample, Vjp, register
from tracecomp.ir.types import DTYPES, DType, TensorType, broadcast_shapes, dtype_named, float32, float64, type_word

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "float": ("float",),
    "int": ("int",),
    "bits": ("bool", "int"),
    "number": ("int", "float"),
    "any": ("bool", "int", "float"),
    "complex": ("complex",),
    "field": ("float", "complex"),
    "ring": ("int", "float", "complex"),
    "every": ("bool", "int", "float", "complex"),
}
# Classes of element types that an operator may accept; "wide" are the floats that compute without widening. "field",
# "ring" and "every" are "float", "number" and "any" with complex numbers.
CLASSES: dict[str, frozenset[DType]] = {
    name: frozenset(t for t in DTYPES if t.kind in kinds) for name, kinds in _KINDS.items()
}
CLASSES["wide"] = frozenset((float32, float64))
CLASSES["wide field"] = CLASSES["wide"] | CLASSES["complex"]

# In samples, a class is represented by one element type per kind, and those with special handling.
_SAMPLE_DTYPES: dict[str, tuple[str, ...]] = {
    "float": ("f32", "f64", "f16"),
    "int": ("i64", "i32", "u8", "i8"),
    "bits": ("i64", "u8", "b1"),
    "wide": ("f32", "f64"),
    "number": ("f32", "f64", "f16", "i64", "u8"),
    "any": ("f32", "f64", "f16", "i64", "u8", "b1"),
    "field": ("f32", "f64", "f16", "c64", "c128"),
    "ring": ("f32", "f64", "f16", "i64", "u8", "c64", "c128"),
    "every": ("f32", "f64", "f16", "i64", "u8", "b1", "c64", "c128"),
}


def require(condition: bool, error: type[Exception], message: str) -> None:
    """Raise ``error`` with the user's line when ``condition`` does not hold."""
    if not condition:
        raise error(at_user_line(message))


def check_dtype(name: str, types: Sequence[TensorType], allowed: str) -> DType:
    """The one element type of all operands; RuntimeError in PyTorch's words otherwise."""
    dtype = types[0].dtype
    for t in types:
        if t.dtype is not dtype:
            require(False, RuntimeError, f"{name}: expected operands of one dtype, got {_listed(types)}")
    if dtype not in CLASSES[allowed]:
        require(False, NotImplementedError, f"\"{name}\" not implemented for '{type_word(dtype)}'")
    return dtype


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


def broadcast(name: str, types: Sequence[TensorType]) -> tuple[int, ...]:
    """The common shape; RuntimeError naming the operator otherwise."""
    try:
        return broadcast_shapes(*(t.shape for t in types))
    except RuntimeError as error:
        raise RuntimeError(at_user_line(f"{name}: {error}")) from None


def is_tensor(x: Operand | Number) -> TypeGuard[Operand]:
    """Whether an operand is a tensor of any kind, not a Python scalar."""
    return not isinstance(x, bool | int | float | complex)


def check_axes(name: str, axes: Sequence[int], ndim: int) -> None:
    """Axes must be sorted, distinct and in range; IndexError otherwise."""
    for axis in axes:
        low, high = (-ndim, ndim - 1) if ndim else (-1, 0)
        require(
            0 <= axis < ndim,
            IndexError,
            f"{name}: Dimension out of range (expected to be in range of [{low}, {high}], but got {axis})",
        )
    require(tuple(sorted(set(axes))) == tuple(axes), RuntimeError, f"{name}: axes {axes} are not sorted and distinct")


def of(short: str, *shape: int, domain: str = "any") -> tuple[tuple[int, ...], str, str]:
    """An operand of a sample: element type, shape, and the domain of its elements."""
    return shape, short, domain


def bad(error: type[Exception], match: str, *args: Any, **attrs: Any) -> BadInput:
    """A call that must raise an error."""
    return BadInput(Sample(args, attrs), error, match)


def elementwise(
    name: str,
    doc: str,
    scalar: str | Callable[..., Expr],
    *,
    arity: int = 1,
    dtypes: str = "float",
    result: DType | None = None,
    impl: Impl | None = None,
    vjp: Vjp | None = None,
    saves: tuple[int | str, ...] = (),
    parts: Parts | None = None,
    traits: Sequence[str] = (),
    ulp: float = 0.0,
    domain: str | tuple[str, ...] = "any",
) -> Op:
    """Register an elementwise operator over operands of one element type.

    ``scalar`` is a scalar operation's name, or a function building the expression (then ``impl`` is needed). ``result``
    is the result's element type when it is not the operands'. ``domain`` names the range of samples.
    """

    def infer(*types: TensorType) -> TensorType:
        dtype = check_dtype(name, types, dtypes)
        return TensorType(result or dtype, broadcast(name, types))

    if isinstance(scalar, str):
        impl = impl or scalars.SCALARS[scalar].numpy
        fn: Callable[..., Expr] = partial(scalars.call, scalar)
    else:
        fn = scalar
    assert impl is not None
    return register(
        Op(
            name=name, kind="elementwise", doc=doc, infer=infer, impl=impl, loop=Pointwise(fn), vjp=vjp, saves=saves,
            parts=parts, traits=frozenset(traits), ulp=ulp,
            samples=elementwise_samples(arity, dtypes, domain), errors=_elementwise_errors(arity, dtypes),
        )
    )  # fmt: skip


@cache
def elementwise_samples(arity: int, dtypes: str, domain: str | tuple[str, ...]) -> tuple[Sample, ...]:
    """0-d, empty, broadcast and special-value samples for every element type of the class."""
    domains = (domain,) * arity if isinstance(domain, str) else domain
    shapes: tuple[tuple[tuple[int, ...], ...], ...]
    if arity == 1:
        shapes = (((5,),), ((),), ((0, 3),), ((2, 3, 4),))
    else:
        shapes = (((2, 3), (2, 3)), ((3, 1), (2, 1, 4)), ((), (3,)), ((0, 3), (1,)))
    found = []
    for short in _SAMPLE_DTYPES[dtypes]:
        for operand_shapes in shapes:
            args = tuple((s, short, d) for s, d in zip(operand_shapes, domains, strict=True))
            found.append(Sample(args))
        if dtype_named(short).kind == "float":
            found.append(Sample(tuple(((40,), short, "special") for _ in range(arity))))
    return tuple(found)


@cache
def _elementwise_errors(arity: int, dtypes: str) -> tuple[BadInput, ...]:
    found = []
    good = _SAMPLE_DTYPES[dtypes][0]
    outside = [short for short in ("b1", "i64", "f32") if dtype_named(short) not in CLASSES[dtypes]]
    for short in outside[:1]:
        found.append(BadInput(Sample((((3,), short, "any"),) * arity), RuntimeError, "not implemented for"))
    if arity > 1:
        mismatched = Sample((((3,), good, "any"), ((4,), good, "any")))
        found.append(BadInput(mismatched, RuntimeError, r"size of tensor a \(3\) must match"))
        mixed = Sample((((3,), "i64", "any"), ((3,), "i32", "any")))
        found.append(BadInput(mixed, RuntimeError, "one dtype"))
    return tuple(found)
