"""Stores: unit stride, scattered, transposed in registers, guarded."""

from __future__ import annotations

from tracecomp.codegen import convert
from tracecomp.codegen.address import store_text, tail_mask
from tracecomp.codegen.elements import Elements, inside
from tracecomp.codegen.emitter import Value, next_power_of_two
from tracecomp.codegen.transpose import pick, tile_to_transpose, transpose
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
        lanes, count = self.lanes_of(vector), next_power_of_two(tile.extent)
        for _ in self.points(tuple(v for v in elements if v != tile)):
            rows = []
            for row in range(tile.extent):
                self.point[tile] = row
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
                    present = min(tile.extent - start, count) + (min(joined, active - lane) - 1) * count
                    mask = tail_mask(e, piece.width, present)
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
