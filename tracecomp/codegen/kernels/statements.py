"""Statements of a kernel as LLVM text: loops, conditions, scratch memory."""

from __future__ import annotations

from itertools import groupby

from tracecomp.base.errors import CompileError, failure_word
from tracecomp.codegen.kernels import convert
from tracecomp.codegen.kernels.accumulate import Key, State
from tracecomp.codegen.kernels.elements import Binding
from tracecomp.codegen.kernels.reducing import Reducing
from tracecomp.codegen.kernels.storing import Storing
from tracecomp.codegen.text.emitter import Emitter, Value
from tracecomp.ir.loops import (
    Accumulate,
    Buffer,
    Check,
    Expr,
    If,
    Let,
    Load,
    Local,
    Loop,
    Prefetch,
    Read,
    Stmt,
    Store,
    Update,
    expressions,
    walk,
)

STACK_LOCAL_BYTES = 16384
"""Most bytes of a buffer on the stack: workers have small stacks, which may hold several buffers."""
_STORE_FENCE = "@llvm.x86.sse.sfence"


class Statements(Storing, Reducing):
    """Emit statements into one function; count their scratch memory, shared by all threads and per thread.

    The text may use the function's ``%failed`` and ``%step`` (the address and value that a failing check writes),
    ``%shared`` and ``%private``.
    """

    def __init__(
        self, e: Emitter, width: int, bases: dict[str, Value], groups: dict[str, str], streaming: bool = False
    ) -> None:
        super().__init__(e, width, bases, groups, streaming)
        self.shared_bytes = 0
        self.private_bytes = 0

    def body(self, body: tuple[Stmt, ...]) -> None:
        deferred = self._deferred(body)
        # Updates that are still to come: a second update of the same accumulators begins another group of terms.
        following = [s.name for s in body if isinstance(s, Update)]
        updated: set[str] = set()
        for simple, group in groupby(body, lambda s: isinstance(s, Let | Store)):
            run = list(group)
            # An epilogue of many values runs element by element; see ``store_by_element``.
            if simple and self.store_by_element([s for s in run if isinstance(s, Let | Store)], run[-1] is body[-1]):
                continue
            for stmt in run:
                if isinstance(stmt, Update):
                    updated.add(following.pop(0))
                # Between groups of terms loads are kept separate, see ``_separate``.
                elif following and following[0] in updated:
                    self._separate()
                    updated.clear()
                if isinstance(stmt, Let) and stmt.name in deferred:
                    self.bindings[stmt.name] = Binding(self.ordered(self.over(stmt.value)), {}, stmt.value)
                else:
                    self.stmt(stmt)

    def _deferred(self, body: tuple[Stmt, ...]) -> frozenset[str]:
        """Names whose values come from transposed blocks: computed when a sum reads them, a block at a time, so that
        registers suffice.

        Only in bodies without stores: a store could change later reads.
        """
        found: set[str] = set()
        if not all(isinstance(s, Let | Update) for s in body):
            return frozenset()
        for stmt in body:
            reads = expressions((stmt,)) if isinstance(stmt, Let) else ()
            transposed = (self.turning(x) is not None if isinstance(x, Load) else _names(x, found) for x in reads)
            if isinstance(stmt, Let) and any(transposed):
                found.add(stmt.name)
        return frozenset(found)

    def _separate(self) -> None:
        """Keep the loads of one update from staying in registers for the next update of the same accumulators."""
        # A fence for this thread alone is not an instruction, but LLVM may not move loads over it: without it all
        # terms' loads would come first and be spilled.
        self.e.line('  fence syncscope("singlethread") seq_cst')
        self.stores.bump(frozenset(self.stores.version) | frozenset(self.groups.values()))

    def stmt(self, stmt: Stmt) -> None:
        # Memory may have changed since the last statement.
        self.forget()
        self.e.origin = stmt.origin if isinstance(stmt, Store | Update) else None
        match stmt:
            case Loop():
                self._loop(stmt)
            case Let():
                over = self.ordered(self.over(stmt.value))
                self.bindings[stmt.name] = Binding(over, {p: self.eval(stmt.value) for p in self.points(over)})
            case Store():
                self.store(stmt)
            case Accumulate():
                self._accumulate(stmt)
            case Update():
                self._update(stmt)
            case Local():
                self._local(stmt.buffer)
            case If():
                self._if(stmt)
            case Check():
                self._check(stmt)
            case Prefetch():
                self._prefetch(stmt)

    # ---- loops and conditions

    def _loop(self, loop: Loop) -> None:
        var = loop.var
        if var.extent <= 0:
            return
        # Neither kind is a loop in the code: all elements of the body are evaluated at once.
        if loop.kind == "tile" or loop.kind == "vector":
            self._spread(loop)
        elif var.extent == 1:
            self.scalars[var] = 0
            self.body(loop.body)
        else:
            self.repeat(loop, self.e.const("i64", 0), self.e.const("i64", var.extent))

    def _spread(self, loop: Loop) -> None:
        """A tile or vector loop: its variable joins those that expressions are evaluated over."""
        # One vector variable: a value has one axis of lanes.
        if loop.kind == "vector" and self.vector is not None:
            raise CompileError(f"nested vector loops over {self.vector.name}")
        outer = self.vector
        if loop.kind == "vector":
            self.vector = loop.var
        self.spmd.append(loop.var)
        self.body(loop.body)
        self.spmd.pop()
        self.vector = outer

    def repeat(self, loop: Loop, start: Value, stop: Value) -> None:
        """A loop that runs at least once, tested at its end; accumulators updated inside become phis."""
        e = self.e
        written = self.written(loop.body)
        # Before the loop as well: a load in it must not reuse an earlier value that the loop itself changes.
        self.stores.bump(written)
        before, head, after = e.label, e.fresh("loop"), e.fresh("after")
        self._open(written)
        e.label = head
        counter = Value(e.fresh("%i"), "i64", 0, e.depth)
        self.scalars[loop.var] = counter
        # Accumulators updated inside become phis of the loop's head.
        phis = self._enter_phis(loop.body)
        self.body(loop.body)
        following = f"{counter.text}.next"
        e.line(f"  {following} = add nuw nsw i64 {counter.text}, 1")
        e.line(f"  {counter.text}.more = icmp ult i64 {following}, {stop.text}")
        e.line(f"  br i1 {counter.text}.more, label %{head}, label %{after}")
        # The body may contain further blocks.
        latch = e.label
        lines = self._close()
        e.line(f"  br label %{head}")
        e.line(f"{head}:")
        e.line(f"  {counter.text} = phi i64 [ {start.text}, %{before} ], [ {following}, %{latch} ]")
        for state, key, entry, phi in phis:
            final = state.values[key]
            e.line(f"  {phi.text} = phi {phi.type} [ {entry.text}, %{before} ], [ {final.text}, %{latch} ]")
            # Values that leave the loop count as values of the enclosing block.
            if final.depth > e.depth:
                state.values[key] = Value(final.text, final.elem, final.width, e.depth)
        e.blocks[-1].lines.extend(lines)
        e.start_label(after)
        self.stores.bump(written)

    def _enter_phis(self, body: tuple[Stmt, ...]) -> list[tuple[State, Key, Value, Value]]:
        phis = []
        for state in self._updated(body):
            for key, entry in state.values.items():
                phi = Value(self.e.fresh("%a"), entry.elem, entry.width, self.e.depth)
                phis.append((state, key, entry, phi))
                state.values[key] = phi
        return phis

    def _updated(self, body: tuple[Stmt, ...]) -> list[State]:
        # Accumulators declared inside the body are not known here yet, and need no phi.
        names = dict.fromkeys(s.name for s in walk(body) if isinstance(s, Update))
        return [self.states[n] for n in names if n in self.states]

    def _open(self, written: frozenset[str], conditional: bool = False) -> None:
        self.e.push(conditional)
        self.stores.open.append(written)

    def _close(self) -> list[str]:
        self.stores.open.pop()
        return self.e.pop()

    def written(self, body: tuple[Stmt, ...]) -> frozenset[str]:
        return frozenset(self.group(s.buffer) for s in walk(body) if isinstance(s, Store))

    def _if(self, stmt: If) -> None:
        self._guarded(self.eval(stmt.condition), stmt.body)

    def _guarded(self, condition: Value, body: tuple[Stmt, ...]) -> None:
        """Run ``body`` if ``condition``; accumulators updated inside keep their value otherwise."""
        # Peeling leaves conditions that are constant.
        if condition.const is not None:
            if condition.const:
                self.body(body)
            return
        e = self.e
        states = self._updated(body)
        entries = [(s, key, value) for s in states for key, value in s.values.items()]
        then, join, before = e.fresh("then"), e.fresh("join"), e.label
        written = self.written(body)
        self._open(written, conditional=True)
        e.start_label(then)
        self.body(body)
        e.line(f"  br label %{join}")
        last = e.label
        lines = self._close()
        e.line(f"  br i1 {condition.text}, label %{then}, label %{join}")
        e.blocks[-1].lines.extend(lines)
        e.start_label(join)
        # Unchanged where the condition is false.
        for state, key, entry in entries:
            value = state.values[key]
            rhs = f"phi {value.type} [ {entry.text}, %{before} ], [ {value.text}, %{last} ]"
            state.values[key] = e.effect(rhs, value.elem, value.width)
        self.stores.bump(written)

    def _local(self, buffer: Buffer) -> None:
        """Scratch memory; in checked programs full of NaN, or -1, until something is stored."""
        e = self.e
        nbytes = max(buffer.size, 1) * buffer.dtype.itemsize
        # Whole cache lines, so that no two buffers share one.
        rounded = -(-nbytes // 64) * 64
        # At the top of the kernel all threads share it; inside a loop each iteration has a separate one.
        if e.depth == 0:
            self.bases[buffer.name] = e.gep("i8", Value("%shared", "ptr"), e.const("i64", self.shared_bytes))
            self.shared_bytes += rounded
        # Small ones on the stack of the thread; larger ones would overflow a worker's.
        elif nbytes <= STACK_LOCAL_BYTES:
            base = Value(e.fresh("%local"), "ptr")
            e.allocas.append(f"  {base.text} = alloca [{nbytes} x i8], align 64")
            self.bases[buffer.name] = base
        else:
            self.bases[buffer.name] = e.gep("i8", Value("%private", "ptr"), e.const("i64", self.private_bytes))
            self.private_bytes += rounded
        if e.module.shadow is not None:
            e.declare("@llvm.memset.p0.i64", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)")
            e.line(f"  call void @llvm.memset.p0.i64({self.bases[buffer.name]}, i8 -1, i64 {nbytes}, i1 false)")

    def _prefetch(self, stmt: Prefetch) -> None:
        e, name = self.e, "@llvm.prefetch.p0"
        e.declare(name, f"declare void {name}(ptr, i32 immarg, i32 immarg, i32 immarg)")
        elem, base = convert.memory_elem(stmt.buffer.dtype), self.bases[stmt.buffer.name]
        address = self.indexer.address(base, elem, self.indexer.offset(stmt.offset))
        # For reading, into the second cache and beyond: a prefetched line is used some hundred cycles later.
        e.line(f"  call void {name}({address}, i32 0, i32 2, i32 1)")

    def finish_streams(self) -> None:
        """Make non-temporal stores visible before this thread synchronizes with others."""
        if self.streaming:
            self.e.declare(_STORE_FENCE, f"declare void {_STORE_FENCE}()")
            self.e.line(f"  call void {_STORE_FENCE}()")

    def _failure(self, stmt: Check) -> Value:
        """The word that is reported when the check fails."""
        e = self.e
        word = e.binary("add", Value("%step", "i64"), e.const("i64", failure_word(stmt.failure)))
        if stmt.detail is None:
            return word
        # The detail shares the word: step and kind of failure are below bit 40.
        return e.binary("add", word, e.binary("shl", self.eval(stmt.detail), e.const("i64", 40)))

    def _check(self, stmt: Check) -> None:
        e = self.e
        for _ in self.points(self.ordered(self.over(stmt.condition))):
            word = self._failure(stmt)
            good = self.eval(stmt.condition)
            if good.width:
                active = self.active()
                bad = e.binary("xor", good, e.all_true(good.width))
                # Lanes that do not exist cannot fail.
                bad = e.binary("and", bad, active) if active else bad
                bits = e.mask_bits(bad)
                failed = e.compare("icmp ne", bits, e.const(bits.elem, 0))
            else:
                failed = e.binary("xor", good, e.const("i1", 1))
            # A plain store: the last failure is reported, and any one is valid.
            self._branch(failed, [f"  store {word}, ptr %failed, align 8"])


def _names(expr: Expr, names: set[str]) -> bool:
    return isinstance(expr, Read) and expr.name in names
