# ruff: noqa: E501
"""The faults: where each is planted, in which program it shows, and what a comparison has to say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.faults.planting import Constant, Derivative, Edit, Entry, Plant
from tracecomp.ops.prim import prim


@dataclass(frozen=True)
class Fault:
    """One fault. ``stages``: the stage or step must contain one of these words. ``lines``: one of these marks must be
    named.

    ``own``: the fault is in the program, and the report has a note about it.
    """

    room: str
    program: str
    plant: Plant | None
    stages: tuple[str, ...]
    lines: tuple[str, ...]
    own: bool = False

    @property
    def what(self) -> str:
        """Return a description of the fault."""
        return "`Cube.backward` gives 2x² for 3x²" if self.plant is None else str(self.plant)


def _rules() -> list[Fault]:
    def rule(where: str, old: str, new: str, program: str, line: str, *stages: str) -> Fault:
        return Fault("rules", program, Edit(f"passes.graph.{where}", old, new), stages or ("simplify",), (line,))

    return [
        rule("algebra:involution", "inner.inputs[0] if inner", "a.inputs[0] if inner", "algebra", "double negation"),
        rule("algebra:add_of_neg", '"sub" if a.op.name == "add" else "add"', '"add"', "algebra",
             "sum with a negation"),
        rule("algebra:where_of_not", "a.inputs[2], a.inputs[1]", "a.inputs[1], a.inputs[2]", "algebra",
             "chosen by a negation"),
        rule("algebra:neg_of_scaled", "g.full(-c,", "g.full(c,", "algebra", "negated product"),
        rule("algebra:div_by_power_of_two", "1.0 / c", "2.0 / c", "algebra", "division by 8"),
        rule("algebra:negated_comparison", "table.get(inner.op.name)", '"eq"', "algebra", "negated comparison"),
        rule("algebra:is_right_identity", "value == declared", "value in (1, 3)", "products", "thrice"),
        rule("algebra:abs_of_neg", "g.apply(\"abs\", inner.inputs[0])", "inner.inputs[0]", "algebra", "absolute of a negation"),
        rule("casts:cast_of_cast", "holds_exactly(middle, first)", "holds_exactly(first, middle)", "algebra",
             "there and back"),
        rule("views:permute_of_permute", 'inner.attrs["dims"][d] for d in moved', "moved[d] for d in inner.attrs['dims']",
             "views",
             "permuted twice"),
        rule("views:slice_of_slice", "s + k * t", "s + t", "views", "sliced twice"),
        rule("views:flip_of_flip", "^ set", "| set", "views", "flipped twice"),
        rule("views:slice_of_concat", "starts[axis] -= begin", "starts[axis] -= begin + 1", "views",
             "part of a concatenation"),
        rule("views:slice_of_pad", "s - b for s, b", "s - b - (b > 0) for s, b", "views", "part of what is padded"),
        rule("pads:pad_of_pad", "inner.attrs[side], a.attrs[side], strict=True)) for side in (\"low\", \"high\")",
             "inner.attrs[side], a.attrs[side], strict=True)) for side in (\"high\", \"low\")", "views", "padded twice"),
        rule("reductions:reduction_of_permute", "reduce_before_permute(g, a, inner)",
             "g.apply('mul', reduce_before_permute(g, a, inner), g.scalar(1.5, a.type.dtype))", "reductions",
             "sum of a permuted", "simplify", "canonical"),
        rule("split_reductions:_part", "start if d == axis", "start + (start > 0 and stop - start > 1) if d == axis",
             "reductions", "long sum", "split"),
        rule("split_reductions:_in_blocks", "_part(g, x, axis, whole, extent)",
             "g.apply('neg', _part(g, x, axis, whole, extent))", "reductions", "long sum", "split"),
        rule("contractions:contract_of_permuted", 'sorted(range(value.ndim), key=node.attrs["dims"].__getitem__)',
             "range(value.ndim)", "products", "product of a transposed", "simplify", "canonical"),
        rule("contractions:_product_as_it_lies", 'g.apply("mul", matrix, other)',
             'g.apply("add", matrix, other)', "products", "product with a vector", "canonical"),
        rule("loop_invariants:_place", "rhs[::-1]", "rhs", "recurrent", "recurrent layer", "loop_invariants"),
        rule("scan_accumulators:_total", 'g.apply("add", start, g.apply("contract"',
             'g.apply("sub", start, g.apply("contract"', "recurrent_training", "recurrent layer in training",
             "scan_accumulators"),
    ]  # fmt: skip


def _layout() -> list[Fault]:
    def layout(where: str, old: str, new: str, program: str, *lines: str) -> Fault:
        stages = ("layout", "decompose", "canonical")
        return Fault("layout", program, Edit(f"passes.graph.{where}", old, new), stages, lines)

    return [
        layout("convolutions:pad_spatial", "low=(*lead, *low), high=(*lead, *high)", "low=(*lead, *high), high=(*lead, *low)",
               "convolution_derivatives", "d convolution"),
        layout("relayout:_windowed", 'f"{group}oc{places}" if is_conv',
               'f"{group}oc{places[::-1]}" if is_conv', "convolutions", "first convolution", "second convolution"),
        layout("relayout:_transposed", 'order.index(attrs["axis"])', 'attrs["axis"]', "laid_out", "channels joined", "third convolution"),
        layout("convolutions:pad_spatial", "*low)", "*low[::-1])", "laid_out", "padded unevenly"),
    ]  # fmt: skip


def _derivatives() -> list[Fault]:
    def rule(op: str, what: str, line: str, change: Any, program: str = "derivatives") -> Fault:
        return Fault("derivatives", program, Derivative(op, what, change), ("derivative",), (line,))

    def scaled(factor: float, which: int = 0) -> Any:
        def changed(old: Any) -> Any:
            def vjp(grads: Any, outs: Any, ins: Any, **attrs: Any) -> Any:
                found = list(old(grads, outs, ins, **attrs))
                found[which] = found[which] if found[which] is None else prim.mul(found[which], factor)
                return found

            return vjp

        return changed

    def of(make: Any) -> Any:
        def changed(old: Any) -> Any:
            return lambda grads, outs, ins, **attrs: make(old, grads, outs, ins, attrs)

        return changed

    def edit(where: str, old: str, new: str, program: str, *lines: str) -> Fault:
        return Fault("derivatives", program, Edit(where, old, new), ("derivative",), lines)

    return [
        rule("exp", "without the result", "d exp of a product", of(lambda old, g, o, i, a: [g[0]])),
        rule("mul", "of the other operand", "d expand",
             of(lambda old, g, o, i, a: [prim.mul(g[0], i[0]), prim.mul(g[0], i[1])])),
        rule("div", "the sign of the divisor's", "d quotient", scaled(-1.0, 1)),
        rule("tanh", "without the square", "d tanh", of(lambda old, g, o, i, a: [prim.mul(g[0], prim.sub(1.0, o[0]))])),
        rule("sigmoid", "twice as large", "d tanh", scaled(2.0)),
        rule("sqrt", "without the factor 1/2", "d sqrt", scaled(2.0)),
        rule("contract", "of the left operand, negative", "d matmul", scaled(-1.0)),
        rule("where", "both the same", "d where",
             of(lambda old, g, o, i, a: [None, old(g, o, i, **a)[1], old(g, o, i, **a)[1]])),
        rule("log", "without the division", "d amax", of(lambda old, g, o, i, a: [g[0]])),
        rule("max", "to every element", "d amax",
             of(lambda old, g, o, i, a: [prim.add(prim.mul(old(g, o, i, **a)[0], 0.0), 1.0)])),
        rule("sin", "the sine", "d power", of(lambda old, g, o, i, a: [prim.mul(g[0], prim.sin(i[0]))])),
        rule("sort", "flipped", "d sort", of(lambda old, g, o, i, a: [prim.flip(old(g, o, i, **a)[0], axes=(1,))])),
        rule("pad", "twice as large", "d pad", scaled(2.0)),
        rule("abs", "always positive", "d cumsum", of(lambda old, g, o, i, a: [g[0]])),
        rule("sub", "of the right operand, positive", "d difference", scaled(-1.0, 1)),
        rule("conv", "of the weight, a third too small", "d convolution", scaled(0.67, 1), "convolution_derivatives"),
        edit("autograd.engine:_Run._arrive", "add(have, grad)", "grad", "derivatives", "d exp of a product",
             "d quotient", "d tanh", "d sqrt", "d matmul", "d where", "d cat", "d amax", "d lookup", "d cumsum", "d pad",
             "d sort", "d power", "d difference", "d expand"),
        edit("eager.grad_fn:CopySlices.backward", "write(grad, self.chain, zeros)", "grad", "written_derivatives",
             "d write", "d write through a view"),
        edit("eager.grad_fn:CopySlices.backward", "kept, seen if", "kept, zeros if", "written_derivatives",
             "d write", "d write through a view"),
        Fault("derivatives", "accumulating", Edit("autograd.engine:accumulate", "assign_(have, add(have, grad))", "assign_(have, grad)"),
              ("recorded",), ("accumulated", "squared again")),
        Fault("derivatives", "accumulating", Edit("autograd.engine:_added_at_once", "np.add(have._data, array, out=have._data)", "have._data[...] = array"),
              ("recorded",), ("accumulated", "squared again")),
        Fault("derivatives", "custom", None, ("Cube.backward",), ("custom gradient",), own=True),
    ]  # fmt: skip


def _fusion() -> list[Fault]:
    every = ("kernels", "fusion", "native", "row_fusion", "concat_in_place")
    products = ("first product", "second product", "third product", "last product")

    def fusion(where: str, old: str, new: str, program: str, *lines: str, room: str = "fusion") -> Fault:
        return Fault(room, program, Edit(f"passes.{where}", old, new), every, lines)

    return [
        fusion("fusion.access:broadcast_index", "len(position) - len(shape)", "0 * len(shape)", "mirrored",
               "before the mirror"),
        fusion("fusion.fuse:Fuser._stored", "value in self.readers.wanted or needed", "needed", "chains", *products),
        fusion("fusion.concat_in_place:_outermost", "found[value] = place",
               "found[value] = BufferSlice(place.whole, tuple((r, a, 0) for r, a, _ in place.steps))", "joined", "joined",
               "left part", "right part"),
        fusion("row_fusion.row_tiles:RowBlock._in_block", "return own", "return own - own.const + (bounds[0] > 0 or bounds[1] > 1)",
               "attention", "scores", "softmax", "weighted", room="row-tiled fusion"),
        fusion("row_fusion.lowering:_numbered", "index(number) % part.extent}", "index(number) % part.extent * 0 + (part.extent - 1)}",
               "perceptron", "into the hidden layer", "activation", "out of the hidden layer", room="row-tiled fusion"),
        fusion("row_fusion.row_tiles:Rows.cut", "whole * height), rest", "whole * height - height), rest", "perceptron",
               "into the hidden layer", "activation", "out of the hidden layer", room="row-tiled fusion"),
    ]  # fmt: skip


def _memory() -> list[Fault]:
    products = ("first product", "second product", "third product", "last product")

    def memory(where: str, old: str, new: str, program: str, stages: tuple[str, ...], *lines: str, room: str) -> Fault:
        return Fault(room, program, Edit(f"passes.{where}", old, new), stages, lines)

    return [
        memory("program.arena:_Placed.lowest", "last >= life.first", "last > life.first", "chains", ("arena",), *products,
               room="memory plan"),
        memory("program.arena:_Placed.lowest", "accumulate(high[alive])", "accumulate(low[alive])", "chains", ("arena",),
               *products, room="memory plan"),
        memory("program.arena:plan_arena", "size = max(size, start + need)", "size = max(size, need)", "chains",
               ("arena",), *products, room="memory plan"),
        memory("program.lower:lifetimes", "last[value] = n", "last[value] = first[value]", "chains", ("arena",),
               *products, room="memory plan"),
        memory("program.output_buffers:_Search._may_overwrite", "if self.last_read.get(target, -1) > self.place[group]:",
               "if False:", "aliases", ("output_buffers", "native", "second call"), "doubled in place", "raised in place",
               "gathered in total", "product of both", room="donation"),
        memory("program.output_buffers:_Search._may_overwrite", "is_aligned(v, target, self._reads_of(v, inside))",
               "True", "written_state", ("output_buffers", "native"), "state mixed", "state read", room="donation"),
        memory("program.output_buffers:_Search.copies", "found.append(self._copied(value, stage))", "pass", "swapped",
               ("output_buffers", "native"), "exchanged", room="donation"),
        memory("program.prepacking:_moved", "if v in frozen and name not in", "if name not in", "frozen",
               ("prepacking", "second call"), "prepared weight", "plain weight", room="prepacking"),
        Fault("prepacking", "frozen", Edit("compiled.replay:Plan._seen", "return None if None in counts else [*memories, *counts]",
                                           "return [*memories]"), ("prepacking", "native call"),
              ("prepared weight", "plain weight")),
        Fault("prepacking", "frozen", Edit("runtime.executable:Loaded.run", "seen is not None and seen == call.seen", "call.seen is not None"),
              ("prepacking", "native call", "second call"), ("prepared weight", "plain weight")),
    ]  # fmt: skip


def _schedules() -> list[Fault]:
    def loops(where: str, old: str, new: str, program: str, *lines: str, room: str = "schedule") -> Fault:
        stages = ("kernels", "codegen", "native")
        return Fault(room, program, Edit(f"passes.{where}", old, new), stages, lines)

    def edges(where: str, old: str, new: str, program: str, *lines: str, room: str = "masks") -> Fault:
        return Fault(room, program, Edit(where, old, new), ("codegen", "kernels", "two threads", "threads"), lines)

    maps = ("large map", "row sums", "column sums")
    return [
        loops("schedule.column_reductions:_block", "init=total", "init=a.init", "large", *maps),
        loops("schedule.transposes:_Panels._panel", "column + index(lane)", "column + index(lane) * 0",
              "transposing", "transposed"),
        loops("schedule.k_blocking:in_k_blocks", "begin + index(place)", "index(place)", "deep", "deep product"),
        loops("winograd.transforms:Terms.half", "Const(0.5", "Const(0.25", "windows", "windows"),
        loops("contraction.operand_copies:copied", "[v.extent for v in names])", "[v.extent for v in reversed(names)])",
              "half_product", "product of half types"),
        loops("contraction.register_tiles:_summed", "for n in range(last.extent)", "for n in range(max(last.extent - 1, 1))",
              "convolutions", "first convolution", "second convolution"),
        loops("nests.peeling:part", "index(new) + low", "index(new) + max(low - 1, 0)", "views", "padded twice",
              "part of a concatenation", room="splitting"),
        loops("schedule.tiling:chunks", "some.start(index(counter) if", "(lambda i: some.start(i) - (1 if some.first else 0))(index(counter) if",
              "mathematics", "exp", "log", "tanh", "sin", "sigmoid", "erf", "sqrt", "expm1", "pow", "atan2", "log1p",
              room="splitting"),
        edges("codegen.kernels.address:tail_mask", "k < active", "k < active - 1", "mathematics", "exp", "log", "tanh",
              "sin", "sigmoid", "erf", "sqrt", "expm1", "pow", "atan2", "log1p"),
        edges("codegen.kernels.accumulate:total", "list(range(half, width))", "list(range(half))", "reductions",
              "long sum", "maximum twice", "variance", "sum of a permuted"),
        edges("codegen.kernels.kernel:_runner", "'i64 %start', 'i64 %stop'", "'i64 %start', 'i64 %thread'", "large",
              *maps, room="barriers"),
        edges("codegen.kernels.kernel:KernelEmitter._share_out", "else loop.var.extent", "else loop.var.extent - 1",
              "large", *maps, room="barriers"),
    ]  # fmt: skip


def _functions() -> list[Fault]:
    def function(where: str, old: str, new: str, line: str, program: str = "mathematics") -> Fault:
        return Fault("math functions", program, Edit(f"codegen.{where}", old, new), ("codegen",), (line,))

    return [
        function("math.exponential:_exp_reduced", "+ 1.0", "+ 1.001", "exp"),
        function("math.exponential:tanh", "* -2.0", "* -1.99", "tanh"),
        function("math.exponential:log1p", "lost / u, 0.0", "lost * 0.0, 0.0", "log1p of doubles", "doubles"),
        function("math.exponential:sigmoid", "-x.abs()", "x.abs() * -0.99", "sigmoid"),
        function("math.trigonometric:_of_float", "(q & 2) << 30", "(q & 4) << 29", "sin"),
        function("math.special:erf", "-3.93", "-1.93", "erf"),
        Fault("math functions", "mathematics", Entry("codegen.math.functions:_IN_LINE", "exp", "exp2"), ("codegen",), ("exp",)),
        function("kernels.operations:_floor_divide", "icmp ne", "icmp eq", "floor division", "selections"),
        function("kernels.operations:maximum", '"fcmp ogt"', '"fcmp olt"', "maximum", "selections"),
        function("kernels.convert:narrow_half", 'e.const("i32", 0x7FFF)', 'e.const("i32", 0xFFFF)', "bfloat16", "selections"),
        function("kernels.convert:_float_to_int", "e.select(inside, value,", "e.select(inside, e.binary('fadd', value, e.const(value.elem, 0.5)),",
                 "to integers", "selections"),
        function("kernels.operations:compare", '"s" if signed', '"u" if signed', "below", "selections"),
    ]  # fmt: skip


def _recording() -> list[Fault]:
    def recording(
        where: str,
        old: str,
        new: str,
        program: str,
        *lines: str,
        room: str = "state updates",
        stages: tuple[str, ...] = ("recorded",),
    ) -> Fault:
        return Fault(room, program, Edit(where, old, new), stages, lines)

    kept = ("added to a buffer", "counted in a buffer", "scaled in part", "with the total")
    return [
        recording("record.recorder:Recorder.write", "self.set_value(target, new)", "None", "counting", *kept),
        recording("record.value_table:ValueTable.set", "cell.version += 1", "pass", "viewed", "seen through a view", "doubled under a view"),
        recording("record.value_table:ValueTable.set", "write(Sym(self._graph, self.value(root)), chain, Sym(self._graph, new)).value", "self.value(root)", "counting", *kept),
        recording("record.finish.outputs:add_updates", "if final is not initial:", "if final is not initial and not found:",
                  "counting", *kept),
        recording("record.finish.outputs:add_gradients", "if slot.written and now is not slot.initial:", "if slot.written and now is not slot.initial and not found:",
                  "training", "backward", "cleared"),
        recording("record.finish.outputs:flags", "is not before", "is before", "freezing", "frozen from here"),
        recording("record.finish.outputs:_rebound", "not _stays(draft, a, b)", "_stays(draft, a, b)", "counting", "kept",
                  "counted calls"),
        recording("compiled.replay:Plan._write", "np.copyto(array, outputs[out])", "pass", "branching_state", "counted before",
                  "counted after"),
        recording("compiled.replay:Plan._results", "effect()", "pass", "counting", "counted calls", "kept"),
        recording("record.recorder:Recorder.constant", '"constant", array.copy()', '"constant", np.zeros_like(array)', "constants", "constant"),
        recording("record.inputs:Inputs.bind_host", "float(value)", "float(value) * 1.01", "training", "step", "descent", stages=("recorded", "guards")),
        recording("record.recorder:Recorder.observe", "self.depend([", "(lambda p: None)([", "branching", "condition",
                  room="predicates", stages=("predicates",)),
        recording("record.recording:same_value", "bool(now == seen)", "True", "branching", "condition",
                  room="predicates", stages=("predicates",)),
        recording("eager.rng:Stream.advance", "assign_(self.state, _moved(self.state, count))", "pass",
                  "dropping", "dropout", "random numbers", "normal numbers", room="random counters"),
        recording("eager.rng:Stream.bits", "blocks(math.prod(shape))", "blocks(math.prod(shape)) + (modes.recorder is not None)",
                  "dropping", "dropout", "random numbers", "normal numbers", room="random counters"),
        Fault("random counters", "dropping", Edit("codegen.kernels.operations:_multiply_high", "e.const(wide, bits)", "e.const(wide, bits - 1)"), ("codegen", "kernels"), ("dropout", "random numbers", "normal numbers")),
        recording("record.backward.min_cut:choose_saved", "return [v for v in _values(graph, nodes, wanted) if",
                  "return [v for v in _values(graph, nodes, wanted)[1:] if", "derivatives", "d exp of a product", stages=("recorded", "backward")),
    ]  # fmt: skip


def _guards() -> list[Fault]:
    def guard(
        where: str, program: str, *lines: str, old: str = "", new: str = "", stages: tuple[str, ...] = ("guards",)
    ) -> Fault:
        return Fault("guards", program, Edit(f"record.{where}", old, new), stages, lines)

    return [
        guard("guards.guard:TensorGuard.check", "shapes", "flattened", "by its length", old="self.shape != array.shape", new="False"),
        guard("guards.guard:TensorGuard.check", "modes", "model in a mode", "after the model",
              old="(t._requires_grad or t._grad_fn is not None or (t._linked and t.requires_grad)) is not self.requires_grad",
              new="False"),
        guard("guards.guard:ValueGuard.check", "reading", "argument", "flag",
              old="elif type(leaf) is not snapshot[0] or", new="elif False and"),
        guard("guards.state_guards:_modes", "modes", "model in a mode", "after the model", old="default_dtype(), ", new="None, "),
        guard("guards.state_guards:CapturedTensor.check", "counting", "with the total", "added to a buffer", "kept",
              old="if t._requires_grad is not self.requires_grad and", new="if False and"),
        guard("guards.state_guards:GradGuard.check", "accumulating", "accumulated", "squared again", old="if (tensor_of", new="if False and (tensor_of"),
        guard("guards.state_guards:ModulesGuard.change", "modes", "model in a mode", old="if found is not None:", new="if False:"),
        guard("guards.state_guards:ModulesGuard.check", "modes", "model in a mode", "after the model", old="return found\n", new="return None\n"),
        guard("guards.reads:Read.fits", "reading", "global", "entry", "attribute", "variable",
              old="type(now) is self.kind and (", new="type(now) is self.kind or ("),
        guard("guards.reads:Read.miss", "reading", "entry", "attribute", "global", "variable", old="if found is not None:", new="if False:"),
        guard("guards.guard:SameTensors.check", "aliases", "doubled in place", "raised in place", "product of both", "gathered in total",
              old="None if self._alike(leaves) else", new="None if True else", stages=("guards", "recorded")),
        guard("guards.memory:MemoryGuard.check", "aliases", "doubled in place", "raised in place", "product of both", "gathered in total",
              old="return self._shared(given) if self.writes else None", new="return None"),
        Fault("guards", "modes", Edit("eager.modes:ModuleChanges.changed", "watch.note(module)", "pass"), ("guards",), ("model in a mode",)),
        Fault("guards", "flagged", Edit("record.guards.reads:Read.row", "not self.step.row(rows, owner, now)", "False"), ("native call", "guards"), ("simple flag", "doubled", "tripled")),
    ]  # fmt: skip


def _calls() -> list[Fault]:
    return [
        Fault("result memory", "large_branching", Edit("runtime.result_pool:Spare.take", "getrefcount(array) == 1 + ARGUMENT_REFERENCES", "True"),
              ("native call", "results"), ("large result",)),
        Fault("result memory", "simple", Edit("codegen.calls.call_stub:_CallStub._memory", 'a.need(a.same(a.load("i64", array, REFERENCES), "1", "i64"), other)', "pass"),
              ("native call", "results"), ("simple global",)),
        Fault("dynamic sizes", "dynamic", Edit("record.dynamic_shapes.padding:Padding.masked", "prim.where(mask, found, fill)", "found"),
              ("dynamic sizes",), ("over rows", "against rows")),
        Fault("dynamic sizes", "dynamic", Edit("record.dynamic_shapes.rules:_reduction", "identity(_COMBINED_BY[op.name], x.dtype)", "x.dtype.python(1)"),
              ("dynamic sizes",), ("over rows",)),
        Fault("dynamic sizes", "dynamic", Edit("record.dynamic_shapes.rules:_contract", "x.dtype.python(0)", "x.dtype.python(1)"),
              ("dynamic sizes",), ("against rows",)),
        Fault("cache", "flagged", Edit("runtime.program_cache:_digest", "content(graph).encode()", "__import__('re').sub(r\"b'[^']*'\", '', content(graph)).encode()"),
              ("cache",), ("simple flag", "doubled", "tripled")),
    ]  # fmt: skip


FAULTS: tuple[Fault, ...] = (
    *_rules(), *_layout(), *_derivatives(), *_fusion(), *_memory(), *_schedules(), *_functions(), *_recording(),
    *_guards(), *_calls(),
)  # fmt: skip

__all__ = ["FAULTS", "Constant", "Fault"]
