"""Parser of the printed form of programs (``loop_printer.py``): slots, steps, and the kernels that they call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tracecomp.ir.index import Index, Var
from tracecomp.ir.loop_parser import Lines, Scope, Text, parse_kernel
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, RepeatStep, Slot, Step, WhenStep, WhileStep

_PLAIN = re.compile(r'[^\s"(),:+#@]*')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
Variables = Mapping[str, Var]


def parse_program(text: str) -> Program:
    """The program that ``text`` describes; ValueError names an invalid line."""
    first, *kernels = re.split(r"\n\n(?=kernel )", text.rstrip("\n"))
    known: dict[str, Kernel] = {}
    line = first.count("\n") + 3
    for kernel in kernels:
        found = parse_kernel(kernel, line)
        known[found.name] = found
        line += kernel.count("\n") + 2
    return _ProgramLines(first.split("\n"), known).program()


class _ProgramLines(Lines):
    """Slots and steps of known kernels."""

    def __init__(self, lines: list[str], kernels: Mapping[str, Kernel]) -> None:
        super().__init__(lines)
        self.kernels = kernels
        self.slots: dict[str, Slot] = {}

    def text(self, variables: Variables | None = None) -> Text:
        """The next line."""
        return Text(self.take(), Scope(dict(variables or {})), {}, self.fail)

    def program(self) -> Program:
        """The program of all lines."""
        t = self.text()
        t.expect("program ")
        name = _name(t)
        t.expect(": arena ")
        arena = t.integer()
        t.expect(" bytes")
        fast_math, checked = t.accept(", fast math"), t.accept(", checked")
        t.end()
        inputs = self.table("input", [])
        outputs = self.table("output", inputs)
        prepared = None
        if self.follows("  prepared "):
            t = self.text()
            t.expect("prepared ")
            prepared = self.ref(t, 1).slot
            t.end()
        steps = self.steps(1, {})
        if self.at < len(self.lines):
            self.take()
            self.fail("no such step")
        return Program(name, tuple(inputs), tuple(outputs), arena, steps, prepared, fast_math, checked)

    def follows(self, start: str) -> bool:
        return self.at < len(self.lines) and self.lines[self.at].startswith(start)

    def table(self, space: str, inputs: list[Slot]) -> list[Slot]:
        """The slots of one side of the call table."""
        found: list[Slot] = []
        while self.follows(f"  {space} "):
            t = self.text()
            t.expect(f"{space} ")
            name = _name(t)
            t.expect(": ")
            slot = Slot(name, space, len(found), t.integer())
            t.expect(" bytes")
            if t.accept(", input "):
                slot = inputs[t.integer()]
            elif self.slots.setdefault(name, slot) != slot:
                self.fail(f"{name} is repeated")
            t.end()
            found.append(slot)
        return found

    def steps(self, level: int, variables: Variables) -> tuple[Step, ...]:
        """Parse the steps at nesting level ``level``."""
        found: list[Step] = []
        while self.level() == level:
            found.append(self.step(level + 1, self.text(variables), variables))
        return tuple(found)

    def step(self, inner: int, t: Text, variables: Variables) -> Step:
        """Parse one step; its nested steps are at level ``inner``."""
        if t.accept("call "):
            return self.call(t)
        if t.accept("repeat "):
            name = t.name()
            t.expect(" < ")
            var = Var(name, t.integer())
            t.expect(":")
            return RepeatStep(var, self.steps(inner, {**variables, name: var}))
        if t.accept("when "):
            condition = self.ref(t, 1)
            t.expect(":")
            then = self.steps(inner, variables)
            self.text().expect("otherwise:")
            return WhenStep(condition, then, self.steps(inner, variables))
        t.expect("while ")
        condition = self.ref(t, 1)
        t.expect(" after:")
        test = self.steps(inner, variables)
        self.text().expect("do:")
        return WhileStep(test, condition, self.steps(inner, variables))

    def call(self, t: Text) -> CallStep:
        """``kernel(slot, slot + 8)  # label``."""
        name = t.match(re.compile(r"[^(]+"), "the name of a kernel")
        if name not in self.kernels:
            self.fail(f"there is no kernel {name}")
        kernel = self.kernels[name]
        t.expect("(")
        refs: list[Ref] = []
        for number, param in enumerate(kernel.params):
            if number:
                t.expect(", ")
            refs.append(self.ref(t, param.size * param.dtype.itemsize))
        t.expect(")")
        label = t.text[t.at :] if t.accept("  # ") else ""
        if not label:
            t.end()
        return CallStep(kernel, tuple(refs), label)

    def ref(self, t: Text, nbytes: int) -> Ref:
        """Parse a slot, and the offset of ``nbytes`` in it; a slot of the arena is as large as the accesses through it
        need."""
        name = _name(t)
        position = t.integer() if t.accept("@") else None
        offset = t.index() if t.accept(" + ") else Index()
        if position is None:
            if name not in self.slots:
                self.fail(f"there is no slot {name}")
            return Ref(self.slots[name], offset)
        return Ref(Slot(name, "arena", position, (offset.bounds or (0, 0))[1] + nbytes), offset)


def _name(t: Text) -> str:
    """A name, plain or as a JSON string."""
    if t.text.startswith('"', t.at):
        return str(json.loads(t.match(_STRING, "a string")))
    return t.match(_PLAIN, "a name")


__all__ = ["parse_program"]
