"""Loads and stores of checked programs, with bounds checks and detection of stale or unwritten memory.

The shadow follows the arena: for each byte the tag of the value whose element was stored there. A load compares the tag
with that of its value. It thereby detects memory that was not written yet, and memory that another value has reused.
The first failing access of a call writes its word where failing checks do, and does not touch the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracecomp.codegen.text.emitter import FLOAT_BITS, INT_BITS, Emitter, Value, type_suffix

NOT_SHADOWED = -1
"""The tag of memory outside the arena, and of scratch memory."""


@dataclass(frozen=True, slots=True)
class Region:
    """The memory of one buffer: its start, its bytes, the tag of its value.

    ``outside`` and ``stale`` are the words of accesses that fail.
    """

    start: Value
    nbytes: int
    tag: Value
    outside: Value
    stale: Value

    def operands(self) -> str:
        rest = f"i64 {self.nbytes}, {self.tag}, ptr %failed, {self.outside}, {self.stale}"
        return f"{self.start}, {rest}"


def tag_of(lifetime: int) -> int:
    """The byte that represents a value's number in the shadow; 0 for unwritten memory."""
    return 1 + lifetime % 255 if lifetime else 0


def checked_load(e: Emitter, elem: str, width: int, address: Value, mask: Value | None, region: Region) -> str:
    """The load of a scalar (``width`` 0) or vector; zero where the mask is false or the memory is not the buffer's."""
    name = _helper(e, "load", elem, width, address)
    result = f"<{width} x {elem}>" if width else elem
    return f"call {result} {name}({address}, {_mask(e, mask, width)}, {region.operands()})"


def checked_store(e: Emitter, value: Value, address: Value, mask: Value | None, region: Region) -> str:
    """The store of a scalar or vector, where the mask is true and the memory is the buffer's."""
    name = _helper(e, "store", value.elem, value.width, address)
    return f"  call void {name}({value}, {address}, {_mask(e, mask, value.width)}, {region.operands()})"


def _mask(e: Emitter, mask: Value | None, width: int) -> Value:
    return mask or e.all_true(max(width, 1))


def _helper(e: Emitter, kind: str, elem: str, width: int, address: Value) -> str:
    """The function for the access, emitted on first use."""
    name = f"@tc.checked.{kind}.{type_suffix(elem, width)}{'.each' if address.width else ''}"
    if not e.module.knows(name):
        e.declare(name, _Helper(e, kind, elem, width, bool(address.width)).text(name))
    return name


class _Helper:
    """The text of one function. All its values are vectors, of one lane for scalars."""

    def __init__(self, e: Emitter, kind: str, elem: str, width: int, each: bool) -> None:
        self.e = e
        self.kind = kind
        self.scalar = not width
        self.each = each
        self.elem = elem
        self.lanes = max(width, 1)
        bits = FLOAT_BITS.get(elem) or INT_BITS[elem]
        self.nbytes = bits // 8
        self.bits = f"i{bits}"

    def vector(self, elem: str) -> str:
        return f"<{self.lanes} x {elem}>"

    def splat(self, name: str, kind: str, value: str) -> list[str]:
        vector = self.vector(kind)
        return [
            f"  {name}.first = insertelement {vector} poison, {kind} {value}, i64 0",
            f"  {name} = shufflevector {vector} {name}.first, {vector} poison, <{self.lanes} x i32> zeroinitializer",
        ]

    def text(self, name: str) -> str:
        value = self.elem if self.scalar else self.vector(self.elem)
        result, given = (value, []) if self.kind == "load" else ("void", [f"{value} %value"])
        params = [
            *given, f"{self.vector('ptr') if self.each else 'ptr'} %at", f"{self.vector('i1')} %mask", "ptr %start",
            "i64 %nbytes", "i64 %tag", "ptr %failed", "i64 %outside", "i64 %stale",
        ]  # fmt: skip
        lines = [*self._addresses(), *self._inside(), *(self._load() if self.kind == "load" else self._store())]
        body = "\n".join(lines)
        return f"define {result} {name}({', '.join(params)}) #0 {{\nentry:\n{body}\n}}\n"

    def _addresses(self) -> list[str]:
        """``%each``: the address of every lane; ``%offset``: its distance from the buffer's start."""
        lines = self.splat("%at.all", "ptr", "%at") if not self.each else []
        steps = ", ".join(f"i64 {n if not self.each else 0}" for n in range(self.lanes))
        pointers, base = self.vector("ptr"), "%at" if self.each else "%at.all"
        return [
            *lines,
            f"  %each = getelementptr {self.elem}, {pointers} {base}, {self.vector('i64')} <{steps}>",
            f"  %place = ptrtoint {pointers} %each to {self.vector('i64')}",
            "  %start.number = ptrtoint ptr %start to i64",
            *self.splat("%starts", "i64", "%start.number"),
            f"  %offset = sub {self.vector('i64')} %place, %starts",
        ]

    def _inside(self) -> list[str]:
        """``%good``: the lanes that may be accessed; other requested lanes are reported."""
        masks = self.vector("i1")
        return [
            f"  %last.one = sub i64 %nbytes, {self.nbytes}",
            *self.splat("%last", "i64", "%last.one"),
            f"  %inside = icmp ule {self.vector('i64')} %offset, %last",
            f"  %good = and {masks} %mask, %inside",
            f"  %bad = xor {masks} %mask, %good",
            *self._report("%bad", "%outside"),
            "  %shadowed = icmp sge i64 %tag, 0",
            *self.splat("%shadows", "i1", "%shadowed"),
            f"  %known = and {masks} %good, %shadows",
            f"  %shadow = getelementptr i8, {self.vector('ptr')} %each, i64 {self.e.module.shadow}",
            "  %tags.wide = mul i64 %tag, 72340172838076673",  # the byte eight times
            f"  %tags.one = trunc i64 %tags.wide to {self.bits}" if self.nbytes < 8 else
            "  %tags.one = add i64 %tags.wide, 0",
            *self.splat("%tags", self.bits, "%tags.one"),
        ]  # fmt: skip

    def _report(self, lanes: str, word: str) -> list[str]:
        """Leave ``word`` for the caller when any of ``lanes`` is true and nothing has been reported."""
        masks = self.vector("i1")
        reduce = f"@llvm.vector.reduce.or.{type_suffix('i1', self.lanes)}"
        self.e.declare(reduce, f"declare i1 {reduce}({masks})")
        return [
            f"  {lanes}.any = call i1 {reduce}({masks} {lanes})",
            f"  br i1 {lanes}.any, label %report{lanes[1:]}, label %go{lanes[1:]}",
            f"report{lanes[1:]}:",
            f"  {lanes}.before = cmpxchg ptr %failed, i64 0, i64 {word} monotonic monotonic",
            f"  br label %go{lanes[1:]}",
            f"go{lanes[1:]}:",
        ]

    def _gather(self, name: str, elem: str, pointers: str, mask: str) -> str:
        vector, suffix = self.vector(elem), type_suffix(elem, self.lanes)
        gather = f"@llvm.masked.gather.{suffix}.v{self.lanes}p0"
        self.e.declare(gather, f"declare {vector} {gather}({self.vector('ptr')}, {self.vector('i1')}, {vector})")
        where = f"{self.vector('ptr')} align {self.nbytes} {pointers}, {self.vector('i1')} {mask}"
        return f"  {name} = call {vector} {gather}({where}, {vector} zeroinitializer)"

    def _scatter(self, value: str, elem: str, pointers: str, mask: str) -> str:
        vector, suffix = self.vector(elem), type_suffix(elem, self.lanes)
        scatter = f"@llvm.masked.scatter.{suffix}.v{self.lanes}p0"
        self.e.declare(scatter, f"declare void {scatter}({vector}, {self.vector('ptr')}, {self.vector('i1')})")
        where = f"{self.vector('ptr')} align {self.nbytes} {pointers}, {self.vector('i1')} {mask}"
        return f"  call void {scatter}({vector} {value}, {where})"

    def _load(self) -> list[str]:
        masks, vector = self.vector("i1"), self.vector(self.elem)
        lines = [
            self._gather("%found", self.bits, "%shadow", "%known"),
            f"  %differs = icmp ne {self.vector(self.bits)} %found, %tags",
            f"  %old = and {masks} %known, %differs",
            *self._report("%old", "%stale"),
            self._gather("%value", self.elem, "%each", "%good"),
        ]
        if self.scalar:
            return [*lines, f"  %lane = extractelement {vector} %value, i64 0", f"  ret {self.elem} %lane"]
        return [*lines, f"  ret {vector} %value"]

    def _store(self) -> list[str]:
        vector = self.vector(self.elem)
        lines = [self._scatter("%tags", self.bits, "%shadow", "%known")]
        if self.scalar:
            lines.append(f"  %lane = insertelement {vector} poison, {self.elem} %value, i64 0")
        stored = "%lane" if self.scalar else "%value"
        return [*lines, self._scatter(stored, self.elem, "%each", "%good"), "  ret void"]
