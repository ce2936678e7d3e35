"""A program as LLVM modules: its kernels, each written once, and the entry that calls them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby

from tracecomp.base import progress
from tracecomp.base.errors import CompileError, Source
from tracecomp.codegen.kernels.address import Indexer, Position
from tracecomp.codegen.kernels.checked import NOT_SHADOWED, tag_of
from tracecomp.codegen.kernels.kernel import STREAMING, KernelCode, emit_kernel
from tracecomp.codegen.kernels.overlap import overlapping
from tracecomp.codegen.kernels.starts import from_starts
from tracecomp.codegen.text.emitter import Emitter, Module, Value
from tracecomp.codegen.text.lines import Lines
from tracecomp.codegen.text.modules import ModuleText, defined_in, joined
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads import pauses
from tracecomp.codegen.threads.entry import HEAD, head
from tracecomp.ir.index import Index, Var
from tracecomp.ir.loop_printer import kernel_key
from tracecomp.ir.loops import LINE, Check, Expr, walk
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, RepeatStep, Slot, Step, WhenStep, WhileStep, call_steps

ALIGNMENT = 64
"""Bytes: scratch memory, like values in the arena, begins at a cache line."""
MODULE_LENGTH = 2**18
"""Characters of kernels after which a module is complete: LLVM compiles them in a quarter of a second."""
MOST_CALLS = 64
"""Calls in one function. LLVM needs time that grows with the square of a straight function: 4,000 calls took 5.6 s
in one function, and 1.4 s in functions of this size (Zen 4)."""


@dataclass(frozen=True, slots=True)
class ProgramCode:
    """Modules, the last with the entry; scratch memory after the arena; labels by step number (1-based).

    ``functions`` are the names of the functions that the steps call, in the same order; ``metadata`` the user's lines.
    """

    modules: tuple[ModuleText, ...]
    shared_bytes: int
    private_bytes: int
    labels: tuple[str, ...]
    parallel: bool
    functions: tuple[str, ...]
    metadata: str = ""

    @property
    def text(self) -> str:
        """Everything as one module."""
        return f"{joined(self.modules)}{self.metadata}"


def slot_places(program: Program) -> dict[tuple[str, int], int]:
    """The index of each input and output slot in the call table."""
    return {(s.space, s.position): i for i, s in enumerate((*program.inputs, *program.outputs))}


def memory_before_scratch(program: Program) -> int:
    """Bytes of the arena and, in checked programs, of its shadow."""
    return _rounded(program.arena_bytes) * (2 if program.checked else 1)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def emit_program(
    program: Program, target: Target, profile: bool = False, complete: Callable[[ModuleText], None] | None = None,
    lines: bool = False,
) -> ProgramCode:  # fmt: skip
    """The modules of ``program``. With ``profile`` the entry adds each step's nanoseconds to the last table entry.

    ``complete`` receives every module but the last as soon as it is written. With ``lines`` instructions have the
    user's lines as debug information.
    """
    return _ProgramEmitter(program, target, profile, complete, Lines(program.sources) if lines else None).emit()


@dataclass(frozen=True, slots=True)
class _Shared:
    """The kernel that a function computes, the first elements of its parameters, and the key of its content."""

    kernel: Kernel
    starts: tuple[int, ...]
    key: str


class _ProgramEmitter:
    def __init__(
        self, program: Program, target: Target, profile: bool, complete: Callable[[ModuleText], None] | None,
        lines: Lines | None,
    ) -> None:  # fmt: skip
        self.program = program
        self.target = target
        self.profile = profile
        self.complete = complete
        self.modules: list[ModuleText] = []
        self.functions: list[str] = []
        self.places = slot_places(program)
        self.lines = lines
        shadow = _rounded(program.arena_bytes) if program.checked else None
        self.module = Module(target, program.fast_math, shadow, lines)
        self.kernels: dict[tuple[str, tuple[str, ...]], tuple[str, KernelCode]] = {}
        self.keys: dict[int, _Shared] = {}
        self.e = Emitter(self.module)
        self.scalars: dict[Var, Value | int] = {}
        self.indexer = Indexer(self.e, self._position, _no_expression)
        self.step = 0
        self.may_fail = False
        self.writes_state = False
        self.pauses = False
        self.called: list[str] = []  # functions of steps that the entry calls

    def emit(self) -> ProgramCode:
        calls = list(call_steps(self.program.steps))
        progress.expect(len(calls))
        # Kernels first: how much scratch memory they want decides what the entry adds to the arena's address.
        chosen = [self._kernel(call) for call in calls]
        self.codes = [(name, code) for name, code, _ in chosen]
        self.starts = [starts for *_, starts in chosen]
        shared = max((code.shared_bytes for _, code in self.codes), default=0)
        private = max((code.private_bytes for _, code in self.codes), default=0)
        self.shared_bytes = shared
        self._prologue()
        self._program_steps()
        ends = ["  ret void", *(["interrupted:", "  ret void"] if self.pauses else [])]
        entry = "\n".join(["entry:", *self.e.allocas, *self.e.blocks[0].lines, *ends])
        parallel = any(code.parallel for _, code in self.codes)
        for name in self.called:  # some are defined in earlier modules
            self.module.knows(f"@{name}")
        self.functions.append(f"{HEAD} {{\n{entry}\n}}")
        modules = (*self.modules, self._module())
        labels = tuple(c.label or c.kernel.name for c in calls)
        functions = tuple(name for name, _ in self.codes)
        metadata = self.lines.metadata() if self.lines else ""
        return ProgramCode(modules, shared, private, labels, parallel, functions, metadata)

    def _module(self) -> ModuleText:
        return ModuleText(self.target, tuple(self.functions), dict(self.module.declarations))

    def _next_module(self) -> None:
        """Begin another module, which can call the functions defined so far."""
        done = self._module()
        self.modules.append(done)
        if self.complete:
            self.complete(done)
        # Helpers that a complete module defines are declared and called from the next one, not written again.
        self.module.elsewhere.update(defined_in((*self.functions, *self.module.declarations.values())))
        self.module.declarations.clear()
        self.functions.clear()

    def _kernel(self, call: CallStep) -> tuple[str, KernelCode, tuple[int, ...]]:
        """The function for a call, and the first elements of its arguments that it takes.

        Calls of equal kernels with equal aliasing share a function.
        """
        # Equal kernels may be called with operands that share memory in one place and
        # not in another: what may move past a store differs.
        groups = overlapping(call)
        # By the object first, as printing a kernel to find its equal costs more than most lookups.
        shared = self.keys.get(id(call.kernel))
        if shared is None:
            shared = self.keys[id(call.kernel)] = self._shared(call.kernel)
        kernel = shared.kernel
        key = (shared.key, tuple(groups[p.name] for p in kernel.params))
        found = self.kernels.get(key)
        if found is None:
            if sum(map(len, self.functions)) >= MODULE_LENGTH:
                self._next_module()
            name = f"k{len(self.kernels)}"
            code = emit_kernel(kernel, name, self.module, groups)
            text = self.lines.finish(code.text, main_source(call, self.program)) if self.lines else code.text
            self.functions.append(text)
            found = self.kernels[key] = (name, code)
        progress.advance(kernel.name)
        return (*found, shared.starts)

    def _shared(self, kernel: Kernel) -> _Shared:
        # Checks compare positions with the whole parameter.
        moved, starts = (kernel, (0,) * len(kernel.params)) if self.program.checked else from_starts(kernel)
        return _Shared(moved, starts, kernel_key(moved))

    # ---- the entry

    def _prologue(self) -> None:
        e = self.e
        # Scratch memory follows the arena: shared by all threads, then one part for each.
        start = memory_before_scratch(self.program)
        arena = Value("%arena", "ptr")
        self.shared = e.gep("i8", arena, e.const("i64", start))
        self.private = e.gep("i8", arena, e.const("i64", start + self.shared_bytes))

    def _program_steps(self) -> None:
        """Emit all steps, and long runs of calls as functions that the entry calls."""
        if sum(1 for _ in call_steps(self.program.steps)) <= MOST_CALLS:
            self._steps(self.program.steps)
            return
        for calls, run in groupby(self.program.steps, lambda step: isinstance(step, CallStep)):
            steps = list(run)
            if not calls or len(steps) < MOST_CALLS // 2:
                self._steps(steps)
                continue
            for start in range(0, len(steps), MOST_CALLS):
                self._call_function(steps[start : start + MOST_CALLS])

    def _call_function(self, steps: Sequence[Step]) -> None:
        """Emit calls as a function, and call it."""
        if sum(map(len, self.functions)) >= MODULE_LENGTH:
            self._next_module()
        outer = self.e, self.indexer, self.shared, self.private
        self.e = Emitter(self.module)
        self.indexer = Indexer(self.e, self._position, _no_expression)
        self._prologue()
        name = f"steps{self.step}"
        self._steps(steps)
        body = "\n".join([*self.e.allocas, *self.e.blocks[0].lines])
        self.functions.append(f"{head(name)} {{\nentry:\n{body}\n  ret void\n}}")
        self.e, self.indexer, self.shared, self.private = outer
        self.called.append(name)
        self.e.line(f"  call void @{name}(ptr %table, ptr %arena, ptr %team, ptr %failed)")

    def _position(self, var: Var) -> Position:
        return self.scalars[var]

    def _steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case RepeatStep():
                    self._repeat(step)
                case WhenStep():
                    self._when(step)
                case WhileStep():
                    self._while(step)
                case CallStep():
                    self._call(step)

    def _repeat(self, step: RepeatStep) -> None:
        e, var = self.e, step.var
        if var.extent <= 1:
            # A loop of one step is that step. One of none still counts the calls in it,
            # as steps are numbered by their place in the program.
            self.scalars[var] = 0
            if var.extent == 1:
                self._steps(step.steps)
            else:
                self.step += sum(1 for _ in call_steps(step.steps))
            return
        self.writes_state |= any(map(_writes_state, call_steps(step.steps)))
        before, head, after = e.label, e.fresh("loop"), e.fresh("after")
        e.push()
        e.label = head
        counter = Value(e.fresh("%i"), "i64", 0, e.depth)
        self.scalars[var] = counter
        self._steps(step.steps)
        self._pause()
        # nuw nsw: counters stay below the extent, so that LLVM may widen address arithmetic.
        e.line(f"  {counter.text}.next = add nuw nsw i64 {counter.text}, 1")
        e.line(f"  {counter.text}.more = icmp ult i64 {counter.text}.next, {var.extent}")
        e.line(f"  br i1 {counter.text}.more, label %{head}, label %{after}")
        latch = e.label
        lines = e.pop()
        e.line(f"  br label %{head}")
        e.line(f"{head}:")
        e.line(f"  {counter.text} = phi i64 [ 0, %{before} ], [ {counter.text}.next, %{latch} ]")
        e.blocks[-1].lines.extend(lines)
        e.start_label(after)

    def _when(self, step: WhenStep) -> None:
        e = self.e
        holds = self._decision(step.condition)
        then, otherwise, after = e.fresh("then"), e.fresh("otherwise"), e.fresh("after")
        e.line(f"  br {holds}, label %{then}, label %{otherwise}")
        for label, steps in ((then, step.then), (otherwise, step.otherwise)):
            self._branch(label, steps, after)
        e.start_label(after)

    def _while(self, step: WhileStep) -> None:
        e = self.e
        self.writes_state |= any(map(_writes_state, call_steps((*step.test, *step.steps))))
        head, body, after = e.fresh("test"), e.fresh("body"), e.fresh("after")
        e.line(f"  br label %{head}")
        # The test is code that runs again for each round, so no instruction moves out.
        e.push(conditional=True)
        e.start_label(head)
        self._pause()
        self._steps(step.test)
        e.line(f"  br {self._decision(step.condition)}, label %{body}, label %{after}")
        self._branch(body, step.steps, head)
        lines = e.pop()
        e.blocks[-1].lines.extend(lines)
        e.start_label(after)

    def _pause(self) -> None:
        """Let Python handle signals now and then, in a loop.

        An interrupt ends the program here, so no step up to the end of the loop may write the caller's state: the call
        changes all of its state or none. ``output_buffers`` ensures this for loops of unknown length.
        """
        e = self.e
        if self.writes_state:
            return
        if not self.pauses:
            self.pauses = True
            e.declare(pauses.PAUSE, pauses.DECLARATION)
            first = 1 if any(code.parallel for _, code in self.codes) else pauses.FIRST
            e.allocas.append(f"  %pause = alloca [{pauses.WORDS} x i64], align 8")
            e.allocas.append(f"  store [{pauses.WORDS} x i64] [i64 {first}, i64 {first}, i64 0, i64 0], ptr %pause")
        left, fewer, due, stops = e.fresh(), e.fresh(), e.fresh(), e.fresh()
        pause, resume = e.fresh("pause"), e.fresh("resume")
        e.line(f"  {left} = load i64, ptr %pause, align 8")
        e.line(f"  {fewer} = sub i64 {left}, 1")
        e.line(f"  store i64 {fewer}, ptr %pause, align 8")
        e.line(f"  {due} = icmp eq i64 {fewer}, 0")
        e.line(f"  br i1 {due}, label %{pause}, label %{resume}")
        e.start_label(pause)
        e.line(f"  {stops} = call i1 @{pauses.PAUSE}(ptr %pause, ptr %failed)")
        e.line(f"  br i1 {stops}, label %interrupted, label %{resume}")
        e.start_label(resume)

    def _branch(self, label: str, steps: Sequence[Step], after: str) -> None:
        e = self.e
        e.push(conditional=True)
        e.start_label(label)
        self._steps(steps)
        e.line(f"  br label %{after}")
        lines = e.pop()
        e.blocks[-1].lines.extend(lines)

    def _decision(self, condition: Ref) -> Value:
        """The bool at ``condition``."""
        e = self.e
        byte = e.effect(f"load i8, {self._slot_address(condition.slot, condition.offset)}, align 1", "i8")
        holds = e.fresh()
        e.line(f"  {holds} = icmp ne {byte}, 0")
        return Value(holds, "i1", 0, e.depth)

    def _call(self, call: CallStep) -> None:
        number = self.step
        self.step += 1
        firsts = [n * p.dtype.itemsize for n, p in zip(self.starts[number], call.kernel.params, strict=True)]
        args = [self._slot_address(r.slot, r.offset + n) for r, n in zip(call.args, firsts, strict=True)]
        tags = [f"i64 {_tag(r.slot)}" for r in call.args] if self.program.checked else []
        rest = ["ptr %team", "ptr %failed", f"i64 {number + 1}", str(self.shared), str(self.private)]
        started = self._clock() if self.profile else None
        # After a kernel that may fail, kernels that write the caller's memory run only if nothing failed: a failing
        # call leaves tensors unchanged. Temporary memory needs no such care.
        after = self._unless_failed() if self.may_fail and _writes_outside(call) else None
        self.e.line(f"  call void {self._callee(number, args)}({', '.join([*map(str, args), *tags, *rest])})")
        if after:
            self.e.line(f"  br label %{after}")
            self.e.start_label(after)
        # From the first kernel with a check.
        checks = self.program.checked or any(isinstance(s, Check) for s in walk(call.kernel.body))
        self.may_fail = self.may_fail or checks
        self.writes_state |= _writes_state(call)
        if started:
            self._add_elapsed(number, started)

    def _callee(self, number: int, args: Sequence[Value]) -> str:
        """Return the function of a step, chosen by the alignment of its non-temporal stores and by whether other
        threads help."""
        e, (name, code) = self.e, self.codes[number]
        for function in (name, f"{name}{STREAMING}"):
            self.module.knows(f"@{function}")
        if not code.streamed:
            return f"@{name}"
        # The or of all addresses is at a line if each address is.
        starts = [e.convert("ptrtoint", args[n], "i64") for n in code.streamed]
        both = reduce(lambda a, b: e.binary("or", a, b), starts)
        whole = e.compare("icmp eq", e.binary("and", both, e.const("i64", LINE - 1)), e.const("i64", 0))
        # Alone: non-temporal stores pay only if no other thread shares the work, so the team's state is read.
        if code.alone:
            whole = e.binary("and", whole, e.compare("icmp eq", Value("%team", "ptr"), Value("null", "ptr")))
        return e.pure(f"select {whole}, ptr @{name}{STREAMING}, ptr @{name}", "ptr", 0, [whole]).text

    def _unless_failed(self) -> str:
        """Start a block that is skipped once an index check failed, so that state is unchanged; return its end
        label."""
        e = self.e
        # Atomic, as workers may write it while the caller looks; monotonic, as workers finish before the kernel
        # returns.
        failed = e.effect("load atomic i64, ptr %failed monotonic, align 8", "i64")
        holds, run, after = e.fresh(), e.fresh("run"), e.fresh("after")
        e.line(f"  {holds} = icmp eq {failed}, 0")
        e.line(f"  br i1 {holds}, label %{run}, label %{after}")
        e.start_label(run)
        return after

    def _slot_address(self, slot: Slot, offset: Index) -> Value:
        e = self.e
        o = self.indexer.offset(offset)
        if slot.space == "arena":
            # Places in the arena are byte offsets from its start.
            o.const += slot.position
            return self.indexer.address(Value("%arena", "ptr"), "i8", o)
        place = self.places.get((slot.space, slot.position))
        if place is None:
            raise CompileError(f"program {self.program.name}: slot {slot.name} is in no call table")
        cell = e.gep("ptr", Value("%table", "ptr"), e.const("i64", place))
        # The table does not change during a call, so an operand's address is loaded once, at the entry's beginning.
        return self.indexer.address(e.place(f"load ptr, {cell}, align 8", "ptr", 0, 0), "i8", o)

    # ---- profiling

    def _clock(self) -> Value:
        """Nanoseconds of the monotonic clock."""
        e = self.e
        e.declare("clock_gettime", "declare i32 @clock_gettime(i32, ptr)")
        if not any("%time" in line for line in e.allocas):
            e.allocas.append("  %time = alloca [2 x i64], align 8")
        e.effect("call i32 @clock_gettime(i32 1, ptr %time)", "i32")
        seconds = e.effect("load i64, ptr %time, align 8", "i64")
        fraction = e.gep("i8", Value("%time", "ptr"), e.const("i64", 8))
        nanoseconds = e.effect(f"load i64, {fraction}, align 8", "i64")
        return e.binary("add", e.binary("mul", seconds, e.const("i64", 10**9)), nanoseconds)

    def _add_elapsed(self, number: int, started: Value) -> None:
        e = self.e
        elapsed = e.binary("sub", self._clock(), started)
        cell = e.gep("ptr", Value("%table", "ptr"), e.const("i64", len(self.program.inputs + self.program.outputs)))
        times = e.effect(f"load ptr, {cell}, align 8", "ptr")
        place = e.gep("i64", times, e.const("i64", number))
        total = e.binary("add", e.effect(f"load i64, {place}, align 8", "i64"), elapsed)
        e.line(f"  store {total}, {place}, align 8")


def _tag(slot: Slot) -> int:
    return tag_of(slot.lifetime) if slot.space == "arena" else NOT_SHADOWED


def main_source(call: CallStep, program: Program) -> Source | None:
    """The line of a kernel's loops: of its contraction, or else of the first of its nodes that has one."""
    nodes = sorted(call.nodes, key=lambda n: n.op.name != "contract")
    return next((program.sources[n] for n in nodes if n in program.sources), None)


def _written(call: CallStep) -> set[str]:
    """The kinds of memory that the kernel writes."""
    pairs = zip(call.kernel.params, call.args, strict=True)
    return {ref.slot.space for param, ref in pairs if param.name in call.kernel.writes}


def _writes_outside(call: CallStep) -> bool:
    """Whether the kernel writes memory that outlives the call."""
    return bool(_written(call) - {"arena"})


def _writes_state(call: CallStep) -> bool:
    """Whether the kernel writes an input in place."""
    return "input" in _written(call)


def _no_expression(expr: Expr) -> Value:
    raise CompileError("a slot's offset depends on memory")
