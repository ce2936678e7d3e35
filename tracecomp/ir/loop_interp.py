"""The reference interpreter of the loop IR: slow, exact about order, and strict about memory.

Expressions are evaluated as numpy arrays with one axis for each surrounding tile or vector loop. A load or store out of
bounds, a read of unwritten memory, and a condition that varies over such a loop raise ``VerifyError``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tracecomp.base.errors import VerifyError, failure
from tracecomp.ir.index import Atom, Computed, FloorDiv, Index, Mod, Var
from tracecomp.ir.loops import (
    LINE,
    Acc,
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
)
from tracecomp.ir.program import CallStep, Kernel, Program, Ref, RepeatStep, Slot, Step, WhenStep, WhileStep
from tracecomp.ir.scalars import SCALARS
from tracecomp.ir.special import converted
from tracecomp.ir.types import DType, bool_, compute_dtype

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Memory:
    """Bytes, with a flag for each that has been written."""

    data: Array
    defined: Array

    def view(self, start: int, size: int, dtype: DType) -> Memory:
        """``size`` elements from byte ``start`` on, with one defined flag each (of its first byte)."""
        stop = start + size * dtype.itemsize
        if start < 0 or stop > self.data.size:
            raise VerifyError(f"bytes {start}..{stop} are outside a slot of {self.data.size} bytes")
        return Memory(self.data[start:stop].view(dtype.numpy), self.defined[start:stop].reshape(size, dtype.itemsize))


def interpret_program(program: Program, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Run ``program``, writing ``outputs`` in place. IndexError when an index check fails."""
    with np.errstate(all="ignore"):
        _Programs(program, inputs, outputs).steps(program.steps, {})


class _Programs:
    def __init__(self, program: Program, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        arena = np.zeros(program.arena_bytes, np.uint8)
        self.arena = Memory(arena, np.zeros(arena.size, bool))
        if program.prepared is not None:
            # There was no earlier call, so nothing is prepared; the caller says so.
            self.arena.defined[program.prepared.position] = True
        self.slots = {(s.space, s.position): _bytes_of(a, s, True) for s, a in zip(program.inputs, inputs, strict=True)}
        for slot, array in zip(program.outputs, outputs, strict=True):
            self.slots.setdefault((slot.space, slot.position), _bytes_of(array, slot, False))

    def steps(self, steps: Sequence[Step], variables: dict[Var, int]) -> None:
        for step in steps:
            match step:
                case CallStep():
                    self._call(step, variables)
                case RepeatStep():
                    for i in range(step.var.extent):
                        self.steps(step.steps, {**variables, step.var: i})
                case WhenStep():
                    self.steps(step.then if self._holds(step.condition, variables) else step.otherwise, variables)
                case WhileStep():
                    self.steps(step.test, variables)
                    while self._holds(step.condition, variables):
                        self.steps(step.steps, variables)
                        self.steps(step.test, variables)

    def _holds(self, condition: Ref, variables: dict[Var, int]) -> bool:
        memory = self._memory(condition, 1, bool_, variables)
        if not memory.defined.all():
            raise VerifyError(f"the condition {condition.slot.name} was never written")
        return bool(memory.data[0])

    def _memory(self, ref: Ref, size: int, dtype: DType, variables: dict[Var, int]) -> Memory:
        offset = int(Scope(variables).index(ref.offset))
        if ref.slot.space == "arena":
            return self.arena.view(ref.slot.position + offset, size, dtype)
        return self.slots[ref.slot.space, ref.slot.position].view(offset, size, dtype)

    def _call(self, step: CallStep, variables: dict[Var, int]) -> None:
        memories = {
            p.name: self._memory(ref, p.size, p.dtype, variables)
            for p, ref in zip(step.kernel.params, step.args, strict=True)
        }
        try:
            _Kernel(step.kernel, memories).body(step.kernel.body)
        except VerifyError as error:
            raise VerifyError(f"{step.label or step.kernel.name}: {error}") from error
        except IndexError:
            raise failure("index", step.label or step.kernel.name) from None


def _bytes_of(array: Array, slot: Slot, defined: bool) -> Memory:
    if not array.flags.c_contiguous:
        raise VerifyError(f"the array for {slot.name} is not C-contiguous")
    data = array.reshape(-1).view(np.uint8)
    return Memory(data, np.full(data.size, defined))


class Scope:
    """Evaluation of indices and expressions of known variables, each a number or an array; loads are not supported."""

    def __init__(self, variables: dict[Var, Any]) -> None:
        self.variables = variables

    def variable(self, var: Var) -> Any:
        return self.variables[var]

    def expr(self, expr: Expr) -> Array:
        match expr:
            case Const():
                return np.asarray(expr.value).astype(expr.dtype.numpy)
            case IndexValue():
                return np.asarray(self.index(expr.index), np.int64)
            case Call():
                return scalar(expr.op, [self.expr(a) for a in expr.args], [a.dtype for a in expr.args], expr.dtype)
            case _:
                raise VerifyError(f"{expr} depends on memory")

    def index(self, i: Index) -> Any:
        total: Any = np.int64(i.const)
        for atom, factor in i.terms:
            total = total + self.atom(atom) * np.int64(factor)
        return total

    def atom(self, atom: Atom) -> Any:
        match atom:
            case Var():
                return self.variable(atom)
            case FloorDiv():
                return self.index(atom.index) // atom.divisor
            case Mod():
                return self.index(atom.index) % atom.divisor
            case Computed():
                return self.expr(atom.expr).astype(np.int64)


@dataclass(slots=True)
class _State:
    """An accumulator: its values with the lanes as last axis, declared under ``depth`` tile and vector loops."""

    acc: Acc
    values: Array
    depth: int


class _Kernel(Scope):
    def __init__(self, kernel: Kernel, memories: dict[str, Memory]) -> None:
        super().__init__({})
        self.kernel = kernel
        self.memories = memories
        self.spmd: list[tuple[Var, str]] = []
        self.names: dict[str, Array] = {}
        self.states: dict[str, _State] = {}
        self.memo: dict[int, Array] = {}

    # ---- statements

    def body(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.stmt(stmt)

    def stmt(self, s: Stmt) -> None:
        self.memo.clear()
        match s:
            case Loop():
                self._loop(s)
            case Let():
                self.names[s.name] = self._everywhere(self.expr(s.value))
            case Store():
                self._store(s)
            case Accumulate():
                self._accumulate(s)
            case Update():
                self._update(s)
            case Local():
                self._local(s.buffer)
            case If():
                if self._uniform(self.expr(s.condition)):
                    self.body(s.body)
            case Check():
                if not self.expr(s.condition).all():
                    detail = 0 if s.detail is None else int(self.expr(s.detail).max())
                    raise failure(s.failure, detail=detail)
            case Prefetch():
                pass

    def _loop(self, loop: Loop) -> None:
        if loop.kind in ("tile", "vector"):
            if loop.var.extent:
                self.spmd.append((loop.var, loop.kind))
                self.body(loop.body)
                self.spmd.pop()
            return
        for i in range(loop.var.extent):
            self.variables[loop.var] = i
            self.body(loop.body)

    def _local(self, buffer: Buffer) -> None:
        nbytes = buffer.size * buffer.dtype.itemsize
        fresh = Memory(np.zeros(nbytes, np.uint8), np.zeros(nbytes, bool))
        self.memories[buffer.name] = fresh.view(0, buffer.size, buffer.dtype)

    def _store(self, s: Store) -> None:
        where = self._everywhere(self.expr(s.where)) if s.where else np.True_
        shape = self._shape()
        active = np.broadcast_to(where, shape).reshape(-1)
        positions = np.broadcast_to(self.index(s.offset), shape).reshape(-1)[active]
        values = np.broadcast_to(self.expr(s.value), shape).reshape(-1)[active]
        self._inside(s.buffer, positions)
        if s.buffer.name not in self.kernel.writes and any(p.name == s.buffer.name for p in self.kernel.params):
            raise VerifyError(f"kernel {self.kernel.name} stores to {s.buffer.name}, which it does not declare")
        memory = self.memories[s.buffer.name]
        memory.data[positions] = values
        memory.defined[positions] = True

    def _inside(self, buffer: Buffer, positions: Array) -> None:
        if positions.size and (positions.min() < 0 or positions.max() >= buffer.size):
            raise VerifyError(f"{buffer.name}[{positions.min()}..{positions.max()}] of {buffer.size} elements")

    def _shape(self) -> tuple[int, ...]:
        return tuple(v.extent for v, _ in self.spmd)

    def _everywhere(self, value: Array) -> Array:
        return np.broadcast_to(value, self._shape())

    def _uniform(self, condition: Array) -> bool:
        if condition.size and condition.any() != condition.all():
            raise VerifyError("a condition varies over a tile or vector loop")
        return bool(condition.all())

    # ---- accumulators

    def _accumulate(self, s: Accumulate) -> None:
        shape = self._shape()
        for acc in s.accs:
            init = np.broadcast_to(self.expr(acc.init), shape)
            values = np.repeat(init[..., None], acc.lanes, axis=-1).astype(acc.dtype.numpy)
            self.states[acc.name] = _State(acc, values, len(shape))
        self.body(s.body)
        for acc in s.accs:
            self.names[acc.name] = self._total(self.states.pop(acc.name))

    def _total(self, state: _State) -> Array:
        op = "add" if state.acc.op == "fma" else state.acc.op
        values = state.values
        while values.shape[-1] > 1:
            half = values.shape[-1] // 2
            values = _combine(op, state.acc.dtype, values[..., :half], [values[..., half:]])
        return values[..., 0]

    def _update(self, s: Update) -> None:
        state = self.states[s.name]
        inner = self.spmd[state.depth :]
        lanes, dtype = state.acc.lanes, state.acc.dtype
        for lane, count, pick in _lane_runs(inner, lanes):
            if any(reads(a, self.states.keys()) for a in s.args):
                self.memo.clear()
            args = [np.broadcast_to(self.expr(a), self._shape()) for a in s.args]
            run = slice(lane, lane + count)
            pieces = [a[(..., *pick)] if inner else a[..., None] for a in args]
            state.values[..., run] = _combine(state.acc.op, dtype, state.values[..., run], pieces)

    # ---- expressions

    def variable(self, var: Var) -> Any:
        for axis, (v, _) in enumerate(self.spmd):
            if v == var:
                return np.arange(v.extent).reshape((-1,) + (1,) * (len(self.spmd) - axis - 1))
        return self.variables[var]

    def expr(self, expr: Expr) -> Array:
        found = self.memo.get(id(expr))
        if found is None:
            found = self.memo[id(expr)] = np.asarray(self._expr(expr))
        return found

    def _expr(self, expr: Expr) -> Any:
        match expr:
            case Load():
                return self._load(expr)
            case Read():
                return self._read(expr.name)
            case ToLine():
                return np.int64(-self.memories[expr.buffer.name].data.ctypes.data % LINE // expr.buffer.dtype.itemsize)
            case _:
                return super().expr(expr)

    def _read(self, name: str) -> Array:
        state = self.states.get(name)
        if state is None and name not in self.names:
            raise VerifyError(f"{name} is read before it is bound")
        value = self.names[name] if state is None else state.values[..., 0]
        return value.reshape(value.shape + (1,) * (len(self.spmd) - value.ndim))

    def _load(self, load: Load) -> Array:
        positions = np.asarray(self.index(load.offset))
        where = self.expr(load.where) if load.where else np.asarray(True)
        positions, where = np.broadcast_arrays(positions, where)
        active = positions[where]
        self._inside(load.buffer, active)
        memory = self.memories[load.buffer.name]
        if not memory.defined[active].all():
            raise VerifyError(f"{load.buffer.name} is read before it is written")
        values = np.zeros(positions.shape, load.dtype.numpy)
        values[where] = memory.data[active]
        return values


def _lane_runs(inner: list[tuple[Var, str]], lanes: int) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
    """``(first lane, count, selection)``: updates of the inner elements in order, as many at once as lanes allow."""
    if not inner:
        yield 0, 1, ()
        return
    by = next((k for k, (_, kind) in enumerate(inner) if kind == "vector"), len(inner) - 1)
    others = [range(v.extent) if k != by else [slice(None)] for k, (v, _) in enumerate(inner)]
    extent = inner[by][0].extent
    if by == len(inner) - 1:
        for point in product(*others):
            for start in range(0, extent, lanes):
                count = min(lanes, extent - start)
                yield 0, count, (*point[:by], slice(start, start + count))
        return
    for point in product(*[range(v.extent) for v, _ in inner]):
        yield point[by] % lanes, 1, (*point[:-1], slice(point[-1], point[-1] + 1))


def reads(expr: Expr, names: Collection[str]) -> bool:
    """Whether ``expr`` itself (not an index in it) reads one of ``names``."""
    match expr:
        case Read():
            return expr.name in names
        case Call():
            return any(reads(a, names) for a in expr.args)
    return False


def _combine(op: str, dtype: DType, current: Array, args: list[Array]) -> Array:
    if op == "set":
        return args[0]
    operands = [*args, current] if op == "fma" else [current, *args]
    return scalar(op, operands, [dtype] * len(operands), dtype)


def scalar(op: str, args: list[Array], types: list[DType], dtype: DType) -> Array:
    """A scalar operation on arrays; half types compute in float32 and round after."""
    if op == "cast":
        return _cast(args[0], types[0], dtype)
    if op == "bitcast":
        return args[0].view(dtype.numpy)
    if op != "nextafter":
        args = [a.astype(compute_dtype(t).numpy) for a, t in zip(args, types, strict=True)]
    if types[-1] is bool_ and op == "not":
        return np.logical_not(args[0])
    return np.asarray(SCALARS[op].numpy(*args)).astype(dtype.numpy)


def _cast(value: Array, source: DType, target: DType) -> Array:
    if source.itemsize == 2 and source.is_floating_point:
        value = value.astype(np.float32)
    return converted(value, target.numpy)
