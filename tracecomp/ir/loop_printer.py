"""The loop IR as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from tracecomp.ir.index import Atom, Computed, FloorDiv, Index, Var
from tracecomp.ir.loops import (
    Accumulate,
    Buffer,
    Call,
    Check,
    Const,
    Expr,
    If,
    IndexValue,
    Let,
    Load,
    Local,
    Loop,
    Prefetch,
    Read,
    Stmt,
    Store,
    ToLine,
    Update,
    operands,
    roots,
)
from tracecomp.ir.program import (
    CallStep,
    Kernel,
    Program,
    Ref,
    RepeatStep,
    Slot,
    Step,
    WhenStep,
    WhileStep,
    step_bodies,
)

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip


class _Printer:
    """Print statements; expressions that occur more than once in a statement are printed once, as ``%n = ...``."""

    def __init__(self, rename: Callable[[str, str], str]) -> None:
        self.rename = rename
        self.lines: list[str] = []
        self.origins: list[object] = []
        self.origin: object = None
        self.shared: dict[int, str] = {}
        self.counter = 0

    def line(self, level: int, text: str) -> None:
        self.lines.append("  " * level + text)
        self.origins.append(self.origin)

    # ---- names

    def var(self, var: Var) -> str:
        return self.rename("var", var.name)

    def name(self, name: str) -> str:
        return self.rename("name", name)

    def buffer(self, buffer: Buffer) -> str:
        return self.rename("buffer", buffer.name)

    def declared(self, buffer: Buffer) -> str:
        return f"{self.buffer(buffer)}: {buffer.dtype.short}[{buffer.size}]"

    # ---- expressions

    def index(self, i: Index) -> str:
        parts = [a if c == 1 else f"{c}*{a}" for a, c in ((self.atom(atom), c) for atom, c in i.terms)]
        if i.const or not parts:
            parts.append(str(i.const))
        return " + ".join(parts)

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            return self.var(atom)
        if isinstance(atom, Computed):
            bounds = f" in {atom.bounds[0]}..{atom.bounds[1]}" if atom.bounds else ""
            return f"[{self.expr(atom.expr)}{bounds}]"
        sign = "//" if isinstance(atom, FloorDiv) else "%"
        return f"({self.index(atom.index)} {sign} {atom.divisor})"

    def expr(self, x: Expr) -> str:
        known = self.shared.get(id(x))
        if known is not None:
            return known
        match x:
            case Const():
                return f"{x.value!r}:{x.dtype.short}"
            case IndexValue():
                return f"index({self.index(x.index)})"
            case Load():
                where = f" where {self.expr(x.where)}" if x.where else ""
                return f"{self.buffer(x.buffer)}[{self.index(x.offset)}{where}]"
            case Read():
                return self.name(x.name)
            case Call():
                return self.call(x)
            case ToLine():
                return f"to_line({self.buffer(x.buffer)})"

    def call(self, x: Call) -> str:
        args = [self.expr(a) for a in x.args]
        if x.op in _INFIX:
            return f"({args[0]} {_INFIX[x.op]} {args[1]})"
        suffix = f":{x.dtype.short}" if x.op in ("cast", "bitcast") else ""
        return f"{x.op}({', '.join(args)}){suffix}"

    def share(self, level: int, roots: list[Expr]) -> None:
        """Print, before the statement, the operations that its expressions use more than once."""
        uses: dict[int, int] = {}
        order: list[Expr] = []
        stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
        while stack:
            x, finished = stack.pop()
            if finished:
                order.append(x)
                continue
            uses[id(x)] = uses.get(id(x), 0) + 1
            if uses[id(x)] == 1:
                stack.append((x, True))
                stack.extend((a, False) for a in reversed(operands(x)))
        self.shared = {}
        for x in order:
            if uses[id(x)] > 1 and isinstance(x, Call | Load):
                text = self.expr(x)
                self.counter += 1
                self.shared[id(x)] = f"%{self.counter}"
                self.line(level, f"%{self.counter} = {text}")

    # ---- statements

    def body(self, body: tuple[Stmt, ...], level: int) -> None:
        for stmt in body:
            self.stmt(stmt, level)

    def stmt(self, s: Stmt, level: int) -> None:
        self.origin = _origin(s)
        self.share(level, roots(s))
        match s:
            case Loop():
                self.line(level, f"{s.kind} {self.var(s.var)} < {s.var.extent}:")
                self.body(s.body, level + 1)
            case Let():
                self.line(level, f"let {self.name(s.name)} = {self.expr(s.value)}")
            case Store():
                where = f" where {self.expr(s.where)}" if s.where else ""
                target = f"{self.buffer(s.buffer)}[{self.index(s.offset)}]"
                word = {"": "store", "alone": "stream alone", "always": "stream"}[s.stream]
                self.line(level, f"{word} {target} = {self.expr(s.value)}{where}")
            case Accumulate():
                accs = [
                    f"{self.name(a.name)}: {a.op} {a.dtype.short} from {self.expr(a.init)}"
                    + (f" in {a.lanes} lanes" if a.lanes > 1 else "")
                    for a in s.accs
                ]
                self.line(level, f"accumulate {', '.join(accs)}:")
                self.body(s.body, level + 1)
            case Update():
                self.line(level, f"update {self.name(s.name)}, {', '.join(map(self.expr, s.args))}")
            case Local():
                self.line(level, f"local {self.declared(s.buffer)}")
            case If():
                self.line(level, f"if {self.expr(s.condition)}:")
                self.body(s.body, level + 1)
            case Check():
                detail = f", {self.expr(s.detail)}" if s.detail is not None else ""
                kind = "" if s.failure == "index" else f" else {s.failure}{detail}"
                self.line(level, f"check {self.expr(s.condition)}{kind}")
            case Prefetch():
                self.line(level, f"prefetch {self.buffer(s.buffer)}[{self.index(s.offset)}]")


def _same(space: str, name: str) -> str:
    return name


def print_kernel(kernel: Kernel) -> str:
    """A kernel as text."""
    return "\n".join(line for line, _ in kernel_lines(kernel))


def kernel_lines(kernel: Kernel) -> list[tuple[str, object]]:
    """The lines of a kernel's text, each with its graph node, if known."""
    printer = _Printer(_same)
    marks = [f"{printer.declared(p)}{' written' if p.name in kernel.writes else ''}" for p in kernel.params]
    printer.line(0, f"kernel {kernel.name}({', '.join(marks)}):")
    printer.body(kernel.body, 1)
    return list(zip(printer.lines, printer.origins, strict=True))


def _origin(s: Stmt) -> object:
    """The node of a statement, or of the first of its operations with a node."""
    own = s.origin if isinstance(s, Store | Update) else None
    return own or next((x.origin for x in roots(s) if isinstance(x, Call) and x.origin is not None), None)


def kernel_key(kernel: Kernel) -> str:
    """A key that is equal for kernels that differ only in the names of parameters, variables, bindings and scratch
    memory."""
    names: dict[tuple[str, str], str] = {}

    def rename(space: str, name: str) -> str:
        return names.setdefault((space, name), f"{space[0]}{len(names)}")

    printer = _Printer(rename)
    marks = [f"{printer.declared(p)} {p.name in kernel.writes}" for p in kernel.params]
    printer.line(0, ", ".join(marks))
    printer.body(kernel.body, 0)
    return "\n".join(printer.lines)


def print_program(program: Program) -> str:
    """A program as text: its slots, its steps, then every kernel that they call."""
    marks = (", fast math" if program.fast_math else "") + (", checked" if program.checked else "")
    lines = [f"program {_quoted(program.name)}: arena {program.arena_bytes} bytes{marks}"]
    names = _slot_names(program)
    lines += [f"  input {names[s]}: {s.nbytes} bytes" for s in program.inputs]
    for s in program.outputs:
        # A state that is updated in place is one slot, at two positions of the call table.
        same = f", input {s.position}" if s.space == "input" else ""
        lines.append(f"  output {names[s]}: {s.nbytes} bytes{same}")
    if program.prepared is not None:
        lines.append(f"  prepared {_ref(Ref(program.prepared), names)}")
    kernels: dict[str, Kernel] = {}
    _print_steps(program.steps, 1, lines, kernels, names)
    return "\n\n".join(["\n".join(lines), *map(print_kernel, kernels.values())])


def _quoted(name: str) -> str:
    """A name unchanged, or as a JSON string if its end would be ambiguous."""
    return name if re.fullmatch(r"[^\s\"(),:+#@]*", name) else json.dumps(name)


def _slot_names(program: Program) -> dict[Slot, str]:
    """Return unique names for the slots of the call table, made distinct by primes."""
    names: dict[Slot, str] = {}
    taken: set[str] = set()
    for slot in dict.fromkeys((*program.inputs, *program.outputs)):
        name = slot.name
        while name in taken:
            name += "'"
        taken.add(name)
        names[slot] = _quoted(name)
    return names


def _print_steps(
    steps: tuple[Step, ...], level: int, lines: list[str], kernels: dict[str, Kernel], names: Mapping[Slot, str]
) -> None:
    pad = "  " * level
    for step in steps:
        if isinstance(step, CallStep):
            kernels.setdefault(step.kernel.name, step.kernel)
            label = f"  # {step.label}" if step.label else ""
            lines.append(f"{pad}call {step.kernel.name}({', '.join(_ref(a, names) for a in step.args)}){label}")
        for opening, body in zip(_openings(step, names), step_bodies(step), strict=True):
            lines.append(f"{pad}{opening}:")
            _print_steps(body, level + 1, lines, kernels, names)


def _openings(step: Step, names: Mapping[Slot, str]) -> tuple[str, ...]:
    """The heading of each list of steps nested in ``step``."""
    match step:
        case RepeatStep(var, _):
            return (f"repeat {var.name} < {var.extent}",)
        case WhenStep(condition, _, _):
            return (f"when {_ref(condition, names)}", "otherwise")
        case WhileStep(_, condition, _):
            return (f"while {_ref(condition, names)} after", "do")
    return ()


def _ref(ref: Ref, names: Mapping[Slot, str]) -> str:
    where = names[ref.slot] if ref.slot.space != "arena" else f"{_quoted(ref.slot.name)}@{ref.slot.position}"
    return where if ref.offset.is_const and not ref.offset.const else f"{where} + {ref.offset}"


__all__ = ["kernel_key", "print_kernel", "print_program"]
