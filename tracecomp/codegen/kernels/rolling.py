"""Long epilogues as loops: the rows of a register tile are finished one after the other, by one piece of code.

Unrolled, an epilogue is written once for each vector of the tile. Kernels with an optimizer's update then have
thousands of instructions, and LLVM needs most of a program's compile time for them. The values of the tile move to a
small buffer, and a loop over its rows reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tracecomp.ir.index import Index, Var
from tracecomp.ir.loop_copy import Copier
from tracecomp.ir.loops import Buffer, Expr, Let, Load, Local, Loop, Read, Stmt, Store, expressions

MOST_EXPRESSIONS = 200
"""Expressions that are evaluated without a loop. Training steps compile as fast with any limit from 100 to 400."""
MOST_BYTES = 8192
"""Bytes of the tile's values: more do not belong on the stack of a worker."""


def is_long(run: Sequence[Let | Store], elements: int) -> bool:
    """Whether the statements, written once for each of ``elements``, are too many."""
    return elements * len({id(x) for x in expressions(run)}) > MOST_EXPRESSIONS


def rolled(
    run: Sequence[Let | Store], row: Var, bound: Mapping[str, tuple[Var, ...]], room: Callable[[Var], int],
    fresh: Callable[[str], str],
) -> list[Stmt] | None:  # fmt: skip
    """Return ``run`` as a loop over ``row``; None if its values do not fit.

    Args:
        run: statements of which no element reads another's stores, so elements may run in any order.
        row: an open tile variable.
        bound: the names from earlier statements that change with ``row``, with their variables in order.
        room: the number of elements that a variable takes in memory.
        fresh: makes a name unique.
    """
    types = {x.name: x.dtype for x in expressions(run) if isinstance(x, Read) and x.name in bound}
    copier = _Rows(row, Var(fresh(row.name), row.extent))
    before: list[Stmt] = []
    for name, dtype in types.items():
        offset, size = Index(), 1
        for var in reversed(bound[name]):
            offset, size = offset + Index(((var, size),)), size * room(var)
        buffer = Buffer(fresh("tile"), dtype, size)
        before += [Local(buffer), Store(buffer, offset, Read(name, dtype, frozenset(bound[name])))]
        copier.kept[name] = buffer, offset
    if sum(buffer.size * buffer.dtype.itemsize for buffer, _ in copier.kept.values()) > MOST_BYTES:
        return None
    return [*before, Loop("serial", copier.counter, copier.stmts(run))]


class _Rows(Copier):
    """Copy statements with a loop's counter for ``row``, and with loads from buffers for names."""

    def __init__(self, row: Var, counter: Var) -> None:
        super().__init__({row: Index(((counter, 1),))})
        self.counter = counter
        self.kept: dict[str, tuple[Buffer, Index]] = {}

    def expr(self, expr: Expr) -> Expr:
        """Copy an expression."""
        if isinstance(expr, Read) and expr.name in self.kept:
            buffer, offset = self.kept[expr.name]
            return Load(buffer, self.index(offset))
        return super().expr(expr)
