"""Stores: unit stride, scattered, transposed in registers, guarded."""

from __future__ import annotations

from tracecomp.codegen import convert
from tracecomp.codegen.address import store_text
from tracecomp.codegen.elements import Elements, inside
from tracecomp.codegen.emitter import Value
from tracecomp.codegen.transpose import store_transposed, tile_to_transpose
from tracecomp.ir.index import Index, Var
from tracecomp.ir.loops import Store


class Storing(Elements):
    """Elements that can be written to memory."""

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
        lanes = self.lanes_of(vector)
        for _ in self.points(tuple(v for v in elements if v != tile)):
            rows = []
            for row in range(tile.extent):
                self.point[tile] = row
                value = convert.to_memory(e, values[tuple(self.point[v] for v in elements)], dtype)
                rows.append(e.widen(value, lanes))
            lane = (self.point[vector] if vector in elements else 0) * lanes
            at = stmt.offset.substitute({vector: Index((), lane), tile: Index()})
            elem = convert.memory_elem(dtype)
            base = self.indexer.address(self.bases[stmt.buffer.name], elem, self.indexer.offset(at))
            stride = stmt.offset.coefficient(vector)
            assert stride is not None
            store_transposed(e, rows, base, stride, min(lanes, vector.extent - lane), dtype.itemsize)

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
