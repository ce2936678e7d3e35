"""Storing a tile of vectors whose memory runs along the tile: a transpose in registers, then unit-stride stores."""

from __future__ import annotations

from collections.abc import Sequence

from tracecomp.codegen.emitter import Emitter, Value, next_power_of_two
from tracecomp.ir.index import Index, Var

MAX_TILE = 16


def tile_to_transpose(offset: Index, vector: Var | None, tiles: Sequence[Var]) -> Var | None:
    """The tile variable along which memory is contiguous, when the vector variable's stride is not one."""
    if vector is None or vector.extent == 1:
        return None
    stride = offset.coefficient(vector)
    if stride is None or abs(stride) < 2:
        return None
    for tile in tiles:
        if tile != vector and offset.coefficient(tile) == 1 and 2 <= tile.extent <= min(MAX_TILE, abs(stride)):
            return tile
    return None


def transpose(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    """The elements of ``rows`` lane by lane: lane 0 of every row, lane 1 of every row, ..., as vectors of equal width.

    Missing rows up to a power of two are poison.
    """
    width, elem = rows[0].width, rows[0].elem
    count = next_power_of_two(len(rows))
    padded = [*rows, *(Value("poison", elem, width) for _ in range(count - len(rows)))]
    return _interleave(e, padded)


def _interleave(e: Emitter, rows: Sequence[Value]) -> list[Value]:
    if len(rows) == 1:
        return list(rows)
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
    return e.pure(rhs, a.elem, len(order), [v for v in (a, b) if v.text != "poison"])


def pick(e: Emitter, vectors: Sequence[Value], first: int, count: int) -> Value:
    """``count`` consecutive elements, from element ``first``, of the concatenation of equally wide vectors.

    They lie in one vector, or fill several of which the first is meant.
    """
    width = vectors[0].width
    source = vectors[first // width]
    start = first % width
    if start == 0 and count == width:
        return source
    return shuffle(e, source, Value("poison", source.elem, width), [start + k for k in range(count)])
