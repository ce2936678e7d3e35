"""Nodes of the autograd graph: what ``grad_fn`` is. The engine that runs them is ``tracecomp.autograd``."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tracecomp.base.errors import Source, user_source
from tracecomp.eager.modes import ModuleChanges, modes
from tracecomp.eager.vjp_program import Derivative, derivative
from tracecomp.ir.op import Op
from tracecomp.ir.types import from_numpy_dtype, type_word
from tracecomp.ops.view import write_places

if TYPE_CHECKING:
    from tracecomp.eager.aliasing import Storage
    from tracecomp.eager.tensor import Tensor
    from tracecomp.ir.graph import Origin

Array = np.ndarray[Any, Any]
Edge = tuple["Node", int] | None
View = tuple[Op, dict[str, Any]]
Grads = Sequence["Tensor | None"]

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
    "saved tensors after calling backward."
)

_numbers = itertools.count()
_hook_ids = itertools.count()


def node_count() -> int:
    """A number between those of the nodes made so far and of those to come."""
    return next(_numbers)


class Handle:
    """Removes a hook; usable as a context manager."""

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks = hooks
        self.id = next(_hook_ids)

    def remove(self) -> None:
        ModuleChanges.note()
        self._hooks.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def add_hook(hooks: dict[int, Any], fn: Callable[..., Any]) -> Handle:
    """Put ``fn`` among ``hooks``, which recordings that ran without it are to find out."""
    ModuleChanges.note()
    handle = Handle(hooks)
    hooks[handle.id] = fn
    return handle


class Node:
    """One step of a differentiable computation. ``edges[k]`` leads to the node that takes the gradient of operand k."""

    __slots__ = (
        "__weakref__", "_metadata", "edges", "number", "origin", "out_types", "post_hooks", "pre_hooks", "retained",
        "source", "tensor_hooks",
    )  # fmt: skip

    def __init__(self, edges: tuple[Edge, ...], out_types: tuple[tuple[Any, tuple[int, ...]], ...]) -> None:
        self.edges = edges
        self.out_types = out_types
        self.number = next(_numbers)
        self.tensor_hooks: dict[int, dict[int, Any]] | None = None
        self.retained: dict[int, weakref.ref[Tensor]] | None = None
        self.pre_hooks: dict[int, Any] | None = None
        self.post_hooks: dict[int, Any] | None = None
        self.source: Source | None = user_source() if modes.anomaly else None
        self.origin: Origin | None = None if modes.recorder is None else modes.recorder.graph.here

    def backward(self, grads: Grads) -> Grads:
        """Operand gradients from result gradients (None: zero)."""
        raise NotImplementedError

    def release(self) -> None:
        """Let go of saved values."""

    def spent(self) -> bool:
        """Whether ``backward`` would fail: what it reads was let go of, or written to since."""
        return False

    def held(self) -> list[Tensor]:
        """The tensors that this node keeps alive."""
        return []

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return tuple((None, 0) if e is None else e for e in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        if not hasattr(self, "_metadata"):
            self._metadata: dict[Any, Any] = {}
        return self._metadata

    def register_hook(self, fn: Callable[..., Any]) -> Handle:
        """Call ``fn(grad_inputs, grad_outputs)`` after this node ran; what it returns replaces ``grad_inputs``."""
        self.post_hooks = {} if self.post_hooks is None else self.post_hooks
        return add_hook(self.post_hooks, fn)

    def register_prehook(self, fn: Callable[..., Any]) -> Handle:
        """Call ``fn(grad_outputs)`` before this node runs; what it returns replaces them."""
        self.pre_hooks = {} if self.pre_hooks is None else self.pre_hooks
        return add_hook(self.pre_hooks, fn)

    def hook_tensor(self, number: int, fn: Callable[..., Any]) -> Handle:
        """Call ``fn`` on the gradient of result ``number``."""
        self.tensor_hooks = {} if self.tensor_hooks is None else self.tensor_hooks
        return add_hook(self.tensor_hooks.setdefault(number, {}), fn)

    def __call__(self, *grads: Tensor | None) -> Any:
        result = tuple(self.backward(grads))
        return result[0] if len(result) == 1 else result


class AccumulateGrad(Node):
    """The end of a path: adds what arrives to ``variable.grad``."""

    __slots__ = ("post_accumulate", "variable")

    def __init__(self, variable: Tensor) -> None:
        super().__init__((), ())
        self.variable = variable
        self.look()

    def look(self) -> None:
        """Expect gradients of the dtype and shape that ``variable`` has now."""
        array = self.variable._data
        self.out_types = ((array.dtype, array.shape),)

    def held(self) -> list[Tensor]:
        return [self.variable]


class SavedOut:
    """A result kept for backward: not the tensor itself, whose ``grad_fn`` would point back here."""

    __slots__ = ("array", "make", "storage", "value", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.rebind(tensor)
        self.value = tensor._value
        self.make = tensor._wrap

    def rebind(self, tensor: Tensor) -> None:
        self.array = tensor._data
        self.storage: Storage = tensor._shared_storage()
        self.version = self.storage.version

    def overwritten(self) -> bool:
        return self.version != self.storage.version

    def tensor(self) -> Tensor:
        """The result's memory as a tensor, whether or not it was modified since."""
        result = self.make(self.array)
        result._storage = self.storage
        result._value = self.value
        return result

    def restored(self, node: Node, number: int) -> Tensor:
        """The result as a tensor; RuntimeError when it was modified since."""
        result = self.tensor()
        if self.overwritten():
            raise RuntimeError(modified(result, self.version, node, number))
        if modes.grad:
            result._grad_fn, result._output_nr = node, number
        return result


_SaveRule = tuple[bool, frozenset[int], bool]
NUMBERS = (bool, int, float, complex)
_save_rules: dict[str, _SaveRule] = {}
_classes: dict[str, type[OpNode]] = {}


def _save_rule(op: Op) -> _SaveRule:
    rule = _save_rules.get(op.name)
    if rule is None:
        positions = frozenset(s for s in op.saves if isinstance(s, int))
        rule = _save_rules[op.name] = ("ins" in op.saves, positions, "outs" in op.saves)
    return rule


class OpNode(Node):
    """The application of a primitive. Saved operands are the tensors with the version seen."""

    __slots__ = ("attrs", "ins", "op", "outs", "types", "versions")

    ins: tuple[Any, ...] | None

    def __init__(
        self, op: Op, attrs: dict[str, Any], operands: tuple[Any, ...], types: Sequence[Any], edges: tuple[Edge, ...],
        outs: Sequence[Any], out_types: tuple[Any, ...],
    ) -> None:  # fmt: skip
        super().__init__(edges, out_types)
        self.op = op
        self.attrs = attrs
        self.types = types
        every, positions, keep = _save_rule(op)
        if every:
            self.ins = operands
        else:
            self.ins = tuple([x if i in positions or type(x) in NUMBERS else None for i, x in enumerate(operands)])
        self.versions = [
            0 if x is None or type(x) in NUMBERS or x._storage is None else x._storage.version for x in self.ins
        ]
        self.outs: tuple[Any, ...] = tuple([SavedOut(t) for t in outs]) if keep else ()
        if modes.save_hooks:
            self.ins = tuple([Packed(x, e) if hasattr(x, "_data") else x for x, e in zip(self.ins, edges, strict=True)])
            self.outs = tuple([Packed(t, (self, i)) for i, t in enumerate(outs)]) if keep else ()

    def release(self) -> None:
        self.ins = None
        self.outs = ()

    def held(self) -> list[Tensor]:
        return [x for x in self.ins or () if hasattr(x, "_data")]

    def packed(self) -> list[Packed]:
        """What ``saved_tensors_hooks`` keep for this node."""
        return [x for x in (*(self.ins or ()), *self.outs) if isinstance(x, Packed)]

    def result_moved(self, new: Tensor) -> None:
        """This node's result was written into ``new``, which saved results now share."""
        for saved in self.outs:
            if isinstance(saved, SavedOut):
                saved.rebind(new)

    def backward(self, grads: Grads) -> Grads:
        wanted = tuple([e is not None for e in self.edges])
        present = tuple([g is not None for g in grads])
        program = self._program(wanted, present)
        like = next(g for g in grads if g is not None)
        if modes.grad or modes.recorder is not None:
            slots: list[Any] = [self._saved(i, like) if i in program.reads else None for i in range(self._count)]
            return program.run([*slots, *grads], type(like).__tracecomp_apply__)
        slots = [self._saved(i, like)._data if i in program.reads else None for i in range(self._count)]
        arrays = program.run([*slots, *[None if g is None else g._data for g in grads]], _run_on_arrays)
        return [None if a is None else like._wrap(np.asarray(a)) for a in arrays]

    def _program(self, wanted: tuple[bool, ...], present: tuple[bool, ...]) -> Derivative:
        sized = None if modes.recorder is None else modes.recorder.sized_nodes.get(self)
        if sized is not None:
            attrs, types, outs = sized
            return derivative(self.op, attrs, types, outs, wanted, present, keep=False)
        return derivative(self.op, self.attrs, self.types, self.out_types, wanted, present)

    def spent(self) -> bool:
        wanted, present = tuple([e is not None for e in self.edges]), (True,) * len(self.out_types)
        reads = self._program(wanted, present).reads
        return self.ins is None or any(map(self._overwritten, reads))

    def _overwritten(self, slot: int) -> bool:
        assert self.ins is not None
        if slot < len(self.types):
            x = self.ins[slot]
            return hasattr(x, "_data") and x._version != self.versions[slot]
        saved = self.outs[slot - len(self.types)]
        return isinstance(saved, SavedOut) and saved.overwritten()

    @property
    def _count(self) -> int:
        return len(self.types) + len(self.out_types)

    def _saved(self, slot: int, like: Tensor) -> Tensor:
        """The tensor in ``slot`` (operands, then results), unchanged since it was saved."""
        if self.ins is None:
            raise RuntimeError(FREED)
        if slot < len(self.types):
            x, version = self.ins[slot], self.versions[slot]
            if isinstance(x, Packed):
                return x.unpacked()
            if isinstance(x, NUMBERS):
                return like._create("full", value=x, shape=(), dtype=from_numpy_dtype(self.types[slot][0]))
            if x._version != version:
                raise RuntimeError(modified(x, version))
            return x  # type: ignore[no-any-return]
        number = slot - len(self.types)
        saved = self.outs[number]
        if isinstance(saved, Packed):
            return saved.unpacked()
        return saved.restored(self, number)  # type: ignore[no-any-return]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        if self.ins is None:
            raise RuntimeError(FREED)
        return tuple(x for x in self.ins if hasattr(x, "_data"))


class Packed:
    """A saved tensor in the form that ``saved_tensors_hooks`` gave it."""

    __slots__ = ("edge", "packed", "unpack")

    def __init__(self, tensor: Tensor, edge: Edge) -> None:
        hooks, modes.save_hooks = modes.save_hooks, ()
        try:
            pack, self.unpack = hooks[-1]
            self.packed = pack(tensor)
        finally:
            modes.save_hooks = hooks
        self.edge = edge

    def unpacked(self) -> Tensor:
        """The tensor again, with its place in the autograd graph."""
        tensor: Tensor = self.unpack(self.packed)
        if not hasattr(tensor, "_data"):
            raise TypeError(f"unpack hook should return a Tensor, but got {type(tensor).__name__}")
        result = tensor.detach()
        if modes.grad and self.edge is not None:
            result._grad_fn, result._output_nr = self.edge
        return result


class CopySlices(Node):
    """A write of ``value`` through a chain of views into ``base``; edges lead to the old base and the value."""

    __slots__ = ("chain",)

    def __init__(self, base: Edge, value: Edge, chain: tuple[View, ...], array: Array) -> None:
        super().__init__((base, value), ((array.dtype, array.shape),))
        self.chain = chain

    def backward(self, grads: Grads) -> Grads:
        grad = grads[0]
        assert grad is not None
        seen = look(grad, self.chain)
        zeros = seen._create("full", value=0, shape=tuple(seen.shape), dtype=seen.dtype)
        kept = None if self.edges[0] is None else write(grad, self.chain, zeros)
        return [kept, seen if self.edges[1] is not None else None]


def look(x: Any, chain: Sequence[View]) -> Any:
    """``x`` seen through a chain of views."""
    for op, attrs in chain:
        x = x.__tracecomp_apply__(op, (x,), attrs)
    return x


def write(base: Any, chain: Sequence[View], new: Any) -> Any:
    """``base`` with the elements seen through ``chain`` replaced by ``new``."""
    if not chain:
        return new
    op, attrs = chain[0]
    assert op.write is not None, op.name
    if len(chain) == 1:
        return op.write(base, new, **attrs)
    if "overlapping" in op.traits:
        return write_places(base, lambda x: look(x, chain), new)
    return op.write(base, write(look(base, chain[:1]), chain[1:], new), **attrs)


def op_node(
    op: Op, attrs: dict[str, Any], operands: tuple[Any, ...], types: Sequence[Any], edges: tuple[Edge, ...],
    outs: Sequence[Any], out_types: tuple[Any, ...],
) -> OpNode:  # fmt: skip
    """The node of one application; its class is named after the operator, as PyTorch's are."""
    cls = _classes.get(op.name)
    if cls is None:
        name = "".join(part.capitalize() for part in op.name.split("_")) + "Backward0"
        cls = _classes[op.name] = type(name, (OpNode,), {"__slots__": ()})
    return cls(op, attrs, operands, types, edges, outs, out_types)


def _run_on_arrays(op: Op, operands: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
    return op.impl(*operands, **attrs)


def modified(x: Any, expected: int | None, node: Node | None = None, number: int = 0) -> str:
    word = type_word(x.dtype)
    node, number = (x._grad_fn, x._output_nr) if node is None else (node, number)
    made = f", which is output {number} of {node.name()}," if node is not None else ""
    return (
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[torch.{word}Tensor {list(x._data.shape)}]{made} is at version {x._version}; expected version {expected} "
        "instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True)."
    )
