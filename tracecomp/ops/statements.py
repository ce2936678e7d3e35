"""Loop IR statements for operators that no index form describes, and the small helpers they are built with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from tracecomp.ir.index import Index, Var, computed, index, linear
from tracecomp.ir.loops import Buffer, Check, Const, Expr, Let, Load, Loop, Read, Stmt, Store
from tracecomp.ir.scalars import call
from tracecomp.ir.types import Shape, TensorType, bool_, int64

# Elements per vector loop in hand-written statements: a few SIMD registers of the widest target.
CHUNK = 64

_SCALAR = {"add": "add", "mul": "mul", "max": "max", "min": "min"}
_ON_BOOL = {"add": "or", "mul": "and", "max": "or", "min": "and"}


class Names:
    """Fresh names for the loop variables and lets of one kernel."""

    def __init__(self) -> None:
        self._numbers = count()

    def var(self, extent: int) -> Var:
        return Var(f"i{next(self._numbers)}", extent)

    def let(self) -> str:
        return f"t{next(self._numbers)}"


def nest(names: Names, shape: Shape, body: Callable[[tuple[Index, ...]], Sequence[Stmt]]) -> list[Stmt]:
    """Serial loops over ``shape``, outermost first, around ``body(position)``."""
    variables = tuple(names.var(n) for n in shape)
    inner = tuple(body(tuple(index(v) for v in variables)))
    for v in reversed(variables):
        inner = (Loop("serial", v, inner),)
    return list(inner)


def vectors(
    names: Names, size: int, body: Callable[[Index], Sequence[Stmt]], kind: str = "serial", chunk: int = CHUNK
) -> list[Stmt]:
    """``body(i)`` for i below ``size``: whole chunks by vector loops, then the rest by one shorter vector loop."""
    found: list[Stmt] = []
    whole, rest = divmod(size, chunk)
    if whole:
        outer, lane = names.var(whole), names.var(chunk)
        inner = tuple(body(index(outer) * chunk + index(lane)))
        found.append(Loop(kind, outer, (Loop("vector", lane, inner),)))
    if rest:
        lane = names.var(rest)
        found.append(Loop("vector", lane, tuple(body(index(lane) + whole * chunk))))
    return found


def copy(names: Names, source: Buffer, target: Buffer) -> list[Stmt]:
    """``target = source``, element by element, split among threads."""
    return vectors(names, target.size, lambda i: [Store(target, i, Load(source, i))], kind="parallel")


def combine(mode: str, have: Expr, new: Expr) -> Expr:
    """``have`` combined with ``new`` as the scatter mode says."""
    if mode == "set":
        return new
    return call((_ON_BOOL if have.dtype is bool_ else _SCALAR)[mode], have, new)


def loaded_index(names: Names, place: Load, size: int) -> tuple[list[Stmt], Index]:
    """Statements that load and check an index, and the index."""
    name = names.let()
    value = Read(name, int64, frozenset(place.vars()))
    inside = call("and", call("ge", value, Const(0, int64)), call("lt", value, Const(size, int64)))
    return [Let(name, place), Check(inside)], computed(value, (0, max(size - 1, 0)))


def scatter_statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Sequence[TensorType],
    *, axis: int, mode: str,
) -> list[Stmt]:  # fmt: skip
    """Copy the base; then, source element by source element in row-major order, combine it in."""
    names, (base, at, src), out = Names(), ins, outs[0]
    whole, shape = in_types[0].shape, in_types[1].shape

    def body(position: tuple[Index, ...]) -> list[Stmt]:
        source = linear(position, shape)
        first, place = loaded_index(names, Load(at, source), whole[axis] if whole else 1)
        target = linear((*position[:axis], place, *position[axis + 1 :]) if whole else (), whole)
        return [*first, Store(out, target, combine(mode, Load(out, target), Load(src, source)))]

    return [*copy(names, base, out), *nest(names, shape, body)]


def put_statements(
    ins: Sequence[Buffer], outs: Sequence[Buffer], in_types: Sequence[TensorType], out_types: Sequence[TensorType],
    *, axis: int, mode: str,
) -> list[Stmt]:  # fmt: skip
    """Copy the base; then combine whole slices of the source, in order of the index, by vectors along the last axes."""
    names, (base, at, src), out = Names(), ins, outs[0]
    whole, shape = in_types[0].shape, in_types[1].shape
    inner = 1
    for n in whole[axis + 1 :]:
        inner *= n

    def body(position: tuple[Index, ...]) -> list[Stmt]:
        lead, where = position[:axis], position[axis:]
        first, place = loaded_index(names, Load(at, linear(where, shape)), whole[axis])
        source = linear(position, (*whole[:axis], *shape)) * inner
        target = linear((*lead, place), whole[: axis + 1]) * inner

        def element(i: Index) -> list[Stmt]:
            return [Store(out, target + i, combine(mode, Load(out, target + i), Load(src, source + i)))]

        return [*first, *vectors(names, inner, element)]

    return [*copy(names, base, out), *nest(names, (*whole[:axis], *shape), body)]
