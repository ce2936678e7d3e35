"""Random bits for any number of elements, for eager mode: Philox 4x32-10, as in ``ir/philox.py``.

The entry's arrays are the state (seed and offset), the results as int32, and their number as int64. Programs of known
sizes have specialized loops with the same bits.
"""

from __future__ import annotations

from tracecomp.codegen.text.assembler import Assembler
from tracecomp.codegen.text.modules import ModuleText
from tracecomp.codegen.text.target import Target
from tracecomp.codegen.threads.entry import HEAD
from tracecomp.ir.philox import MULTIPLIERS, ROUNDS, WEYL


def random_bits_text(target: Target) -> str:
    """The module."""
    lanes = target.vector_bits // 32
    store = f"llvm.masked.store.v{lanes}i32.p0"
    declared = {store: f"declare void @{store}(<{lanes} x i32>, ptr, i32, <{lanes} x i1>)"}
    return str(ModuleText(target, (_entry(lanes, store),), declared))


def _entry(lanes: int, store: str) -> str:
    """Blocks of counters: word ``w`` of block ``b`` is element ``b`` of the ``w``-th quarter."""
    a = Assembler()
    state, out = a.load("ptr", "%table"), a.load("ptr", "%table", 8)
    count = a.load("i64", a.load("ptr", "%table", 16))
    seed, offset = a.load("i64", state), a.load("i64", state, 8)
    keys = [a.let(f"trunc i64 {k} to i32") for k in (seed, a.let(f"lshr i64 {seed}, 32"))]
    each = a.let(f"lshr i64 {a.let(f'add i64 {count}, 3')}, 2")
    starts = [a.let(f"mul i64 {each}, {word}") for word in range(4)]
    left = [a.let(f"sub i64 {count}, {start}") for start in starts]
    ends = [a.let(f"select i1 {a.let(f'icmp slt i64 {n}, {each}')}, i64 {n}, i64 {each}") for n in left]
    places = f"<{', '.join(f'i64 {n}' for n in range(lanes))}>"
    with a.count("0", each, lanes) as block:
        number = a.let(f"add <{lanes} x i64> {_spread(a, block, 'i64', lanes)}, {places}")
        counter = a.let(f"add <{lanes} x i64> {_spread(a, offset, 'i64', lanes)}, {number}")
        for word, start, end in zip(_rounds(a, counter, keys, lanes), starts, ends, strict=True):
            mask = a.let(f"icmp slt <{lanes} x i64> {number}, {_spread(a, end, 'i64', lanes)}")
            place = a.at(out, a.let(f"shl i64 {a.let(f'add i64 {start}, {block}')}, 2"))
            a.run(f"@{store}", f"<{lanes} x i32> {word}", f"ptr {place}", "i32 4", f"<{lanes} x i1> {mask}")
    a.do("ret void")
    return a.text(HEAD)


def _spread(a: Assembler, value: str, kind: str, lanes: int) -> str:
    one = a.let(f"insertelement <{lanes} x {kind}> poison, {kind} {value}, i64 0")
    return a.let(f"shufflevector <{lanes} x {kind}> {one}, <{lanes} x {kind}> poison, <{lanes} x i32> zeroinitializer")


def _rounds(a: Assembler, counter: str, keys: list[str], lanes: int) -> list[str]:
    """The four words of each of ``lanes`` counters."""
    short, wide = f"<{lanes} x i32>", f"<{lanes} x i64>"
    halves = f"<{', '.join(['i64 32'] * lanes)}>"

    def high(value: str) -> str:
        return low(a.let(f"lshr {wide} {value}, {halves}"))

    def low(value: str) -> str:
        return a.let(f"trunc {wide} {value} to {short}")

    def product(word: str, factor: int) -> str:
        factors = f"<{', '.join([f'i64 {factor}'] * lanes)}>"
        return a.let(f"mul {wide} {a.let(f'zext {short} {word} to {wide}')}, {factors}")

    def mixed(*values: str) -> str:
        found = values[0]
        for value in values[1:]:
            found = a.let(f"xor {short} {found}, {value}")
        return found

    words = [low(counter), high(counter), "zeroinitializer", "zeroinitializer"]
    for number in range(ROUNDS):
        first, second = (
            _spread(a, a.let(f"add i32 {key}, {weyl * number & 0xFFFFFFFF}"), "i32", lanes)
            for key, weyl in zip(keys, WEYL, strict=True)
        )
        p, q = product(words[0], MULTIPLIERS[0]), product(words[2], MULTIPLIERS[1])
        words = [mixed(high(q), words[1], first), low(q), mixed(high(p), words[3], second), low(p)]
    return words
