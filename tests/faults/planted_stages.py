# ruff: noqa: E501
"""Faults of every stage, each in a separate short program (``stages.py``).

If eager calls run the same code, as kernels of mathematical functions do, eager mode has the fault, too.
"""

from __future__ import annotations

from typing import Any

from tests.faults.planted import Fault
from tests.faults.planting import Derivative, Edit
from tracecomp.ops.prim import prim

RECORDED = ("recorded",)
CALLS = ("guards", "predicates", "native call", "recorded")
NATIVE = ("codegen", "kernels", "native", "loop", "eager bits")


def _recording() -> list[Fault]:
    def recording(
        where: str, old: str, new: str, program: str, *lines: str, stages: tuple[str, ...] = RECORDED
    ) -> Fault:
        return Fault("recording", program, Edit(where, old, new), stages, lines)

    return [
        recording("record.guards.guard:ArrayGuard.check", "if self.contents is not None and not", "if self.contents is None and not", "from_arrays", "sum with an array", stages=CALLS),
        recording("record.value_table:ValueTable.value", "cell.version == self._version_of(root)", "True", "stale_views", "row read again"),
        recording("record.value_table:ValueTable.set", "write(Sym(self._graph, self.value(root)), chain, Sym(self._graph, new)).value", "self.value(root)", "small_writes", "scaled slightly", "read after a small write"),
        recording("record.recorder:Recorder._scalar", "scalar_of(number, dtype), dtype)", "int(scalar_of(number, dtype)), dtype)", "fractions", "times a fraction"),
        recording("record.recorder:Recorder.node", "tuple(v) if isinstance(v, Size) else v for",
                  "tuple(v) if isinstance(v, Size) else (0,) if (op.name, k) == ('flip', 'axes') else v for", "turned_over", "turned over"),
        recording("record.value_table:ValueTable.settle", "self._recorder.depend(seen.numbers)", "pass", "placed", "row at a place scaled", stages=CALLS),
        recording("record.inputs:Inputs.bind_memory", "views(memory, n)", "views(memory, 0)", "overlapping", "both parts read", "first part doubled"),
        recording("record.finish.outputs:_ResultMaker.__call__", "Passed(draft.sources.numbers[id(v)])", "Passed(draft.sources.numbers[id(v)] - 1)", "handed_on", "array handed on", stages=("recorded", "results", "second call", "native call")),
        recording("compiled.results:Builder._own", "np.argsort(r.order)", "r.order", "order_kept", "product in an order", stages=("recorded", "results", "native", "second call")),
        recording("compiled.results:Builder._seen", "bottom(r).number], offset, strides", "bottom(r).number], 0, strides", "part_and_whole", "part of the result", "whole result",
                  stages=("recorded", "results", "native", "second call")),
        recording("record.recording:same_value", "bool(now == seen)", "abs(now - seen) < 1.5", "thresholds", "above nine", stages=CALLS),
        recording("record.recorder:Recorder.depend", "self.predicates += predicates", "self.predicates += predicates[: not self.predicates]", "two_thresholds", "second condition", stages=CALLS),
        recording("compiled.replay:Plan._write", "if outputs[out] is not array:", "if False:", "strided_state", "added to a transposed state", stages=("recorded", "state", "native", "second call")),
    ]  # fmt: skip


def _sizes() -> list[Fault]:
    def sizes(where: str, old: str, new: str, program: str, *lines: str) -> Fault:
        return Fault("dynamic sizes", program, Edit(f"record.{where}", old, new), ("dynamic sizes", "guards"), lines)

    return [
        sizes("size_range:SizeRange.narrow", "self.bound(-((offset - least) // factor), None)", "self.bound(-((offset - least) // factor) - 1, None)", "at_least_rows", "more than four rows"),
        sizes("size_range:SizeRange.narrow", "self.bound(None, (offset - least) // -factor)", "self.bound(None, (offset - least) // -factor + 1)", "at_most_rows", "fewer than 23 rows"),
        sizes("size_range:Conditions._least", "self.positive.add(difference.plus(Form.constant(-least)))", "pass", "many_elements", "more than 30 elements"),
        sizes("size_forms:Form.over", "Quotient(_form(rest), divisor)", "Quotient(_form(rest), divisor + 1)", "halves", "first half"),
        sizes("dynamic_shapes.rules:_slice", "prim.add(prim.mul(at, step), p.count(start))", "prim.mul(at, step)", "last_rows", "last three rows"),
        sizes("dynamic_shapes.padding:Padding.mask", "prim.lt(", "prim.le(", "summed_rows", "sum over all rows"),
        sizes("dynamic_shapes.padding:Padding._value", "total = prim.add(total, part)", "total = part", "one_more_row", "a row appended", "sum over one more"),
        Fault("dynamic sizes", "plain_product", Edit("compiled.dynamic_shapes:Made.serves", "low <= n <= high", "low <= n <= high + 1"), ("dynamic sizes", "guards"), ("plain product", "plain sum")),
        Fault("guards", "plain_product", Edit("record.guards.guard:TensorGuard.check", "(array.dtype is not self.dtype and array.dtype != self.dtype)", "False"), CALLS, ("plain product", "plain sum")),
    ]  # fmt: skip


def _rewrites() -> list[Fault]:
    def rewrite(
        where: str, old: str, new: str, program: str, *lines: str, stages: tuple[str, ...] = ("simplify",)
    ) -> Fault:
        return Fault("rewrites", program, Edit(f"passes.graph.{where}", old, new), stages, lines)

    return [
        rewrite("algebra:mul_by_minus_one", "c == -1", "c in (-1, -2)", "rewritten", "times minus two"),
        rewrite("algebra:where_of_bools", "chosen = c if pair == (1, 0)", "chosen = c if pair == (0, 1)", "rewritten", "one where positive"),
        rewrite("algebra:comparison_of_bool_with_constant", "(c == 1) == (a", "(c == 0) == (a", "rewritten", "mask of a mask"),
        rewrite("algebra:constant_right_of_comparison", "MIRRORED[a.op.name]", "a.op.name", "rewritten", "constant below"),
        rewrite("algebra:rounding_of_whole_numbers", "*INTEGER_VALUED", "*INTEGER_VALUED, 'abs'", "rewritten", "floor of an absolute"),
        rewrite("algebra:square_of_abs", 'g.apply("mul", inner.inputs[0], inner.inputs[0])', "x", "rewritten", "square of an absolute"),
        rewrite("algebra:product_of_negs", "g.full(-c,", "g.full(c,", "rewritten", "product of a negation"),
        rewrite("algebra:where_of_where", "else (x, chosen))", "else (chosen, x))", "rewritten", "chosen twice"),
        rewrite("algebra:is_never_minus_zero", 'or name == "iota"', 'or name in ("iota", "mul")', "signed_zeros", "zero added"),
        rewrite("pads:pad_of_same_constant", "c is not None and same_number(c, a.attrs[\"value\"])", "c is not None", "rearranged", "padded constant"),
        rewrite("pads:_join", "starts != next_starts or", "", "rearranged", "halves exchanged"),
        rewrite("pads:sum_of_pads", "tuple(first if d == axis", "tuple(first - 1 if d == axis", "rearranged", "sum of padded parts"),
        rewrite("pads:scatter_of_one_into_a_number", 'g.apply("eq", along, place)', 'g.apply("ge", along, place)', "rearranged", "one of six"),
        rewrite("reductions:windows_that_tile", "range(lead + 1, lead + 2 * rank, 2))", "range(lead + 2 * rank - 1, lead, -2))", "rearranged", "unfolded by halves", stages=("simplify", "canonical", "decompose")),
        rewrite("complex_to_real:_apply", "(value.real, value.imag)", "(value.real, value.real)", "complex_products", "times a complex constant", stages=("complex_to_real",)),
    ]  # fmt: skip


def _complex() -> list[Fault]:
    def complexes(where: str, old: str, new: str, program: str, *lines: str) -> Fault:
        return Fault("complex", program, Edit(where, old, new), ("complex_to_real", "codegen", "kernels"), lines)

    return [
        complexes("ops.parts:unpacked", "starts=(*starts, 1), stops=(*lead, 2)", "starts=(*starts, 0), stops=(*lead, 1)", "complex_turns", "complex product"),
        complexes("ops.parts:packed", "prim.reshape(x.im, shape=shape)", "prim.reshape(prim.neg(x.im), shape=shape)", "complex_turns", "conjugate"),
    ]  # fmt: skip


def _fusion() -> list[Fault]:
    every = ("kernels", "fusion", "native", "row_fusion", "concat_in_place", "output_buffers", "second call")

    def fusion(
        room: str, where: str, old: str, new: str, program: str, *lines: str, stages: tuple[str, ...] = every
    ) -> Fault:
        return Fault(room, program, Edit(f"passes.{where}", old, new), stages, lines)

    return [
        fusion("fusion", "fusion.concat_in_place:_parts", "start += run", "start += run if not start else 0", "three_parts", "third of three", "three joined"),
        fusion("fusion", "fusion.concat_in_place:with_concats_in_place", "reads.get(v) == 1", "True", "part_read_too", "part with two readers", "joined and summed"),
        fusion("donation", "program.output_buffers:_Search._may_overwrite", "if target in self.shown:", "if False:", "overwritten_and_returned", "old contents", "doubled over them"),
        fusion("donation", "program.output_buffers:_Search.copies", "return [*found, *last]", "return [*last, *found]", "moved_on", "old state", "new state"),
        fusion("donation", "program.output_buffers:_changes_in_place", "all(buffer_of(v) is not target for v in others)", "True", "rows_onto_rows", "rows added to themselves"),
        fusion("memory plan", "program.arena:_Placed.lowest", "first <= life.last", "first < life.last", "alive_together", "first alive", "second alive", "third alive", "all alive", stages=("arena", "kernels", "native")),
        fusion("memory plan", "program.lower:_block_bytes", "max(f.nbytes", "min(f.nbytes", "two_bodies", "large body", "one of two bodies", "before two bodies", "after two bodies", stages=("arena", "kernels", "native")),
        fusion("schedule", "nests.peeling:fold", "return call.args[1] if a.value", "return call.args[1] if not a.value", "padded_row", "rows padded"),
    ]  # fmt: skip


def _emission() -> list[Fault]:
    def emission(
        where: str,
        old: str,
        new: str,
        program: str,
        *lines: str,
        room: str = "emission",
        stages: tuple[str, ...] = NATIVE,
    ) -> Fault:
        return Fault(room, program, Edit(f"codegen.{where}", old, new), stages, lines)

    shared = (*NATIVE, "eager")
    return [
        emission("kernels.accumulate:update_lanes", "((first + start) // lanes) % state.parts", "(state.parts - 1) * (active > 1)", "long_sums", "sum of many lanes"),
        emission("kernels.accumulate:total", "-1 if every else 0", "0", "all_of_rows", "all and any"),
        emission("kernels.accumulate:total", "e.const(result.elem, math.nan), result)", "result, result)", "missing_numbers", "largest with a missing one"),
        emission("kernels.convert:narrow_half", 'e.binary("add", e.binary("add", bits, e.const("i32", 0x7FFF)), odd)', "bits", "halved_steps", "half sum", "half product", room="bfloat16", stages=shared),
        emission("kernels.convert:narrow_half", 'e.const("i32", 0x7FFF)), odd)', 'e.const("i32", 0x8000)), e.const("i32", 0))', "halved_steps", "half sum", "half product", room="bfloat16", stages=shared),
        emission("kernels.convert:narrow_half", 'e.binary("add", e.binary("add", bits, e.const("i32", 0x7FFF)), odd)', "bits", "halved_functions", "half exponential", room="bfloat16", stages=shared),
        emission("kernels.operations:_mod", "b.const - 1", "b.const", "whole_numbers", "remainder by eight", stages=shared),
        emission("kernels.operations:_shift", "e.const(n.elem, bits - 1), n))", "e.const(n.elem, 0), n))", "whole_numbers", "shifted right", stages=shared),
        emission("threads.sync:_work", '_share(a, a.let(f"add i64 {chunk}, 1"), extent, chunks)', "_share(a, chunk, extent, chunks)", "parallel_rows", "large parallel map", "large parallel sums", room="threads", stages=(*NATIVE, "threads")),
        emission("kernels.operations:_floor_divide", '"ashr" if dtype.signed', '"lshr" if dtype.signed', "whole_numbers", "quotient by four", stages=shared),
    ]  # fmt: skip


def _hosts() -> list[Fault]:
    def host(where: str, old: str, new: str, program: str, *lines: str) -> Fault:
        return Fault("host calls", program, Edit(where, old, new), ("host", "native", "kernels"), lines)

    return [
        host("compiled.backends:_Coming.wait", "zip(self._node.outputs, found, strict=True)", "zip(self._node.outputs, found[::-1], strict=True)", "decomposed", "decomposed"),
        host("compiled.backends:Hosted.run", "given = [value(v) for v in reads]", "given = [value(v) for v in reads[::-1]] if isinstance(work, Native) else [value(v) for v in reads]", "decomposed", "composed again"),
    ]  # fmt: skip


def _derivatives() -> list[Fault]:
    def rule(op: str, what: str, line: str, change: Any) -> Fault:
        def changed(old: Any) -> Any:
            return lambda grads, outs, ins, **attrs: change(list(old(grads, outs, ins, **attrs)), grads, ins)

        return Fault("derivatives", "rules", Derivative(op, what, changed), ("derivative",), (line,))

    return [
        rule("cos", "the sine, positive", "slope of cos", lambda found, g, i: [prim.mul(g[0], prim.sin(i[0]))]),
        rule("erf", "a tenth too large", "slope of erf", lambda found, g, i: [prim.mul(found[0], 1.1)]),
        rule("log1p", "without the square", "slope of log1p", lambda found, g, i: [prim.div(g[0], prim.add(prim.abs(i[0]), 1.5))]),
        rule("gather", "negative", "slope of gather", lambda found, g, i: [prim.neg(found[0]), *found[1:]]),
        rule("maximum", "to both", "slope of maximum", lambda found, g, i: [g[0], g[0]]),
        Fault("derivatives", "two_gradients", Edit("compiled.autograd:CompiledNode.backward", "zip(self.split.wanted, self", "zip(self.split.wanted[::-1], self"),
              ("backward",), ("product of two",)),
        Fault("derivatives", "two_gradients", Edit("compiled.autograd:CompiledNode.backward", "np.zeros(shape, dtype) if g is None", "np.ones(shape, dtype) if g is None"),
              ("backward",), ("product of two",)),
    ]  # fmt: skip


def _later() -> list[Fault]:
    sizes, loops = (
        ("dynamic sizes", "guards"),
        (*NATIVE, "eager bits", "arena", "output_buffers", "fusion", "second call"),
    )

    def later(room: str, where: str, old: str, new: str, program: str, *lines: str, stages: tuple[str, ...]) -> Fault:
        return Fault(room, program, Edit(where, old, new), stages, lines)

    return [
        later("guards", "record.recording:same_value", "bool(now == seen)", "bool(now == seen) or seen is False", "empty_or_not", "while above", stages=CALLS),
        later("dynamic sizes", "record.size_range:SizeRange.holds", "value <= self.high", "value <= self.high + 1", "columns_limited", "many columns", stages=sizes),
        later("dynamic sizes", "record.dynamic_shapes.padding:Padding.masked", "prim.where(mask, found, fill)", "prim.where(mask, found, 0.0)", "spread", "spread over rows", stages=sizes),
        later("rewrites", "passes.graph.views:squeezed_permute", "sorted(dims[i] for", "list(dims[i] for", "more_views", "squeezed and turned", stages=("simplify", "canonical")),
        later("rewrites", "passes.graph.views:slice_of_expand", "[0 if repeated[d] else", "[0 if repeated[d] or d == x.ndim - 1 else", "more_views", "part of a repetition", stages=("simplify",)),
        later("rewrites", "passes.graph.reductions:split_of_permute", "pieces = {dims[i]: part for i", "pieces = {i: part for i", "more_views", "split after turning", stages=("simplify", "canonical")),
        later("complex", "passes.graph.fourier:roots_of_transform", ".table.array(), x.dtype.numpy)", ".table.array()[::-1], x.dtype.numpy)", "complex_signals", "spectrum", stages=("simplify", "constant_folding", "decompose", "canonical")),
        later("emission", "codegen.kernels.accumulate:_joined", '"add" if acc.op == "fma" else acc.op, acc.dtype, a, [b]', '"add" if acc.op == "fma" else acc.op, acc.dtype, b, [b]', "half_rows", "sum of half rows", stages=(*NATIVE, "eager bits")),
        later("schedule", "passes.schedule.k_blocking:in_k_blocks", "start=total, epilogue", "start=None, epilogue", "long_products", "many terms", stages=loops),
        later("in-place", "record.finish.outputs:add_updates", "if final is not initial:", "if final is not initial and len(found) < 1:", "trained", "velocity", "weight lowered", stages=RECORDED),
        later("host calls", "compiled.backends:_Coming.wait", "[*map(np.asarray, result)] if isinstance", "[np.asarray(r) * (1 + 0.01 * (np.ndim(r) == 1)) for r in result] if isinstance", "factored", "factored", stages=("host", "native", "kernels")),
        Fault("derivatives", "steps", Derivative("sin", "the cosine, negative", lambda old: lambda g, o, i, **a: [prim.mul(prim.neg(g[0]), prim.cos(i[0]))]), ("derivative",), ("slope of sin",)),
        later("dynamic sizes", "record.size_range:Conditions._equal", "(self.zero if is_zero else self.other).add(difference)", "pass", "odd_rows", "odd rows", stages=sizes),
        later("guards", "record.recording:same_value", "bool(now == seen)", "abs(now - seen) < 1.5", "near_zero", "all are small", stages=CALLS),
        later("guards", "record.recording:same_value", "bool(now == seen)", "abs(now - seen) < 1.5", "counted_positive", "count read", stages=CALLS),
        later("dynamic sizes", "record.dynamic_shapes.padding:Padding.masked", "prim.where(mask, found, fill)", "prim.where(mask, found, 0.0)", "least_rows", "least and product", stages=sizes),
        later("dynamic sizes", "record.dynamic_shapes.padding:Padding.count", "self._counts[extent] = self._value(extent)", "self._counts[extent] = prim.add(self._value(extent), 1)", "pairs_of_rows", "rows joined", "softmax over joined rows", stages=sizes),
        later("rewrites", "passes.graph.algebra:idempotent_binary", "y in inner.inputs", "True", "choices", "larger of two", stages=("simplify",)),
        later("rewrites", "passes.graph.algebra:absorbed_by_zero", "_filled(g, c, a)", "_filled(g, 1, a)", "choices", "bits absorbed", stages=("simplify",)),
        later("rewrites", "passes.graph.algebra:div_by_power_of_two", "reciprocal = 1.0 / c", "reciprocal = 1.0 / abs(c)", "choices", "negative quarter", stages=("simplify",)),
        later("emission", "codegen.kernels.operations:_fmod", 'e.binary("sub", a, ', 'e.binary("add", a, ', "whole_steps", "truncated remainder", stages=(*NATIVE, "eager", "eager bits")),
        later("emission", "codegen.kernels.convert:cast", '"sitofp" if source.signed', '"uitofp" if source.signed', "whole_steps", "integers as floats", stages=(*NATIVE, "eager", "eager bits")),
        later("emission", "codegen.kernels.accumulate:combine", "operands = [*args, current]", "operands = [args[0], args[0], current]", "turned_product", "batched product", stages=(*NATIVE, "eager", "eager bits")),
        Fault("derivatives", "steps", Derivative("flip", "not flipped", lambda old: lambda g, o, i, **a: [g[0]]), ("derivative",), ("slope of flip",)),
        later("derivatives", "compiled.autograd:Kept.of", "array = self.values.get(id(source))", "array = next(iter(self.values.values()))", "two_gradients", "product of two", stages=("backward", "recorded")),
    ]  # fmt: skip


STAGES: tuple[Fault, ...] = (
    *_recording(), *_sizes(), *_rewrites(), *_complex(), *_fusion(), *_emission(), *_hosts(), *_derivatives(), *_later(),
)  # fmt: skip
