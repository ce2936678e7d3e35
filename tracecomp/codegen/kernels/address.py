"""Index arithmetic and memory access: constant, scalar, unit-stride vector, or gather."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tracecomp.codegen.kernels import convert
from tracecomp.codegen.kernels.checked import Region, checked_load, checked_store
from tracecomp.codegen.text.emitter import Emitter, Value, type_suffix
from tracecomp.ir.index import Atom, Computed, FloorDiv, Index, Mod, Var
from tracecomp.ir.loops import Expr
from tracecomp.ir.types import DType

Position = int | tuple[int, int] | Value
"""Value of a loop variable: a number, (first, lanes) consecutive numbers, or an SSA value."""


@dataclass(slots=True)
class Offset:
    """An index in terms: ``const + sum(scalar * factor) + stride * lane + vector``."""

    const: int
    scalars: list[tuple[Value, int]]
    stride: int = 0
    lanes: int = 0
    vector: Value | None = None

    @property
    def width(self) -> int:
        return self.vector.width if self.vector else self.lanes if self.stride else 0

    def add(self, lanes: Offset, factor: int) -> None:
        """Add ``factor`` times consecutive numbers from a scalar on."""
        self.const += factor * lanes.const
        self.scalars += [(value, factor * own) for value, own in lanes.scalars]
        # Both have the lanes of the same chunk, so one count is valid for both.
        self.stride += factor * lanes.stride
        self.lanes = lanes.lanes

    def within(self, divisor: int) -> bool:
        """Whether consecutive lanes are within one multiple of ``divisor``, for any scalars."""
        # Scalars move the first lane in steps of their common divisor: within
        # one step the position of the lanes is known.
        step = math.gcd(divisor, *(factor for _, factor in self.scalars))
        return self.vector is None and self.stride == 1 and self.const % step + self.lanes <= step

    def multiple_of(self, line: int, lanes: int) -> bool:
        """Whether consecutive ``lanes`` from here on are whole vectors of lines of memory, ``line`` elements each."""
        # Then a vector store fills whole lines, which a non-temporal store must.
        whole = self.const % lanes == 0 and all(factor % line == 0 for _, factor in self.scalars)
        return whole and self.vector is None and line % lanes == 0


class Indexer:
    """Compute addresses from ``Index`` values, loop variables and an evaluator of expressions."""

    def __init__(self, e: Emitter, position: Callable[[Var], Position], evaluate: Callable[[Expr], Value]) -> None:
        self.e = e
        self.position = position
        self.evaluate = evaluate

    def offset(self, index: Index) -> Offset:
        result = Offset(index.const, [])
        for atom, factor in index.terms:
            value = self._atom(atom)
            if isinstance(value, Offset):
                result.add(value, factor)
            elif isinstance(value, int):
                result.const += factor * value
            elif isinstance(value, tuple):
                result.const += factor * value[0]
                result.stride += factor
                result.lanes = value[1]
            # A vector that is not evenly spaced (data, or a division): added up as it is.
            elif value.width:
                term = self._times(value, factor)
                result.vector = self.e.binary("add", result.vector, term) if result.vector else term
            else:
                result.scalars.append((value, factor))
        return result

    def value(self, index: Index) -> Value:
        """``index`` as an i64 scalar or vector."""
        return self.join(self.offset(index))

    def join(self, o: Offset) -> Value:
        e = self.e
        total: Value | None = None
        # Terms of outer loops first: their sum is then an outer loop's value, and computed there.
        for value, factor in sorted(o.scalars, key=lambda term: term[0].depth):
            term = self._times(value, factor)
            total = e.binary("add", total, term) if total else term
        if o.width:
            # Constants and steps of lanes are one literal vector.
            lanes = e.lanes("i64", [o.const + o.stride * k for k in range(o.width)])
            parts = [p for p in (total, o.vector) if p is not None]
            result = lanes if o.stride or o.const else e.const("i64", 0, o.width)
            for part in parts:
                result = e.binary("add", result, part)
            return result
        if total is None:
            return e.const("i64", o.const)
        return e.binary("add", total, e.const("i64", o.const)) if o.const else total

    def _times(self, value: Value, factor: int) -> Value:
        return value if factor == 1 else self.e.binary("mul", value, self.e.const("i64", factor))

    def _atom(self, atom: Atom) -> Position | Offset:
        if isinstance(atom, Var):
            return self.position(atom)
        if isinstance(atom, Computed):
            return self._computed(atom)
        inner = self.offset(atom.index)
        # All known: the division is done here.
        if not inner.scalars and inner.vector is None:
            return self._constant_atom(atom, inner)
        # 32-bit division takes a half to a quarter of the time; the bounds of the index say whether it is legal.
        narrow = _fits_i32(atom.index)
        # All lanes are in one multiple: one scalar division serves them.
        if inner.within(atom.divisor):
            first = self._divide(atom, self.join(Offset(inner.const, inner.scalars)), narrow)
            return first if isinstance(atom, FloorDiv) else Offset(0, [(first, 1)], 1, inner.lanes)
        return self._divide(atom, self.join(inner), narrow)

    def _computed(self, atom: Computed) -> Position:
        value = self.evaluate(atom.expr)
        if value.const is not None:
            return int(value.const)
        if value.elem == "i64":
            return value
        # A true i1 would become -1.
        op = "sext" if atom.expr.dtype.signed and value.elem != "i1" else "zext"
        return self.e.convert(op, value, "i64")

    def _constant_atom(self, atom: FloorDiv | Mod, inner: Offset) -> Position:
        """A division of known numbers: one number, or consecutive ones, or a constant vector."""
        divide = isinstance(atom, FloorDiv)
        count = inner.lanes if inner.stride else 1
        numbers = [inner.const + inner.stride * k for k in range(count)]
        results = [n // atom.divisor if divide else n % atom.divisor for n in numbers]
        # Known numbers are often equal, or consecutive: the result then stays a scalar, or a plain vector load.
        if all(r == results[0] for r in results):
            return results[0]
        if all(r == results[0] + k for k, r in enumerate(results)):
            return (results[0], count)
        return self.e.lanes("i64", results)

    def _divide(self, atom: FloorDiv | Mod, value: Value, narrow: bool) -> Value:
        """Division rounded down; in 32 bits if the operand is known to fit and to be non-negative."""
        e = self.e
        divide = isinstance(atom, FloorDiv)
        d = atom.divisor
        # Rounded down like Python's: an arithmetic shift and a mask do that for negative numbers, too.
        if d & (d - 1) == 0:
            amount = d.bit_length() - 1 if divide else d - 1
            return e.binary("ashr" if divide else "and", value, e.const("i64", amount))
        if narrow:
            small = e.binary("udiv" if divide else "urem", e.convert("trunc", value, "i32"), e.const("i32", d))
            return e.convert("zext", small, "i64")
        # LLVM rounds towards zero; a negative remainder is moved up by the divisor.
        rest = e.binary("srem", value, e.const("i64", d))
        negative = e.compare("icmp slt", rest, e.const("i64", 0))
        rest = e.select(negative, e.binary("add", rest, e.const("i64", d)), rest)
        return e.binary("sdiv", e.binary("sub", value, rest), e.const("i64", d)) if divide else rest

    # ---- memory

    def address(self, base: Value, elem: str, o: Offset) -> Value:
        """The address ``base[o]``; outer loops' terms are added first, so that the sum is computed outside."""
        e = self.e
        pointer = base
        # Outer loops' terms first, as in ``join``; constants last, where the
        # address of an instruction has them for free.
        for value, factor in sorted(o.scalars, key=lambda term: term[0].depth):
            pointer = e.gep(elem, pointer, self._times(value, factor))
        if o.const:
            pointer = e.gep(elem, pointer, e.const("i64", o.const))
        if o.vector is not None:
            pointer = e.gep(elem, pointer, o.vector)
        if o.stride and (o.stride != 1 or o.vector is not None):
            # Consecutive lanes need only the address of the first.
            pointer = e.gep(elem, pointer, e.lanes("i64", [o.stride * k for k in range(o.lanes)]))
        return pointer


def _fits_i32(i: Index) -> bool:
    bounds = i.bounds
    return bounds is not None and bounds[0] >= 0 and bounds[1] < 2**31


NONTEMPORAL = "!nontemporal !1"


@dataclass(frozen=True, slots=True)
class Access:
    """One load: its text and operands, for the code that decides its place."""

    rhs: str
    elem: str
    width: int
    operands: tuple[Value, ...]


def load_access(
    e: Emitter, dtype: DType, address: Value, o: Offset, mask: Value | None, region: Region | None
) -> Access:
    """The load of ``dtype`` at ``address``: scalar, consecutive lanes, or gathered; zero where ``mask`` is false."""
    elem, align = convert.memory_elem(dtype), dtype.itemsize
    width = o.width
    if region:
        operands = (address, mask) if mask else (address,)
        return Access(checked_load(e, elem, width, address, mask, region), elem, width, operands)
    if not width:
        # No mask and consecutive: one instruction.
        return Access(f"load {elem}, {address}, align {align}", elem, 0, (address,))
    vector = f"<{width} x {elem}>"
    if not address.width and mask is None:
        return Access(f"load {vector}, {address}, align {align}", elem, width, (address,))
    full = mask or e.all_true(width)
    suffix = type_suffix(elem, width)
    name = f"@llvm.masked.gather.{suffix}.v{width}p0" if address.width else f"@llvm.masked.load.{suffix}.p0"
    e.declare(name, f"declare {vector} {name}({address.type}, {full.type}, {vector})")
    operand = f"{address.type} align {align} {address.text}"
    # Masked-off lanes give zero, so that computations with them are harmless.
    return Access(f"call {vector} {name}({operand}, {full}, {vector} zeroinitializer)", elem, width, (address, full))


def store_text(
    e: Emitter, value: Value, address: Value, mask: Value | None, align: int, region: Region | None,
    stream: bool = False,
) -> str:  # fmt: skip
    """The store of a vector or (without mask) a scalar. A streaming one stores an aligned whole vector."""
    if region:
        return checked_store(e, value, address, mask, region)
    if stream:
        return f"  store {value}, {address}, align {align * value.width}, {NONTEMPORAL}"
    if mask is None and not address.width:
        return f"  store {value}, {address}, align {align}"
    full = mask or e.all_true(value.width)
    if not address.width and value.elem in ("i8", "i16", "i32") and _may_have_one_lane(full):
        # If the mask is known to have one lane, LLVM (at least up to 22) writes a narrowed element at its original
        # width. The neighbours would be overwritten. Hide that fact: no address is null, but LLVM cannot prove it.
        full = e.binary("and", full, e.compare("icmp ne", address, Value("null", "ptr")))
    suffix = type_suffix(value.elem, value.width)
    name = f"@llvm.masked.scatter.{suffix}.v{value.width}p0" if address.width else f"@llvm.masked.store.{suffix}.p0"
    e.declare(name, f"declare void {name}({value.type}, {address.type}, {full.type})")
    return f"  call void {name}({value}, {address.type} align {align} {address.text}, {full})"


def _may_have_one_lane(mask: Value) -> bool:
    """Whether some register's part of ``mask`` may have exactly one lane, as far as LLVM can know.

    A hidden mask is slow: LLVM spills it, and cannot tell which bytes the store leaves unchanged.
    """
    if mask.const is not None or not mask.text.startswith("<"):
        return mask.const is None
    lanes = [lane.endswith("true") for lane in mask.text[1:-1].split(", ")]
    # Long vectors are split into registers of some power of two of lanes.
    sizes = (1 << n for n in range(1, mask.width.bit_length()))
    return any(sum(lanes[at : at + size]) == 1 for size in sizes for at in range(0, mask.width, size))


def tail_mask(e: Emitter, width: int, active: int) -> Value | None:
    """True in the first ``active`` of ``width`` lanes; None when in all."""
    # A constant mask: LLVM shortens the load if the processor has no masks.
    return None if active >= width else e.lanes("i1", [int(k < active) for k in range(width)])


__all__ = ["Access", "Indexer", "Offset", "Position", "load_access", "store_text", "tail_mask"]
