"""One kernel as an LLVM function: every expression for every element of the surrounding tile loops."""

from __future__ import annotations

from dataclasses import dataclass

from tracecomp.codegen import accumulate, convert
from tracecomp.codegen.accumulate import State
from tracecomp.codegen.address import store_text, tail_mask
from tracecomp.codegen.elements import Binding, Elements, inside
from tracecomp.codegen.emitter import Emitter, Module, Value, next_power_of_two
from tracecomp.codegen.transpose import pick, tile_to_transpose, transpose
from tracecomp.errors import CompileError
from tracecomp.ir.index import Computed, Index, Var
from tracecomp.ir.loops import (
    Acc, Accumulate, Buffer, Call, Check, Expr, If, IndexValue, Kernel, Let, Load, Local, Loop, Read, Stmt, Store,
    Update, walk,
)  # fmt: skip

STACK_LOCAL_BYTES = 16384


@dataclass(slots=True)
class KernelCode:
    """A function's text and the scratch memory it wants: bytes shared by all threads, bytes for each."""

    text: str
    shared_bytes: int
    private_bytes: int
    parallel: bool


class KernelEmitter(Elements):
    """Emits one kernel. ``groups`` maps a parameter to its alias group; parameters alone in theirs are noalias."""

    def __init__(
        self, kernel: Kernel, name: str, module: Module, groups: dict[str, str]
    ) -> None:
        bases = {p.name: Value(f"%p{i}", "ptr") for i, p in enumerate(kernel.params)}
        width = module.target.vector_bits // 8 // _lane_bytes(kernel)
        super().__init__(Emitter(module), width, bases, groups)
        self.kernel = kernel
        self.name = name
        self.shared_bytes = 0
        self.private_bytes = 0
        self.at_top = True

    # ---- the function

    def emit(self) -> KernelCode:
        parallel = any(isinstance(s, Loop) and s.kind == "parallel" for s in self.kernel.body)
        if parallel:
            self._top_level()
        else:
            self._on_thread_zero(self.kernel.body)
        counts: dict[str, int] = {}
        for p in self.kernel.params:
            counts[self.groups[p.name]] = counts.get(self.groups[p.name], 0) + 1
        params = [
            f"ptr {'noalias ' if counts[self.groups[p.name]] == 1 else ''}%p{i}"
            for i, p in enumerate(self.kernel.params)
        ]
        signature = ", ".join([*params, "i64 %tid", "i64 %nt", "ptr %sync", "i64 %step", "ptr %shared", "ptr %private"])
        body = "\n".join([*self.e.allocas, *self.e.blocks[0].lines])
        text = f"define internal void @{self.name}({signature}) #0 {{\nentry:\n{body}\n  ret void\n}}\n"
        return KernelCode(text, self.shared_bytes, self.private_bytes, parallel)

    def _top_level(self) -> None:
        """Statements that only read or bind run on every thread, parallel loops are split, the rest is thread 0's."""
        single: list[Stmt] = []
        stored = False
        for stmt in self.kernel.body:
            if isinstance(stmt, Let | Local) and not single:
                self.stmt(stmt)
                continue
            if not _runs_everywhere(stmt):
                single.append(stmt)
                continue
            if single:
                self._meet(stored)
                self._on_thread_zero(tuple(single))
                single, stored = [], True
            self._meet(stored)
            self.stmt(stmt)
            stored = True
        if single:
            self._meet(stored)
            self._on_thread_zero(tuple(single))

    def _meet(self, needed: bool) -> None:
        if needed:
            self.e.line("  call void @tc.barrier(ptr %sync, i64 %nt)")

    def _on_thread_zero(self, body: tuple[Stmt, ...]) -> None:
        first = self.e.compare("icmp eq", Value("%tid", "i64"), self.e.const("i64", 0))
        self._guarded(first, body)

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, stmt: Stmt) -> None:
        self.forget()
        match stmt:
            case Loop():
                self._loop(stmt)
            case Let():
                over = self.ordered(self.over(stmt.value))
                self.bindings[stmt.name] = Binding(over, {p: self.eval(stmt.value) for p in self.points(over)})
            case Store():
                self._store(stmt)
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

    # ---- loops and conditions

    def _loop(self, loop: Loop) -> None:
        var = loop.var
        if var.extent <= 0:
            return
        top, self.at_top = self.at_top, False
        if loop.kind == "tile" or loop.kind == "vector":
            self._spread(loop)
        elif loop.kind == "parallel" and top:
            self._split(loop)
        elif var.extent == 1:
            self.scalars[var] = 0
            self.body(loop.body)
        else:
            self._repeat(loop, self.e.const("i64", 0), self.e.const("i64", var.extent))
        self.at_top = top

    def _spread(self, loop: Loop) -> None:
        """A tile or vector loop: its variable joins those that expressions are evaluated over."""
        if loop.kind == "vector" and self.vector is not None:
            raise CompileError(f"kernel {self.kernel.name}: nested vector loops over {self.vector.name}")
        outer = self.vector
        if loop.kind == "vector":
            self.vector = loop.var
        self.spmd.append(loop.var)
        self.body(loop.body)
        self.spmd.pop()
        self.vector = outer

    def _split(self, loop: Loop) -> None:
        """A parallel loop at top level: this thread's contiguous share."""
        e = self.e
        tid, nt, extent = Value("%tid", "i64"), Value("%nt", "i64"), e.const("i64", loop.var.extent)
        start = e.binary("udiv", e.binary("mul", extent, tid), nt)
        stop = e.binary("udiv", e.binary("mul", extent, e.binary("add", tid, e.const("i64", 1))), nt)
        inside = e.fresh("some")
        done = e.fresh("done")
        some = e.compare("icmp ult", start, stop)
        e.line(f"  br i1 {some.text}, label %{inside}, label %{done}")
        self._open(self._written(loop.body), conditional=True)
        e.start_label(inside)
        self._repeat(loop, start, stop)
        e.line(f"  br label %{done}")
        lines = self._close()
        e.blocks[-1].lines.extend(lines)
        e.start_label(done)

    def _repeat(self, loop: Loop, start: Value, stop: Value) -> None:
        """A loop that runs at least once, tested at its end; accumulators updated inside become phis."""
        e = self.e
        written = self._written(loop.body)
        self.stores.bump(written)
        before, head, after = e.label, e.fresh("loop"), e.fresh("after")
        self._open(written)
        e.label = head
        counter = Value(e.fresh("%i"), "i64", 0, e.depth)
        self.scalars[loop.var] = counter
        phis = self._enter_phis(loop.body)
        self.body(loop.body)
        following = f"{counter.text}.next"
        e.line(f"  {following} = add nuw nsw i64 {counter.text}, 1")
        e.line(f"  {counter.text}.more = icmp ult i64 {following}, {stop.text}")
        e.line(f"  br i1 {counter.text}.more, label %{head}, label %{after}")
        latch = e.label
        lines = self._close()
        e.line(f"  br label %{head}")
        e.line(f"{head}:")
        e.line(f"  {counter.text} = phi i64 [ {start.text}, %{before} ], [ {following}, %{latch} ]")
        for state, key, entry, phi in phis:
            final = state.values[key]
            e.line(f"  {phi.text} = phi {phi.type} [ {entry.text}, %{before} ], [ {final.text}, %{latch} ]")
            if final.depth > e.depth:
                state.values[key] = Value(final.text, final.elem, final.width, e.depth)
        e.blocks[-1].lines.extend(lines)
        e.start_label(after)
        self.stores.bump(written)

    def _enter_phis(self, body: tuple[Stmt, ...]) -> list[tuple[State, accumulate.Key, Value, Value]]:
        phis = []
        for state in self._updated(body):
            for key, entry in state.values.items():
                phi = Value(self.e.fresh("%a"), entry.elem, entry.width, self.e.depth)
                phis.append((state, key, entry, phi))
                state.values[key] = phi
        return phis

    def _updated(self, body: tuple[Stmt, ...]) -> list[State]:
        names = dict.fromkeys(s.name for s in walk(body) if isinstance(s, Update))
        return [self.states[n] for n in names if n in self.states]

    def _open(self, written: frozenset[str], conditional: bool = False) -> None:
        self.e.push(conditional)
        self.stores.open.append(written)

    def _close(self) -> list[str]:
        self.stores.open.pop()
        return self.e.pop()

    def _written(self, body: tuple[Stmt, ...]) -> frozenset[str]:
        return frozenset(self.group(s.buffer) for s in walk(body) if isinstance(s, Store))

    def _if(self, stmt: If) -> None:
        self._guarded(self.eval(stmt.condition), stmt.body)

    def _guarded(self, condition: Value, body: tuple[Stmt, ...]) -> None:
        """Run ``body`` if ``condition``; accumulators updated inside keep their value otherwise."""
        if condition.const is not None:
            if condition.const:
                self.body(body)
            return
        e = self.e
        states = self._updated(body)
        entries = [(s, key, value) for s in states for key, value in s.values.items()]
        then, join, before = e.fresh("then"), e.fresh("join"), e.label
        written = self._written(body)
        self._open(written, conditional=True)
        e.start_label(then)
        self.body(body)
        e.line(f"  br label %{join}")
        last = e.label
        lines = self._close()
        e.line(f"  br i1 {condition.text}, label %{then}, label %{join}")
        e.blocks[-1].lines.extend(lines)
        e.start_label(join)
        for state, key, entry in entries:
            value = state.values[key]
            rhs = f"phi {value.type} [ {entry.text}, %{before} ], [ {value.text}, %{last} ]"
            state.values[key] = e.effect(rhs, value.elem, value.width)
        self.stores.bump(written)

    def _store(self, stmt: Store) -> None:
        over = self.over_index(stmt.offset) | self.over(stmt.value)
        over |= self.over(stmt.where) if stmt.where else frozenset()
        elements = self.ordered(over)
        values = {p: self.eval(stmt.value) for p in self.points(elements)}
        tile = tile_to_transpose(stmt.offset, self.vector, elements)
        if tile is not None and stmt.where is None and inside(stmt.offset, stmt.buffer.size):
            self._store_transposed(stmt, tile, elements, values)
        else:
            for point in self.points(elements):
                self._store_element(stmt, values[point])
        self.stores.bump(frozenset([self.group(stmt.buffer)]))

    def _store_transposed(
        self, stmt: Store, tile: Var, elements: tuple[Var, ...], values: dict[tuple[int, ...], Value]
    ) -> None:
        """Store a tile of vectors whose memory is contiguous along the tile variable."""
        e, vector, dtype = self.e, self.vector, stmt.buffer.dtype
        assert vector is not None
        lanes, count = self.lanes_of(vector), next_power_of_two(tile.extent)
        for _ in self.points(tuple(v for v in elements if v != tile)):
            rows = []
            for self.point[tile] in range(tile.extent):
                value = convert.to_memory(e, values[tuple(self.point[v] for v in elements)], dtype)
                rows.append(e.widen(value, lanes))
            columns = transpose(e, rows)
            first = (self.point[vector] if vector in elements else 0) * lanes
            active = min(lanes, vector.extent - first)
            piece_lanes = lanes // count if stmt.offset.coefficient(vector) == count == tile.extent else 1
            for lane in range(0, active, max(piece_lanes, 1)):
                for start in range(0, count, lanes):
                    at = stmt.offset.substitute({vector: Index((), first + lane), tile: Index((), start)})
                    address = self.indexer.address(
                        self.bases[stmt.buffer.name], convert.memory_elem(dtype), self.indexer.offset(at)
                    )
                    joined = max(piece_lanes, 1)
                    piece = pick(e, columns, lane * count + start, min(count * joined, lanes))
                    mask = tail_mask(e, piece.width, min(tile.extent - start, count) + (min(joined, active - lane) - 1) * count)
                    e.line(store_text(e, piece, address, mask, dtype.itemsize))

    def _store_element(self, stmt: Store, value: Value) -> None:
        e, buffer = self.e, stmt.buffer
        if buffer.size == 0:
            return
        o = self.indexer.offset(stmt.offset)
        mask = self.eval(stmt.where) if stmt.where else None
        if mask is None and not inside(stmt.offset, buffer.size):
            mask = e.compare("icmp ult", self.indexer.join(o), e.const("i64", buffer.size))
        value = convert.to_memory(e, value, buffer.dtype)
        address = self.indexer.address(self.bases[buffer.name], convert.memory_elem(buffer.dtype), o)
        align = buffer.dtype.itemsize
        if o.width:
            full = e.both(e.widen(mask, o.width) if mask else None, self.active())
            e.line(store_text(e, e.widen(value, o.width), address, full, align))
            return
        if not value.width and not (mask and mask.width):
            self._store_scalar(value, address, mask, align)
            return
        assert self.vector is not None
        lanes = self.lanes_of(self.vector)
        for k in range(min(lanes, self.vector.extent - self.point[self.vector] * lanes)):
            condition = e.lane(mask, k) if mask and mask.width else mask
            self._store_scalar(e.lane(value, k) if value.width else value, address, condition, align)

    def _store_scalar(self, value: Value, address: Value, condition: Value | None, align: int) -> None:
        e = self.e
        text = store_text(e, value, address, None, align)
        if condition is None or condition.const:
            e.line(text)
        elif condition.const is None:
            self._branch(condition, [text])

    def _branch(self, condition: Value, lines: list[str]) -> None:
        """Run effects under a condition."""
        e = self.e
        then, join = e.fresh("then"), e.fresh("join")
        e.line(f"  br i1 {condition.text}, label %{then}, label %{join}")
        e.start_label(then)
        e.blocks[-1].lines.extend([*lines, f"  br label %{join}"])
        e.start_label(join)

    def _local(self, buffer: Buffer) -> None:
        e = self.e
        nbytes = max(buffer.size, 1) * buffer.dtype.itemsize
        rounded = -(-nbytes // 64) * 64
        if e.depth == 0:
            self.bases[buffer.name] = e.gep("i8", Value("%shared", "ptr"), e.const("i64", self.shared_bytes))
            self.shared_bytes += rounded
        elif nbytes <= STACK_LOCAL_BYTES:
            base = Value(e.fresh("%local"), "ptr")
            e.allocas.append(f"  {base.text} = alloca [{nbytes} x i8], align 64")
            self.bases[buffer.name] = base
        else:
            self.bases[buffer.name] = e.gep("i8", Value("%private", "ptr"), e.const("i64", self.private_bytes))
            self.private_bytes += rounded

    def _check(self, stmt: Check) -> None:
        e = self.e
        for _ in self.points(self.ordered(self.over(stmt.condition))):
            good = self.eval(stmt.condition)
            if good.width:
                active = self.active()
                bad = e.binary("xor", good, e.all_true(good.width))
                bad = e.binary("and", bad, active) if active else bad
                bits = e.mask_bits(bad)
                failed = e.compare("icmp ne", bits, e.const(bits.elem, 0))
            else:
                failed = e.binary("xor", good, e.const("i1", 1))
            self._branch(failed, ["  store i64 %step, ptr %sync, align 8"])

    # ---- accumulators

    def _accumulate(self, stmt: Accumulate) -> None:
        top, self.at_top = self.at_top, False
        states = {a.name: self._declare(a, stmt) for a in stmt.accs}
        self.states.update(states)
        self._settle_over(stmt, states)
        for state in states.values():
            for point in self.points(state.over):
                init = self._initial(state)
                for part in range(state.parts):
                    state.values[point, part] = init
        self.body(stmt.body)
        for name, state in states.items():
            values = {p: accumulate.total(self.e, state, p) for p in self.points(state.over)}
            self.bindings[name] = Binding(state.over, values)
            del self.states[name]
        self.at_top = top

    def _initial(self, state: State) -> Value:
        init = self.eval(state.acc.init)
        if state.lane_width:
            return self.e.widen(init, state.lane_width)
        return self.e.widen(init, self.lanes_of(self.vector)) if self.vector in state.over and self.vector else init

    def _declare(self, acc: Acc, stmt: Accumulate) -> State:
        surrounding = frozenset(self.spmd)
        if acc.lanes == 1:
            return State(acc, (), surrounding, 0, 1)
        vectorised = any(
            isinstance(s, Loop) and s.kind == "vector" and _updates(s.body, acc.name) for s in walk(stmt.body)
        )
        if not vectorised:
            return State(acc, (), surrounding, 0, acc.lanes)
        lane_width = min(acc.lanes, self.width)
        return State(acc, (), surrounding, lane_width, acc.lanes // lane_width)

    def _settle_over(self, stmt: Accumulate, states: dict[str, State]) -> None:
        """Which of the surrounding elements each accumulator differs over: iterated, as they may read each other."""
        sources = _sources(stmt)
        over: dict[str, frozenset[Var]] = {}
        free = {name: [_free(x) for x in exprs] for name, exprs in sources.items()}
        surrounding = frozenset(self.spmd)
        changed = True
        while changed:
            changed = False
            for name, parts in free.items():
                found: frozenset[Var] = frozenset()
                for variables, reads in parts:
                    found |= variables & surrounding
                    for read in reads:
                        found |= over.get(read, frozenset()) if read in free else frozenset(self._bound_over(read))
                if found != over.get(name, frozenset()):
                    over[name], changed = found, True
        for name, state in states.items():
            state.over = self.ordered(over.get(name, frozenset()))

    def _update(self, stmt: Update) -> None:
        state = self.states[stmt.name]
        over = frozenset(state.over)
        inner = [v for v in self.spmd if v not in state.surrounding]
        elements = self.ordered(over | frozenset(inner))
        vector_inside = self.vector is not None and self.vector in inner
        moving = any(_free(a)[1] & self.states.keys() for a in stmt.args)
        for _ in self.points(elements):
            if moving:
                self.forget()
            args = [self.eval(a) for a in stmt.args]
            where = tuple(self.point[v] for v in state.over)
            if vector_inside and self.vector is not None:
                lanes = self.lanes_of(self.vector)
                chunk = self.point[self.vector]
                active = min(lanes, self.vector.extent - chunk * lanes)
                accumulate.update_lanes(self.e, state, where, args, chunk, lanes, active)
            else:
                part = self.point[inner[-1]] % state.acc.lanes if inner and not state.lane_width else 0
                accumulate.update_part(self.e, state, (where, part), args)


def _sources(stmt: Accumulate) -> dict[str, list[Expr]]:
    """Every name bound in or by ``stmt`` with the expressions its value is made of."""
    result: dict[str, list[Expr]] = {}
    for s in walk((stmt,)):
        if isinstance(s, Let):
            result.setdefault(s.name, []).append(s.value)
        elif isinstance(s, Accumulate):
            for acc in s.accs:
                result.setdefault(acc.name, []).append(acc.init)
        elif isinstance(s, Update):
            result.setdefault(s.name, []).extend(s.args)
    return result


def _free(expr: Expr) -> tuple[frozenset[Var], frozenset[str]]:
    """Loop variables and names that occur in ``expr``."""
    variables: set[Var] = set()
    names: set[str] = set()
    seen: set[int] = set()
    stack: list[Expr | Index] = [expr]
    while stack:
        x = stack.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        match x:
            case Read():
                names.add(x.name)
            case Call():
                stack.extend(x.args)
            case Load():
                stack.append(x.offset)
                if x.where:
                    stack.append(x.where)
            case IndexValue():
                stack.append(x.index)
            case Index():
                for atom, _ in x.terms:
                    if isinstance(atom, Var):
                        variables.add(atom)
                    else:
                        stack.append(atom.expr if isinstance(atom, Computed) else atom.index)
    return frozenset(variables), frozenset(names)


def _updates(body: tuple[Stmt, ...], name: str) -> bool:
    return any(isinstance(s, Update) and s.name == name for s in walk(body))


def _runs_everywhere(stmt: Stmt) -> bool:
    """Whether all threads run a top-level statement: parallel loops share it, the others repeat it."""
    if isinstance(stmt, Loop):
        return stmt.kind == "parallel"
    if isinstance(stmt, Let | Local):
        return True
    return isinstance(stmt, Accumulate) and not any(isinstance(s, Store | Check) for s in walk(stmt.body))


def _lane_bytes(kernel: Kernel) -> int:
    """Element size that decides the number of lanes: the widest float, else the widest type of all."""
    types = [p.dtype for p in kernel.params]
    for s in walk(kernel.body):
        if isinstance(s, Accumulate):
            types += [a.dtype for a in s.accs]
    floats = [max(t.itemsize, 4) for t in types if t.is_floating_point]
    return max(floats or [t.itemsize for t in types], default=4)
