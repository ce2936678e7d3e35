"""Writing LLVM functions block by block: code that walks over records, waits for threads, or allocates memory.

Kernels are written with ``Emitter``, which places pure instructions itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_BYTES = {"i32": 4, "i64": 8, "ptr": 8}


class Assembler:
    """The body of one function. Values are named in order; the current block is the last one written."""

    def __init__(self) -> None:
        self.lines: list[str] = ["entry:"]
        self.current = "entry"
        self._count = 0

    def name(self, stem: str) -> str:
        """Return a unique name."""
        self._count += 1
        return f"{stem}{self._count}"

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def let(self, text: str, name: str = "") -> str:
        """The result of an instruction; ``name`` if an earlier ``phi`` refers to it."""
        result = "%" + (name or self.name("v"))
        self.lines.append(f"  {result} = {text}")
        return result

    def phi(self, kind: str, incoming: Mapping[str, str], name: str = "") -> str:
        """The value that depends on the predecessor block: from block to value."""
        return self.let(f"phi {kind} " + ", ".join(f"[ {v}, %{b} ]" for b, v in incoming.items()), name)

    def call(self, kind: str, function: str, *operands: str) -> str:
        """The result of a call; operands with their types."""
        return self.let(f"call {kind} {function}({', '.join(operands)})")

    def run(self, function: str, *operands: str) -> None:
        """A call that returns nothing."""
        self.do(f"call void {function}({', '.join(operands)})")

    def at(self, base: str, offset: int | str) -> str:
        """The address ``offset`` bytes after ``base``."""
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, kind: str, base: str, offset: int | str = 0) -> str:
        """Load the value ``offset`` bytes after ``base``."""
        return self.let(f"load {kind}, ptr {self.at(base, offset)}, align 8")

    def store(self, kind: str, value: str, base: str, offset: int | str = 0) -> None:
        """Store ``value`` ``offset`` bytes after ``base``."""
        self.do(f"store {kind} {value}, ptr {self.at(base, offset)}, align 8")

    def watch(self, kind: str, base: str, offset: int | str = 0, order: str = "monotonic") -> str:
        """An atomic load."""
        return self.let(f"load atomic {kind}, ptr {self.at(base, offset)} {order}, align {_BYTES[kind]}")

    def publish(self, kind: str, value: str, base: str, offset: int | str = 0, order: str = "monotonic") -> None:
        """An atomic store."""
        self.do(f"store atomic {kind} {value}, ptr {self.at(base, offset)} {order}, align {_BYTES[kind]}")

    def same(self, a: str, b: str, kind: str = "ptr") -> str:
        """Whether two values are equal."""
        return self.let(f"icmp eq {kind} {a}, {b}")

    def both(self, a: str, b: str) -> str:
        """Whether both conditions hold."""
        return self.let(f"and i1 {a}, {b}")

    def either(self, a: str, b: str) -> str:
        """Whether one of the conditions holds."""
        return self.let(f"or i1 {a}, {b}")

    def block(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.current = name

    def go(self, target: str) -> None:
        """Continue at ``target``."""
        self.do(f"br label %{target}")

    def choose(self, condition: str, yes: str, no: str) -> None:
        """Continue at one of two blocks."""
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def need(self, condition: str, otherwise: str) -> None:
        """Go to ``otherwise`` unless ``condition`` holds."""
        following = self.name("next")
        self.choose(condition, following, otherwise)
        self.block(following)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Run the code written inside if ``condition`` is true."""
        inside, behind = self.name("then"), self.name("behind")
        self.choose(condition, inside, behind)
        self.block(inside)
        yield
        self.go(behind)
        self.block(behind)

    @contextmanager
    def each(self, first: str, end: str, stride: int) -> Iterator[str]:
        """Run the code written inside for every row of a table, with its address."""
        before, head, body = self.current, self.name("head"), self.name("body")
        latch, done, row = self.name("latch"), self.name("done"), "%" + self.name("row")
        self.go(head)
        self.block(head)
        # The next row's name is chosen before its code, as the ``phi`` comes first.
        self.lines.append(f"  {row} = phi ptr [ {first}, %{before} ], [ {row}.next, %{latch} ]")
        self.choose(self.let(f"icmp ult ptr {row}, {end}"), body, done)
        self.block(body)
        yield row
        self.go(latch)
        self.block(latch)
        self.lines.append(f"  {row}.next = getelementptr i8, ptr {row}, i64 {stride}")
        self.go(head)
        self.block(done)

    @contextmanager
    def count(self, first: str, end: str, step: int | str = 1) -> Iterator[str]:
        """Run the code written inside for ``first``, ``first + step``, ... below ``end``, unsigned."""
        before, head, body = self.current, self.name("head"), self.name("body")
        latch, done, number = self.name("latch"), self.name("done"), "%" + self.name("number")
        self.go(head)
        self.block(head)
        self.lines.append(f"  {number} = phi i64 [ {first}, %{before} ], [ {number}.next, %{latch} ]")
        self.choose(self.let(f"icmp ult i64 {number}, {end}"), body, done)
        self.block(body)
        yield number
        self.go(latch)
        self.block(latch)
        self.lines.append(f"  {number}.next = add i64 {number}, {step}")
        self.go(head)
        self.block(done)

    def text(self, head: str) -> str:
        """The function whose first line, without the brace, is ``head``."""
        return "\n".join([f"{head} {{", *self.lines, "}"])


def module_text(*parts: str) -> str:
    """A module of functions that were written with ``Assembler``, with their declarations."""
    return "\n\n".join((*parts, "attributes #1 = { nounwind }")) + "\n"
