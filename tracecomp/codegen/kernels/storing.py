"""Stores: unit stride, scattered, transposed in registers, guarded, or one element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tracecomp.codegen.kernels import convert
from tracecomp.codegen.kernels.address import Offset, store_text
from tracecomp.codegen.kernels.elements import Binding, Elements, Point, inside
from tracecomp.codegen.kernels.rolling import is_long, rolled
from tracecomp.codegen.kernels.transpose import store_transposed, tile_to_transpose
from tracecomp.codegen.text.emitter import Value
from tracecomp.ir.index import Index, Var
from tracecomp.ir.loops import LINE, Buffer, Let, Load, Read, Store, expressions

AT_ONCE = 8
"""Most elements whose values all fit the registers: more are computed and stored one after the other."""


class Storing(Elements):
    """Elements that can be written to memory."""

    def store(self, stmt: Store) -> None:
        # All values before any store: a store may change memory that another element's value is read from.
        elements = self._stored_over(stmt)
        values = {p: self.eval(stmt.value) for p in self.points(elements)}
        tile = self._transposed(stmt, elements)
        if tile is not None:
            self._store_transposed(stmt, tile, elements, values)
        else:
            for point in self.points(elements):
                self._store_element(stmt, values[point])
        # From here on loads of the group are new ones.
        self.stores.bump(frozenset([self.group(stmt.buffer)]))

    def _stored_over(self, stmt: Store) -> tuple[Var, ...]:
        over = self.over_index(stmt.offset) | self.over(stmt.value)
        return self.ordered(over | (self.over(stmt.where) if stmt.where else frozenset()))

    def _transposed(self, stmt: Store, elements: tuple[Var, ...]) -> Var | None:
        """The tile variable along which memory is contiguous, where a tile of vectors is stored transposed."""
        # Contiguous along the tile and not along the lanes: blocks are transposed in registers.
        tile = tile_to_transpose(stmt.offset, self.vector, elements)
        return tile if stmt.where is None and inside(stmt.offset, stmt.buffer.size) else None

    # ---- element by element

    def store_by_element(self, run: Sequence[Let | Store], is_last: bool) -> bool:
        """Emit all statements for one element, then for the next, so that registers suffice; False if not done.

        This reorders statements, which is legal if no element reads another's stores. Long statements become a loop,
        if they are the last ones that may read their names.
        """
        # Without stores no registers are freed.
        if not any(isinstance(stmt, Store) for stmt in run):
            return False
        own = []
        for stmt in run:
            if isinstance(stmt, Let):
                own.append(self.ordered(self.over(stmt.value)))
                self.bindings[stmt.name] = Binding(own[-1], {})
            else:
                own.append(self._stored_over(stmt))
        over = self.ordered(frozenset().union(*own))
        # Few elements fit the registers anyway.
        if prod(map(self.chunks, over)) <= AT_ONCE or not self._apart(run, own, over):
            return False
        if is_last and is_long(run, prod(map(self.chunks, over))) and self._roll(run, over):
            return True
        done: list[set[Point]] = [set() for _ in run]
        for _ in self.points(over):
            for stmt, variables, known in zip(run, own, done, strict=True):
                place = tuple(self.point[v] for v in variables)
                # A value that does not change with all variables is computed once.
                if place not in known:
                    known.add(place)
                    self._of_element(stmt, place)
        self.forget()
        return True

    def _roll(self, run: Sequence[Let | Store], over: tuple[Var, ...]) -> bool:
        """Emit the statements as a loop over the longest tile variable; False if not done."""
        row = max((v for v in over if v != self.vector), key=lambda v: v.extent, default=None)
        if row is None or row.extent == 1:
            return False
        inner = {stmt.name for stmt in run if isinstance(stmt, Let)}
        names = {x.name for x in expressions(run) if isinstance(x, Read)} - inner
        bound = {name: vars for name in sorted(names) if row in (vars := self._bound_over(name))}
        body = rolled(
            run, row, bound, lambda v: self.chunks(v) * (self.lanes_of(v) if v == self.vector else 1), self.e.fresh
        )
        if body is not None:
            self.body(tuple(body))
        return body is not None

    def _apart(self, run: Sequence[Let | Store], own: Sequence[tuple[Var, ...]], over: tuple[Var, ...]) -> bool:
        """Whether no element reads or writes another's stores, and none is stored together with others."""
        loads = [(x.buffer, x.offset) for x in expressions(run) if isinstance(x, Load)]
        accesses = [*loads, *((stmt.buffer, stmt.offset) for stmt in run if isinstance(stmt, Store))]
        for stmt, elements in zip(run, own, strict=True):
            if isinstance(stmt, Store):
                # A transposed tile is stored together.
                if self._transposed(stmt, elements) is not None:
                    return False
                group = self.group(stmt.buffer)
                # Memory that another element could access must not be stored earlier: only accesses at the same
                # position are allowed in the group.
                if any(a != (stmt.buffer, stmt.offset) for a in accesses if self.group(a[0]) == group):
                    return False
                # A store that several elements share would be seen by loads of the later ones.
                if elements != over and any(self.group(buffer) == group for buffer, _ in loads):
                    return False
        return True

    def _of_element(self, stmt: Let | Store, place: Point) -> None:
        value = self.eval(stmt.value)
        if isinstance(stmt, Let):
            self.bindings[stmt.name].values[place] = value
        else:
            self._store_element(stmt, value)
            self.stores.bump(frozenset([self.group(stmt.buffer)]))
        # This element's next statement may read the stored memory.
        self._memo.clear()

    def _store_transposed(
        self, stmt: Store, tile: Var, elements: tuple[Var, ...], values: dict[tuple[int, ...], Value]
    ) -> None:
        """Store a tile of vectors whose memory is contiguous along the tile variable."""
        e, vector, dtype = self.e, self.vector, stmt.buffer.dtype
        assert vector is not None
        lanes = self.lanes_of(vector)
        for _ in self.points(tuple(v for v in elements if v != tile)):
            rows = []
            for row in range(tile.extent):
                self.point[tile] = row
                value = convert.to_memory(e, values[tuple(self.point[v] for v in elements)], dtype)
                rows.append(e.widen(value, lanes))
            # A constant vector has no element.
            lane = (self.point[vector] if vector in elements else 0) * lanes
            at = stmt.offset.substitute({vector: Index((), lane), tile: Index()})
            elem = convert.memory_elem(dtype)
            first = self.indexer.offset(at)
            base = self.indexer.address(self.bases[stmt.buffer.name], elem, first)
            stride = stmt.offset.coefficient(vector)
            assert stride is not None
            stream = self._streams(stmt, first, lanes)
            active, region = min(lanes, vector.extent - lane), self.region(stmt.buffer)
            store_transposed(e, rows, base, stride, active, dtype.itemsize, region, stream)

    def _streams(self, stmt: Store, first: Offset, lanes: int) -> bool:
        """Whether a vector stored from ``first`` on may pass the caches by."""
        return self.streaming and stmt.stream != "" and first.multiple_of(LINE // stmt.buffer.dtype.itemsize, lanes)

    def _store_element(self, stmt: Store, value: Value) -> None:
        e, buffer = self.e, stmt.buffer
        if buffer.size == 0:
            return
        o = self.indexer.offset(stmt.offset)
        mask = self.eval(stmt.where) if stmt.where else None
        # A position that is data is checked; if the check fails nothing is stored outside the buffer.
        if mask is None and not inside(stmt.offset, buffer.size):
            mask = e.compare("icmp ult", self.indexer.join(o), e.const("i64", buffer.size))
        value = convert.to_memory(e, value, buffer.dtype)
        address = self.indexer.address(self.bases[buffer.name], convert.memory_elem(buffer.dtype), o)
        align = buffer.dtype.itemsize
        if o.width:
            full = e.both(e.widen(mask, o.width) if mask else None, self.active())
            # Non-temporal only if whole: a masked non-temporal store is slow.
            stream = full is None and o.stride == 1 and self._streams(stmt, o, o.width)
            e.line(store_text(e, e.widen(value, o.width), address, full, align, self.region(buffer), stream))
            return
        if not value.width and not (mask and mask.width):
            self._store_scalar(buffer, value, address, mask)
            return
        assert self.vector is not None
        lanes = self.lanes_of(self.vector)
        # All lanes store to one address, or one by one: in their order, so that the last one remains.
        for k in range(min(lanes, self.vector.extent - self.point[self.vector] * lanes)):
            condition = e.lane(mask, k) if mask and mask.width else mask
            self._store_scalar(buffer, e.lane(value, k) if value.width else value, address, condition)

    def _store_scalar(self, buffer: Buffer, value: Value, address: Value, condition: Value | None) -> None:
        e = self.e
        text = store_text(e, value, address, None, buffer.dtype.itemsize, self.region(buffer))
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
