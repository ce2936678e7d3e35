# ruff: noqa: E501
"""More faults: in operators with hand-written loops, in code that runs eager calls, and in code that serves frequent
ones.

A fault of what both ways go through, such as a function's choice of operators, is none that a comparison could see.
"""

from __future__ import annotations

from tests.faults.planted import Fault
from tests.faults.planting import Edit

NATIVE = ("codegen", "kernels", "native", "loop")
EAGER = ("eager", "recorded")


def _operators() -> list[Fault]:
    def operator(where: str, old: str, new: str, program: str, *lines: str, room: str) -> Fault:
        return Fault(room, program, Edit(where, old, new), NATIVE, lines)

    return [
        operator("ops.sort:_ordered_bits", 'call("add", x, const(0.0, x.dtype))', "x", "ordering", "sorted", room="sort"),
        operator("ops.sort:_by_rank", 'sooner = call("lt"', 'sooner = call("gt"', "ordering", "doubles sorted", room="sort"),
        operator("ops.sort:_Line.digit", "number == self.digits - 1 and", "False and", "ordering", "long line sorted", room="sort"),
        operator("ops.sort:_running_places", 'Update(total, (call("add", start, count),))', 'Update(total, (call("max", start, count),))',
                 "ordering", "long line sorted", room="sort"),
        operator("ops.sort:_Kept.insert", 'call("le", Load', 'call("lt", Load', "ordering", "first of a long line", room="sort"),
        operator("ops.sort:_beside", 'call("max", its, mine)', 'its', "ordering", "first of many lines", room="sort"),
        operator("ops.search:_statements", '"gt" if right else "ge"', '"ge" if right else "gt"', "ordering", "places in a sequence", room="sort"),
        operator("ops.cumulative:_stripe", "Store(totals, i, known)", "Store(totals, i, cast(Load(x, row + i), first.dtype))",
                 "running", "running sum of long rows", room="scan"),
        operator("ops.cumulative:lines", "(block * size + k) * inner + lane", "(block * size + k * -1 + (size - 1)) * inner + lane", "running",
                 "running total", "running product", "running maximum", room="scan"),
        operator("codegen.kernels.program:_ProgramEmitter._repeat", "phi i64 [ 0,", "phi i64 [ 1,", "iterated", "many steps", room="scan"),
        operator("codegen.kernels.program:_ProgramEmitter._when", "((then, step.then), (otherwise, step.otherwise))",
                 "((otherwise, step.then), (then, step.otherwise))", "iterated", "one of two", room="scan"),
        operator("ops.gather_scatter:_gather_loop", "*at[:axis], place", "*[a * 0 for a in at[:axis]], place", "gathering", "gathered along", room="gathers"),
        operator("ops.gather_scatter:_take_loop", "place, *at[axis + rank :]", "place, *[a * 0 for a in at[axis + rank :]]", "gathering", "rows taken", room="gathers"),
        Fault("gathers", "gathering", Edit("passes.graph.gathers:gather_of_slices", '"take", x, flat', '"take", g.apply("flip", x, axes=(1,)), flat'),
              ("simplify", "canonical", "gathers"), ("slices gathered",)),
        operator("ops.window:_holding", "window, tap, both(on_grid, in_range(window, count), in_range(tap, size))",
                 "window, tap, both(on_grid, in_range(window, count - 1), in_range(tap, size))", "pooling", "folded", room="pooling"),
        operator("ops.view:_windows_source", "index(at[lead + k + i]) * dilations[i]", "index(at[lead + k + i]) * strides[i]", "pooling",
                 "pooled maximum", room="pooling"),
        operator("ops.statements:scatter_statements", "Load(src, start + i)", "Load(src, start + i * 0)", "gathering", "scattered",
                 "put where they belong", room="gathers"),
        operator("ops.statements:put_statements", "(*whole[:axis], *listed)) * inner", "(*whole[:axis], *listed)) * 0", "gathering", "rows added", room="gathers"),
        operator("codegen.kernels.storing:Storing._store_transposed", "Index((), lane)", "Index((), 0)", "transposing", "transposed", room="masks"),
    ]  # fmt: skip


def _eager() -> list[Fault]:
    def eager(where: str, old: str, new: str, program: str, *lines: str, room: str = "eager kernels") -> Fault:
        return Fault(room, program, Edit(where, old, new), EAGER, lines)

    return [
        eager("eager_kernels.products:_of_complex", "parts[0] - parts[3]", "parts[0] + parts[3]", "complexes", "product of complex matrices"),
        eager("eager_kernels.products:_with_vector", "matrix * _aligned", "matrix + _aligned", "laid_elsewhere", "product with a column"),
        eager("eager_kernels.products:_Plan.add", "(y, x) if self.swapped else (x, y)", "(x, y)", "laid_elsewhere", "product of few columns"),
        eager("eager_kernels.sums:reduce_in_order", "reduce_in_order(name, x.imag, axes)", "reduce_in_order(name, x.real, axes)", "complexes",
              "sum of complex numbers"),
        eager("eager_kernels.sums:_Stage._wide", "np.ascontiguousarray(rows), out", "np.ascontiguousarray(rows[::-1]), out", "laid_elsewhere",
              "mean of rows"),
        eager("eager_kernels.elementwise:_laid_out", "len({_steps(x) for x in whole}) < 2", "len({_steps(x) for x in whole}) < 3", "laid_elsewhere",
              "angles in other orders"),
        eager("eager_kernels.convolutions:_Windows.convolution", "np.moveaxis(found, 2, 0)", "np.moveaxis(found, 2, 0)[::-1]", "images",
              "convolved by windows"),
        eager("eager_kernels.convolutions:_Windows.by_tiles", "self._put(result[images], value, at)", "self._put(result[images], value * 1.01, at)", "images",
              "convolved by tiles"),
        eager("eager_kernels.philox:random_bits", "np.ascontiguousarray(state)", "np.ascontiguousarray(state) + 1", "many_numbers", "random after many",
              "normal after many"),
        eager("functional.viewed:Viewed.__call__", "in ways:", "in ways[::-1]:", "served_views", "split again", room="served calls"),
        eager("functional.viewed:Viewed.__call__", "look_through(t, ways[0][0])", "look_through(t, ways[0][0]).flip(0)", "served_views",
              "unflattened again", room="served calls"),
        eager("optim.served:Updates.__call__", "run(*tensors)", "run(*tensors[:-1], rate * 1.5)", "served_updates", "served step", room="served calls"),
        eager("compiled.served_kinds:kind_of", "(statics, a.shape,", "((), a.shape,", "served_derivatives", "d served norm", room="served calls"),
    ]  # fmt: skip


def _guards() -> list[Fault]:
    def guard(where: str, old: str, new: str, program: str, *lines: str) -> Fault:
        return Fault(
            "guards", program, Edit(f"record.{where}", old, new), ("guards", "native call", "dynamic sizes"), lines
        )

    return [
        guard("same_values:same_number", "bool(a) or", "True or", "signed", "sign of an argument"),
        guard(
            "guards.sizes:SizesGuard.check",
            "if self.conditions.holds(sizes) else",
            "if True else",
            "sized",
            "many rows",
            "few rows",
        ),
        guard("guards.sizes:SizesGuard.check", "!= size:", "!= size and False:", "as_long", "sum of as many rows"),
        guard(
            "guards.guard:NumberGuard.check",
            "type(leaves[self.leaf]) is not self.kind or",
            "",
            "counted",
            "product with a count",
        ),
        guard(
            "guards.guard:NumberGuard.check",
            "type(leaves[self.leaf]) is not self.kind or",
            "",
            "measured",
            "product with a measure",
        ),
    ]


MORE: tuple[Fault, ...] = (*_operators(), *_eager(), *_guards())
