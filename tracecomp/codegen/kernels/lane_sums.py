"""Sums and products along rows, for any sizes, in the order of ``docs/numerics.md``: in lanes, combined by halving.

Eager mode calls this; programs of known sizes have specialized loops with the same bits. The entry's arrays are the
operand, the results, and three int64: the number of rows, of segments per row, and of elements per segment. Element k
of every segment goes to partial sum k modulo lanes.
"""

from __future__ import annotations

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads.entry import HEAD
from tracecomp.ir.types import DType


def lane_sums_text(dtype: DType, lanes: int, target: Target, product: bool = False) -> str:
    """The module whose entry sums rows of ``dtype`` in so many lanes, or multiplies them."""
    element = {4: "float", 8: "double"}[dtype.itemsize]
    load = f"llvm.masked.load.v{lanes}f{8 * dtype.itemsize}.p0"
    vector = f"<{lanes} x {element}>"
    declared = {load: f"declare {vector} @{load}(ptr, i32, <{lanes} x i1>, {vector})"}
    return str(ModuleText(target, (_entry(element, vector, lanes, dtype.itemsize, load, product),), declared))


def _entry(element: str, vector: str, lanes: int, itemsize: int, load: str, product: bool) -> str:
    """The entry: rows of segments of vectors, three loops, the last vector of a segment masked."""
    a = Assembler()
    combine = "fmul" if product else "fadd"
    start_value = f"<{', '.join([f'{element} 1.0'] * lanes)}>" if product else "zeroinitializer"
    rows, out, count, segments, length = _arguments(a)
    whole, rest = a.let(f"udiv i64 {length}, {lanes}"), a.let(f"urem i64 {length}, {lanes}")
    ragged = a.let(f"icmp ne i64 {rest}, 0")
    mask = _first_lanes(a, rest, lanes)
    a.go("row")
    a.block("row")
    row = a.phi("i64", {"entry": "0", "store": "%row.next"})
    start = a.phi("ptr", {"entry": rows, "store": "%at.after"})
    a.choose(a.let(f"icmp ult i64 {row}, {count}"), "segment", "done")
    a.block("segment")
    segment = a.phi("i64", {"row": "0", "ended": "%segment.next"})
    first = a.phi("ptr", {"row": start, "ended": "%at.after"})
    total = a.phi(vector, {"row": start_value, "ended": "%total.after"})
    a.go("step")
    a.block("step")
    step = a.phi("i64", {"segment": "0", "add": "%step.next"})
    at = a.phi("ptr", {"segment": first, "add": "%at.next"})
    partial = a.phi(vector, {"segment": total, "add": "%partial.next"})
    a.choose(a.let(f"icmp ult i64 {step}, {whole}"), "add", "rest")
    a.block("add")
    value = a.let(f"load {vector}, ptr {at}, align {itemsize}")
    a.let(f"{combine} {vector} {partial}, {value}", "partial.next")
    a.let(f"add i64 {step}, 1", "step.next")
    a.let(f"getelementptr i8, ptr {at}, i64 {lanes * itemsize}", "at.next")
    a.go("step")
    a.block("rest")
    a.choose(ragged, "last", "ended")
    a.block("last")
    value = a.let(f"call {vector} @{load}(ptr {at}, i32 {itemsize}, <{lanes} x i1> {mask}, {vector} {start_value})")
    a.let(f"{combine} {vector} {partial}, {value}", "partial.last")
    a.go("ended")
    a.block("ended")
    a.phi(vector, {"rest": partial, "last": "%partial.last"}, "total.after")
    a.let(f"getelementptr i8, ptr {at}, i64 {a.let(f'mul i64 {rest}, {itemsize}')}", "at.after")
    a.let(f"add i64 {segment}, 1", "segment.next")
    a.choose(a.let(f"icmp ult i64 %segment.next, {segments}"), "segment", "store")
    a.block("store")
    total = _halved(a, element, lanes, combine)
    place = a.at(out, a.let(f"mul i64 {row}, {itemsize}"))
    a.do(f"store {element} {total}, ptr {place}, align 4")
    a.let(f"add i64 {row}, 1", "row.next")
    a.go("row")
    a.block("done")
    a.do("ret void")
    return a.text(HEAD)


def _arguments(a: Assembler) -> list[str]:
    """Load the addresses of operand and results, and the numbers of rows, segments of a row and elements of a
    segment."""
    rows, out, sizes = (a.load("ptr", "%table", 8 * n) for n in range(3))
    return [rows, out, *(a.load("i64", sizes, 8 * n) for n in range(3))]


def _first_lanes(a: Assembler, count: str, lanes: int) -> str:
    """A mask of the first ``count`` lanes: the remainder of a segment after whole vectors."""
    every = ", ".join(f"i64 {n}" for n in range(lanes))
    limit = a.let(f"insertelement <{lanes} x i64> poison, i64 {count}, i64 0")
    limit = a.let(f"shufflevector <{lanes} x i64> {limit}, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer")
    return a.let(f"icmp ult <{lanes} x i64> <{every}>, {limit}")


def _halved(a: Assembler, element: str, lanes: int, combine: str) -> str:
    """The sum of all lanes of ``%total.after``: i with i + lanes/2, and so on."""
    total = "%total.after"
    while lanes > 1:
        half = lanes // 2
        kind, undefined = f"<{lanes} x {element}>", f"<{lanes} x {element}> poison"
        low, high = (
            a.let(
                f"shufflevector {kind} {total}, {undefined}, <{half} x i32> "
                f"<{', '.join(f'i32 {n + offset}' for n in range(half))}>"
            )
            for offset in (0, half)
        )
        total, lanes = a.let(f"{combine} <{half} x {element}> {low}, {high}"), half
    return a.let(f"extractelement <1 x {element}> {total}, i64 0")
