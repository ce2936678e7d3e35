"""The operator record: one immutable value that defines one primitive operator.

Records are in ``tracecomp/ops``; this module defines their class and the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from tracecomp.ir.immutable import immutable
from tracecomp.ir.index import Index
from tracecomp.ir.loops import Expr
from tracecomp.ir.types import DType, TensorType

KINDS = (
    "elementwise", "reduction", "view", "pad", "concat", "contraction", "convolution", "window",
    "gather", "scatter", "cumulative", "sort", "creation", "random", "control", "transform", "elimination", "external",
)  # fmt: skip

Attrs = dict[str, Any]
"""An operator's static parameters by name; ``attrs`` of the operator has their types."""


class Operand(Protocol):
    """A tensor of a kind that primitives accept: a graph's value, an eager tensor, a recorded one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> DType: ...

    @property
    def ndim(self) -> int: ...

    def __tracecomp_apply__(self, op: Op, operands: tuple[Operand | Number, ...], attrs: Attrs) -> Any: ...


Operands = Sequence[Operand]
Gradients = Sequence[Operand | None]
"""Gradients of an operator's results; None for an unused result."""
Number = bool | int | float | complex
Types = Sequence[TensorType]
Position = Sequence[Index]
"""An element's position in a tensor, an index for each axis."""


class ReadElement(Protocol):
    """The element of an operand at a position; zero, without a read, if ``where`` is false."""

    def __call__(self, position: Position, where: Expr | None = None) -> Expr: ...


Reads = Sequence[ReadElement]

Infer = Callable[..., TensorType | tuple[TensorType, ...]]
Impl = Callable[..., Any]
"""The numpy meaning: arrays, then attributes by name."""
Vjp = Callable[..., Sequence[Operand | None]]
Write = Callable[..., Operand]
Parts = Callable[..., Any]
"""The meaning on complex values: operands and results that are complex are ``Pair``."""


@immutable
class Pointwise:
    """Loop meaning of an elementwise operator: ``fn(*scalars, **attrs) -> Expr``."""

    fn: Callable[..., Expr]


@immutable
class Indexed:
    """Loop meaning by index: ``fn(index, out_type, reads, in_types, **attrs) -> Expr``.

    ``index`` is the output index (one ``Index`` per axis), ``reads[k](index)`` the scalar of operand ``k`` there;
    positions outside the operand give zero without a read. Views, pads, concatenation, gathers, creation: anything
    whose element needs a fixed number of operand elements.
    """

    fn: Callable[..., Expr]


@immutable
class Reduced:
    """Loop meaning of a reduction over the attribute ``axes``: combine with ``op`` from ``init(dtype)``.

    ``element(value, index, dtype)`` maps an operand element (and its position along the reduced axes, flattened
    row-major) to the combined value; ``None`` is the identity. The order of combination is that of
    ``ir.loops.Accumulate`` and part of the operator's meaning.
    """

    op: str
    element: Callable[..., Expr] | None = None


@immutable
class Bilinear:
    """Loop meaning of contractions and convolutions: out[o] = sum over r of lhs[f(o, r)] * rhs[g(o, r)], by FMA.

    ``fn(in_types, out_type, **attrs) -> BilinearForm``.
    """

    fn: Callable[..., BilinearForm]


@immutable
class BilinearForm:
    """Named iteration space of a bilinear operator, with affine operand positions.

    ``extents[name]`` is the size of a dimension. ``out`` names the output's dimensions in row-major order; an output
    axis may be several dimensions, such as groups and filters. ``reduce`` names the summed dimensions, outermost first
    (the order of summation). ``lhs[axis]`` and ``rhs[axis]`` map a dimension name to its coefficient in the operand's
    axis position.
    """

    extents: dict[str, int]
    out: tuple[str, ...]
    reduce: tuple[str, ...]
    lhs: tuple[dict[str, int], ...]
    rhs: tuple[dict[str, int], ...]


@immutable
class Imperative:
    """Loop meaning as statements, for operators that no index form describes (scatter, sort, cumulative).

    ``fn(ins, outs, in_types, out_types, **attrs) -> list[Stmt]`` over operand and result ``Buffer`` objects. With
    ``overwrites``, the only result may be in the memory of the first operand.
    """

    fn: Callable[..., Any]
    overwrites: bool = False


@immutable
class Control:
    """An operator with regions; executed by the schedule itself (``scan``)."""


@immutable
class Composed:
    """Loop meaning by other primitives: ``fn(*operands, **attrs)`` returns the result, written with ``ops.prim``.

    A graph pass replaces such nodes before fusion.
    """

    fn: Callable[..., Any]


@immutable
class External:
    """No loop meaning: the host runs ``impl`` (LAPACK through numpy).

    ``start(run, attrs)``, if present, starts ``run()`` in parallel with code, and returns the function that waits for
    its result (communication). Such operators run in the order in which they are started.

    ``separate``: ``impl`` may differ between calls, so nodes are never merged or computed in advance.
    """

    start: Callable[[Callable[[], Any], Mapping[str, Any]], Callable[[], Any]] | None = None
    separate: bool = False


@immutable
class Paired:
    """No direct loop meaning: an operator between real and complex values, defined by its ``parts``."""


@immutable
class Interleaved:
    """Loop meaning by other primitives on whole complex values: ``fn(operand, apart, **attrs)``.

    A complex operand or result is a ``Pair``, or one real value with the memory layout of complex numbers: both parts
    along a new last axis. ``apart`` says which of them the readers of the result prefer.
    """

    fn: Callable[..., Any]


@immutable
class Hosted:
    """Instead of a rule on parts: the host runs ``impl``, on complex numbers as interleaved pairs."""


LoopMeaning = (
    Pointwise | Indexed | Reduced | Bilinear | Imperative | Control | Composed | External | Paired | Interleaved
)


@immutable
class Pair:
    """A complex operand or result as two real ones, to which primitives apply."""

    re: Any
    im: Any


ComplexOperand = Pair | Operand
"""A complex value as parts, a real value, or a complex one in its memory layout."""


@immutable
class Sample:
    """Operands for one test call, as data: ``args`` are ``(shape, dtype short name, domain)`` or Python scalars.

    A graph attribute is given as a function that builds it, so that importing builds no graphs.
    """

    args: tuple[Any, ...]
    attrs: Attrs = field(default_factory=dict)


@immutable
class BadInput:
    """A call that must raise ``error`` with a message matching ``match``."""

    sample: Sample
    error: type[Exception]
    match: str


@dataclass(frozen=True, eq=False)
class Op:
    """A primitive operator. See ``docs/adding-an-operator.md``.

    ``infer(*types, **attrs)`` returns the result type (or a tuple of them) and is the only shape and dtype rule.
    ``impl(*arrays, **attrs)`` is the numpy meaning, with the result dtype of ``infer``. ``vjp(grads, outs, ins,
    **attrs)`` returns one operand gradient or None per operand, written with ``ops.prim``; elementwise rules may return
    the broadcast shape: the caller sums to the operand's shape. ``None``: not differentiable. ``saves`` lists the
    values that the rule reads in addition to shapes: ``"ins"``, ``"outs"``, or positions of operands. ``write(base,
    new, **attrs)``, for views, is the base with the viewed elements replaced. ``parts(*operands, **attrs)`` is the
    meaning on complex values: operands and results that are complex are ``Pair``. ``Hosted()``: the host runs ``impl``
    on them. ``None``: the operator takes no complex operands, unless it is ``Interleaved`` or has regions.
    """

    name: str
    kind: str
    doc: str
    infer: Infer
    impl: Impl
    loop: LoopMeaning
    vjp: Vjp | None = None
    saves: tuple[int | str, ...] = ("ins", "outs")
    write: Write | None = None
    parts: Parts | Hosted | None = None
    attrs: Attrs = field(default_factory=dict)
    traits: frozenset[str] = frozenset()
    ulp: float = 0.0
    samples: tuple[Sample, ...] = ()
    errors: tuple[BadInput, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"operator {self.name}: unknown kind {self.kind!r}")

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def takes_complex(self) -> bool:
        """Whether complex operands can be valid; ``infer`` may still reject them."""
        return self.parts is not None or isinstance(self.loop, Control | Interleaved)

    @cached_property
    def communicates(self) -> bool:
        """Whether processes compute it together: the host can start it and continue."""
        return isinstance(self.loop, External) and self.loop.start is not None

    @cached_property
    def is_separate(self) -> bool:
        """Whether every node counts: equal ones are not merged, and none is computed before the call."""
        return self.communicates or (isinstance(self.loop, External) and self.loop.separate)

    @cached_property
    def may_need_host(self) -> bool:
        """Whether operands of some types run outside machine code."""
        return isinstance(self.parts, Hosted) or isinstance(self.loop, External)

    def run_by_host(self, types: Iterable[TensorType]) -> bool:
        """Whether operands of these types run outside machine code."""
        hosted = isinstance(self.parts, Hosted) and any(t.dtype.is_complex for t in types)
        return hosted or isinstance(self.loop, External)

    def result_types(self, types: Iterable[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
        types = tuple(types)
        result = self.infer(*types, **attrs)
        if not self.takes_complex and any(t.dtype.is_complex for t in types):
            listed = ", ".join(map(str, types))
            raise NotImplementedError(f'"{self.name}" not implemented for complex operands: {listed}')
        return result if isinstance(result, tuple) else (result,)


OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add a record to the registry; a name may be registered once."""
    if op.name in OPS:
        raise ValueError(f"operator {op.name} is registered twice")
    OPS[op.name] = op
    return op
