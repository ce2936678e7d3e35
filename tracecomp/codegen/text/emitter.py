"""Writing LLVM text: typed values, structured blocks, and placement of pure instructions.

Pure instructions are value-numbered by their text and written in the outermost block where their operands exist. Common
subexpressions and loop invariants therefore need no LLVM pass. A block's text grows until the next nested block is
closed, so "in an outer block" always means "just before the current loop". This is value numbering and loop-invariant
code motion.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tracecomp.codegen.text.lines import Lines
from tracecomp.codegen.text.target import Target

FLOAT_BITS = {"half": 16, "float": 32, "double": 64}
INT_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


class Value:
    """An SSA value or literal: ``elem`` is LLVM's scalar type, ``width`` 0 for scalars, ``depth`` that of its block."""

    __slots__ = ("const", "depth", "elem", "text", "width")

    def __init__(self, text: str, elem: str, width: int = 0, depth: int = 0, const: float | int | None = None) -> None:
        self.text = text
        self.elem = elem
        self.width = width
        self.depth = depth
        self.const = const

    @property
    def type(self) -> str:
        return f"<{self.width} x {self.elem}>" if self.width else self.elem

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


@dataclass(slots=True)
class Block:
    """Text of one structured region. ``conditional``: nothing inside may be moved out."""

    lines: list[str] = field(default_factory=list)
    memo: dict[str, Value] = field(default_factory=dict)
    conditional: bool = False


def literal(elem: str, value: float | int) -> str:
    """LLVM's spelling of a scalar constant."""
    if elem == "i1":
        return "true" if value else "false"
    if elem[0] == "i":
        # Two's complement within the bits of the type, like numpy's constants.
        bits, number = INT_BITS.get(elem) or int(elem[1:]), int(value)
        half = 1 << (bits - 1)
        return str(number if -half <= number < half else (number + half) % (2 * half) - half)
    if elem == "half":
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    with np.errstate(over="ignore"):
        # Rounded to float first: LLVM refuses a float literal that a float does not hold exactly.
        exact = float(np.float32(value)) if elem == "float" else float(value)
    # Hexadecimal, because decimal text would be rounded a second time; float literals are written as doubles, too.
    return f"0x{struct.pack('>d', exact).hex().upper()}"


def type_suffix(elem: str, width: int) -> str:
    """The overload suffix of intrinsics: ``v16f32``, ``f64``, ``i32``."""
    scalar = _SUFFIX.get(elem, elem)
    return f"v{width}{scalar}" if width else scalar


@dataclass(slots=True)
class Module:
    """Common state of a module's functions: the target, and declared or defined helper functions by name.

    ``elsewhere`` are the declarations of functions that earlier modules define. ``lines``: instructions carry the
    user's lines. ``fast_math``: the arithmetic of the program itself, not that inside of math functions, may be fused
    and regrouped. ``shadow`` is the distance in bytes from the arena to its shadow, in checked programs
    (``kernels/checked.py``).
    """

    target: Target
    fast_math: bool = False
    shadow: int | None = None
    lines: Lines | None = None
    declarations: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)

    def knows(self, name: str) -> bool:
        """Whether ``name`` may be called: it is defined or declared here, or defined elsewhere and now declared."""
        if name not in self.declarations and name in self.elsewhere:
            self.declarations[name] = self.elsewhere[name]
        return name in self.declarations

    @property
    def fast_flags(self) -> str:
        """The flags of an arithmetic instruction."""
        # Math functions have error bounds, which regrouping would break.
        return " reassoc nsz contract" if self.fast_math else ""


class Emitter:
    """One function's text under construction."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.blocks = [Block()]
        # The label of the current block: a ``phi`` names its predecessors.
        self.label = "entry"
        self.allocas: list[str] = []
        # The graph node of the instructions that are written now.
        self.origin: object = None
        self._counter = 0
        # The outermost block that a pure instruction may move out to: the innermost conditional one.
        self._floor = 0

    # ---- names, blocks

    @property
    def depth(self) -> int:
        return len(self.blocks) - 1

    def fresh(self, prefix: str = "%v") -> str:
        self._counter += 1
        return f"{prefix}{self._counter}"

    def line(self, text: str) -> None:
        self.blocks[-1].lines.append(f"{text}{self._mark()}" if text.startswith("  ") else text)

    def _mark(self) -> str:
        """The debug mark of the current instruction: its ``origin``, if lines are requested."""
        return "" if self.module.lines is None or self.origin is None else self.module.lines.mark(self.origin)

    def start_label(self, label: str) -> None:
        self.line(f"{label}:")
        self.label = label

    def push(self, conditional: bool = False) -> None:
        self.blocks.append(Block(conditional=conditional))
        if conditional:
            # Nothing moves out of a condition: a division or load that the condition guards must not run without it.
            self._floor = self.depth

    def pop(self) -> list[str]:
        lines = self.blocks.pop().lines
        # A condition may enclose another.
        self._floor = max((d for d, b in enumerate(self.blocks) if b.conditional), default=0)
        return lines

    # ---- placement

    def pure(self, rhs: str, elem: str, width: int, operands: Iterable[Value]) -> Value:
        """The value of an instruction without effects, computed once and as far out as possible."""
        # The deepest operand decides: outside of its block it does not exist.
        depth = 0
        for operand in operands:
            if operand.depth > depth:
                depth = operand.depth
        return self.place(rhs, elem, width, depth)

    def place(self, rhs: str, elem: str, width: int, depth: int, key: str | None = None) -> Value:
        """The value of ``rhs``, written at ``depth``, or deeper if a condition encloses the current block."""
        key = key or rhs
        target = max(depth, self._floor)
        # An equal instruction in any block between the operands and the target dominates this place.
        for at in range(depth, target + 1):
            found = self.blocks[at].memo.get(key)
            if found is not None:
                return found
        block = self.blocks[target]
        value = Value(self.fresh(), elem, width, target)
        block.lines.append(f"  {value.text} = {rhs}{self._mark()}")
        block.memo[key] = value
        return value

    def effect(self, rhs: str, elem: str, width: int = 0) -> Value:
        """The value of an instruction that must stay in place."""
        # Loads of memory that may be written in between, calls, and phis.
        value = Value(self.fresh(), elem, width, self.depth)
        self.line(f"  {value.text} = {rhs}")
        return value

    # ---- constants and widths

    def const(self, elem: str, value: float | int, width: int = 0) -> Value:
        text = literal(elem, value)
        # Constants have no place: depth 0, and their number is kept, so that further folding needs no parsing.
        return Value(f"splat ({elem} {text})" if width else text, elem, width, 0, value)

    def lanes(self, elem: str, values: Sequence[float | int]) -> Value:
        """A constant vector."""
        inner = ", ".join(f"{elem} {literal(elem, v)}" for v in values)
        return Value(f"<{inner}>", elem, len(values))

    def widen(self, value: Value, width: int) -> Value:
        """``value`` in every lane."""
        if value.width == width:
            return value
        if value.width:
            raise ValueError(f"cannot widen {value} to {width} lanes")
        # A constant vector is a literal, not two instructions.
        if value.const is not None:
            return self.const(value.elem, value.const, width)
        vector = f"<{width} x {value.elem}>"
        # The usual spelling of a broadcast, which instruction selection knows.
        first = self.pure(f"insertelement {vector} poison, {value}, i64 0", value.elem, width, (value,))
        return self.pure(
            f"shufflevector {first}, {vector} poison, <{width} x i32> zeroinitializer", value.elem, width, (first,)
        )

    def matched(self, *values: Value) -> list[Value]:
        """The values at their common width."""
        width = max(v.width for v in values)
        return [self.widen(v, width) for v in values] if width else list(values)

    def lane(self, vector: Value, position: int) -> Value:
        return self.pure(f"extractelement {vector}, i64 {position}", vector.elem, 0, (vector,))

    def insert(self, vector: Value, scalar: Value, position: int) -> Value:
        rhs = f"insertelement {vector}, {scalar}, i64 {position}"
        return self.pure(rhs, vector.elem, vector.width, (vector, scalar))

    def shuffle(self, a: Value, positions: Sequence[int], b: Value | None = None) -> Value:
        # An open lane may hold anything, which permits a cheaper shuffle.
        """Lanes of ``a`` (and ``b`` behind it) at ``positions``; -1 leaves a lane open."""
        other = str(b) if b else f"{a.type} poison"
        mask = ", ".join("i32 poison" if p < 0 else f"i32 {p}" for p in positions)
        n = len(positions)
        return self.pure(f"shufflevector {a}, {other}, <{n} x i32> <{mask}>", a.elem, n, (a, b) if b else (a,))

    # ---- instructions

    def binary(self, op: str, a: Value, b: Value) -> Value:
        a, b = self.matched(a, b)
        return self.pure(f"{op} {a}, {b.text}", a.elem, a.width, (a, b))

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """``predicate`` is LLVM's: ``fcmp olt``, ``icmp slt``, ..."""
        a, b = self.matched(a, b)
        return self.pure(f"{predicate} {a}, {b.text}", "i1", a.width, (a, b))

    def select(self, condition: Value, a: Value, b: Value, branchless: bool = False) -> Value:
        """``a`` where the condition holds, else ``b``; ``branchless`` keeps LLVM from making it a branch."""
        # Conditions known at emission cost nothing.
        if condition.const is not None:
            return a if condition.const else b
        width = max(condition.width, a.width, b.width)
        if width:
            a, b = self.widen(a, width), self.widen(b, width)
        # A branch that is predicted badly costs more than the arithmetic of both sides.
        hint = ", !unpredictable !0" if branchless else ""
        return self.pure(f"select {condition}, {a}, {b}{hint}", a.elem, a.width, (condition, a, b))

    def convert(self, op: str, value: Value, elem: str) -> Value:
        # LLVM folds a conversion of a literal when it parses the text.
        """A conversion instruction; of constants too, which LLVM folds."""
        target = f"<{value.width} x {elem}>" if value.width else elem
        return self.pure(f"{op} {value} to {target}", elem, value.width, (value,))

    def mask_bits(self, mask: Value) -> Value:
        """A mask as one integer."""
        return self.pure(f"bitcast {mask} to i{mask.width}", f"i{mask.width}", 0, (mask,))

    def unary(self, op: str, value: Value) -> Value:
        return self.pure(f"{op} {value}", value.elem, value.width, (value,))

    def intrinsic(self, name: str, *args: Value, flags: str = "") -> Value:
        """``llvm.<name>`` overloaded on, and returning, the type of its operands."""
        args_ = self.matched(*args)
        first = args_[0]
        full = f"@llvm.{name}.{type_suffix(first.elem, first.width)}"
        self.declare(full, f"declare {first.type} {full}({', '.join(a.type for a in args_)})")
        rhs = f"call{flags} {first.type} {full}({', '.join(map(str, args_))})"
        return self.pure(rhs, first.elem, first.width, args_)

    def declare(self, name: str, text: str) -> None:
        # Each helper once in a module; only the declaration if another module defines it.
        if not self.module.knows(name):
            self.module.declarations[name] = text

    # ---- control

    def branch(self, condition: Value, then: Callable[[], list[Value]], otherwise: list[Value]) -> list[Value]:
        """The values of ``then()``, run only if the scalar condition holds, else ``otherwise``."""
        inside, join, before = self.fresh("then"), self.fresh("join"), self.label
        self.push(conditional=True)
        self.start_label(inside)
        results = then()
        self.line(f"  br label %{join}")
        # ``then`` may have created further blocks, so the current one is read, not remembered.
        last = self.label
        lines = self.pop()
        # The branch is written after its body, because pure values that move out must come before it.
        self.line(f"  br i1 {condition.text}, label %{inside}, label %{join}")
        self.blocks[-1].lines.extend(lines)
        self.start_label(join)
        return [
            self.effect(f"phi {a.type} [ {a.text}, %{last} ], [ {b.text}, %{before} ]", a.elem, a.width)
            for a, b in zip(results, otherwise, strict=True)
        ]

    def repeat_while(
        self, start: list[Value], more: Callable[[list[Value]], Value], step: Callable[[list[Value]], list[Value]]
    ) -> list[Value]:
        """Iterate values through ``step`` while the scalar ``more`` of them holds."""
        head, inside, after, before = self.fresh("head"), self.fresh("step"), self.fresh("after"), self.label
        self.line(f"  br label %{head}")
        self.push(conditional=True)
        # Phis first: ``more`` and ``step`` refer to them. Their operands are written when both are known.
        phis = [Value(self.fresh(), v.elem, v.width, self.depth) for v in start]
        again = more(phis)
        self.line(f"  br i1 {again.text}, label %{inside}, label %{after}")
        self.start_label(inside)
        results = step(phis)
        self.line(f"  br label %{head}")
        last = self.label
        lines = self.pop()
        # The loop's head is written last, before the collected lines.
        self.line(f"{head}:")
        for phi, a, b in zip(phis, start, results, strict=True):
            self.line(f"  {phi.text} = phi {phi.type} [ {a.text}, %{before} ], [ {b.text}, %{last} ]")
        self.blocks[-1].lines.extend(lines)
        self.start_label(after)
        return [Value(p.text, p.elem, p.width, self.depth) for p in phis]

    # ---- shorthands for floating point

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.intrinsic("fma", a, b, c)

    def fabs(self, a: Value) -> Value:
        return self.intrinsic("fabs", a)

    def all_true(self, width: int) -> Value:
        return self.const("i1", 1, width)

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of masks, where None means true."""
        if a is None or b is None:
            return a or b
        return self.binary("and", a, b)

    def gep(self, elem: str, base: Value, offset: Value) -> Value:
        """Address arithmetic; a vector of addresses when ``offset`` is a vector."""
        rhs = f"getelementptr {elem}, {base}, {offset}"
        return self.pure(rhs, "ptr", offset.width or base.width, (base, offset))


def next_power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
