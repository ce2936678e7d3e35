"""Tiles of vectors whose memory runs along the tile: a transpose in registers, with unit-stride stores or loads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tracecomp.codegen.kernels.address import store_text, tail_mask
from tracecomp.codegen.kernels.checked import Region
from tracecomp.codegen.kernels.squares import transposed_square, transposed_within
from tracecomp.codegen.text.emitter import FLOAT_BITS, INT_BITS, Emitter, Value, next_power_of_two
from tracecomp.ir.index import Index, Var

MAX_TILE = 16
"""Most rows of a block that is transposed in registers: 16 vectors of 16 float32 are half of 32 registers."""
FEW_ROWS = 2
"""With so few rows a transpose is as short as a function call."""


MIN_TRANSPOSED_EXTENT = 4
"""Least elements of a tile for which whole vectors are loaded along it: fewer load faster one by one."""


def tile_to_transpose(offset: Index, vector: Var | None, tiles: Sequence[Var]) -> Var | None:
    """The tile variable along which memory is contiguous, when the vector variable's stride is not one."""
    if vector is None or vector.extent == 1:
        return None
    stride = offset.coefficient(vector)
    if stride is None or abs(stride) < 2:
        return None
    for tile in tiles:
        # Rows longer than the stride would overlap the next lane's.
        if tile != vector and offset.coefficient(tile) == 1 and 2 <= tile.extent <= min(MAX_TILE, abs(stride)):
            return tile
    return None


def contiguous_tile(offset: Index, vector: Var, tiles: Sequence[Var]) -> Var | None:
    """The tile variable along which memory is contiguous, if the loaded lanes are strided."""
    found = (v for v in tiles if v != vector and v.extent >= MIN_TRANSPOSED_EXTENT and offset.coefficient(v) == 1)
    return next(found, None)


def columns(e: Emitter, pieces: Sequence[Value], lanes: int) -> list[Value]:
    """Vectors of ``lanes``, one for each element of a piece: lane k is of piece k, and poison if there is none."""
    side, elem = pieces[0].width, pieces[0].elem
    padded = [*pieces, *(Value("poison", elem, side) for _ in range(lanes - len(pieces)))]
    # Arranged so that blocks as wide as a piece are adjacent: each element keeps its position within its piece.
    rows = [_side_by_side(e, padded[n::side]) for n in range(side)]
    return transposed_within(rows, lanes, partial(shuffle, e))


def square(e: Emitter, rows: Sequence[Value], lanes: int, elem: str) -> list[Value]:
    """Vectors of ``lanes`` of ``elem``, one for each element of a row: lane k is of row k, and poison if there is none.

    Rows of 16-bit elements have twice as many elements as there are lanes. They are transposed in pairs, so each
    shuffle moves twice as many of them.
    """
    paired = rows[0].width == 2 * lanes
    if paired:
        rows = [e.pure(f"bitcast {row} to <{lanes} x i32>", "i32", lanes, [row]) for row in rows]
    padded = [*rows, *(Value("poison", rows[0].elem, lanes) for _ in range(lanes - len(rows)))]
    found = transposed_square(padded, (FLOAT_BITS | INT_BITS)[rows[0].elem] // 8, partial(shuffle, e))
    if not paired:
        return found
    halves = (half for x in found for half in (x, e.binary("lshr", x, e.const("i32", 16))))
    words = [e.convert("trunc", half, "i16") for half in halves]
    return [e.convert("bitcast", word, elem) for word in words] if elem != words[0].elem else words


def _side_by_side(e: Emitter, pieces: Sequence[Value]) -> Value:
    while len(pieces) > 1:
        pairs = zip(pieces[0::2], pieces[1::2], strict=True)
        pieces = [shuffle(e, a, b, range(2 * a.width)) for a, b in pairs]
    return pieces[0]


def store_transposed(
    e: Emitter, rows: Sequence[Value], base: Value, stride: int, active: int, align: int, region: Region | None,
    stream: bool,
) -> None:  # fmt: skip
    """Store the first ``active`` lanes of all rows: lane k of row r to element ``k * stride + r`` from ``base`` on.

    A function of the program does it where there are many shuffles, as there are few shapes. With ``stream``, ``base``
    begins a line, and whole vectors of whole lines are stored non-temporally.
    """
    first = rows[0]
    # Each column has to begin at a vector, if the first one does.
    stream = stream and stride % first.width == 0
    if len(rows) <= FEW_ROWS or region:
        _store_pieces(e, rows, base, stride, active, align, region, stream)
        return
    # The name contains the shape, so equal stores call one function.
    name = f"@tc.transpose{'.stream' * stream}.{len(rows)}x{first.width}.{first.elem}.{stride}.{active}"
    if not e.module.knows(name):
        inner = Emitter(e.module)
        params = [Value(f"%r{i}", first.elem, first.width) for i in range(len(rows))]
        _store_pieces(inner, params, Value("%base", "ptr"), stride, active, align, None, stream)
        signature = ", ".join([*map(str, params), "ptr %base"])
        lines = "\n".join(inner.blocks[0].lines)
        e.declare(name, f"define void {name}({signature}) #0 {{\nentry:\n{lines}\n  ret void\n}}\n")
    e.line(f"  call void {name}({', '.join(map(str, [*rows, base]))})")


def _store_pieces(
    e: Emitter, rows: Sequence[Value], base: Value, stride: int, active: int, align: int, region: Region | None,
    stream: bool,
) -> None:  # fmt: skip
    """Emit the stores: of one lane each, or of as many lanes as fill a vector if memory is contiguous."""
    lanes, extent = rows[0].width, len(rows)
    columns, count = transpose(e, rows), next_power_of_two(extent)
    # If memory is contiguous, several columns are stored as one vector.
    joined = max(lanes // count, 1) if stride == count == extent else 1
    for lane in range(0, active, joined):
        for start in range(0, extent, lanes):
            offset = e.const("i64", lane * stride + start)
            address = e.gep(rows[0].elem, base, offset)
            piece = pick(e, columns, lane * count + start, min(count * joined, lanes))
            # A remainder has fewer lanes than a vector.
            present = min(extent - start, count) + (min(joined, active - lane) - 1) * count
            mask = tail_mask(e, piece.width, present)
            whole = mask is None and piece.width == lanes
            e.line(store_text(e, piece, address, mask, align, region, stream and whole))


def transpose(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    """The elements of ``rows`` lane by lane: lane 0 of every row, lane 1 of every row, ..., as vectors of equal width.

    Missing rows up to a power of two are poison.
    """
    width, elem = rows[0].width, rows[0].elem
    count = next_power_of_two(len(rows))
    padded = [*rows, *(Value("poison", elem, width) for _ in range(count - len(rows)))]
    if count == width:
        return transposed_square(padded, (FLOAT_BITS | INT_BITS)[elem] // 8 or 1, partial(shuffle, e))
    return _interleave(e, padded)


def _interleave(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    if len(rows) == 1:
        return list(rows)
    # Even and odd rows first, then zipped: log2 of the rows many steps, each one a shuffle of two vectors.
    even, odd = _interleave(e, rows[0::2]), _interleave(e, rows[1::2])
    return [half for a, b in zip(even, odd, strict=True) for half in (_zip(e, a, b, 0), _zip(e, a, b, a.width // 2))]


def _zip(e: Emitter, a: Value, b: Value, start: int) -> Value:
    """Alternating elements of two vectors, from ``start`` on."""
    width = a.width
    order = [i for k in range(width // 2) for i in (start + k, width + start + k)]
    return shuffle(e, a, b, order)


def shuffle(e: Emitter, a: Value, b: Value, order: Sequence[int]) -> Value:
    """Elements picked from ``a`` followed by ``b``."""
    mask = ", ".join(f"i32 {i}" for i in order)
    rhs = f"shufflevector {a}, {b}, <{len(order)} x i32> <{mask}>"
    # Poison exists everywhere and must not keep the shuffle inside.
    return e.pure(rhs, a.elem, len(order), [v for v in (a, b) if v.text != "poison"])


def pick(e: Emitter, vectors: Sequence[Value], first: int, count: int) -> Value:
    """Return ``count`` consecutive elements, from element ``first``, of the concatenation of equally wide vectors.

    They are within one vector, or fill several; then the first is returned.
    """
    width = vectors[0].width
    source = vectors[first // width]
    start = first % width
    if start == 0 and count == width:
        return source
    return shuffle(e, source, Value("poison", source.elem, width), [start + k for k in range(count)])
