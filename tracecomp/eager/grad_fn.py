"""The nodes of the autograd graph that operators make. The engine that runs them is ``tracecomp.autograd``."""

from __future__ import annotations

import weakref
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from tracecomp.eager import dispatch, meta
from tracecomp.eager.device import use
from tracecomp.eager.evaluate import evaluate
from tracecomp.eager.modes import modes
from tracecomp.eager.storage import Storage
from tracecomp.eager.tensor_base import Array, Edge, Grads, Node, TensorBase, View
from tracecomp.eager.views import look, write
from tracecomp.eager.vjp_program import ArrayType, Derivative, derivative
from tracecomp.ir.graph import attrs_key
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import from_numpy_dtype, type_word

FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
    "saved tensors after calling backward."
)


class AccumulateGrad(Node):
    """The end of a path: adds what arrives to ``variable.grad``."""

    __slots__ = ("post_accumulate", "variable")

    def __init__(self, variable: TensorBase) -> None:
        array = variable._data
        super().__init__((), ((array.dtype, array.shape),))
        self.variable = variable

    def form(self) -> Any:
        t = self.variable
        return None if self.observed or t._hooks or t._post_hooks else self.out_types

    def look(self) -> None:
        """Expect gradients of the dtype and shape that ``variable`` has now."""
        array = self.variable._data
        self.out_types = ((array.dtype, array.shape),)

    def held(self) -> Sequence[TensorBase]:
        return [self.variable]


class SavedOut:
    """A result kept for backward: not the tensor itself, whose ``grad_fn`` would point back here."""

    __slots__ = ("array", "make", "storage", "tangents", "value", "version")

    def __init__(self, tensor: TensorBase) -> None:
        self.rebind(tensor)
        self.value = tensor._value
        self.tangents = tensor._tangents if use.begun else None
        self.make = tensor._wrap
        if type(tensor) in dispatch.CLASSES:
            bare = dispatch.without_history(tensor)
            self.make = lambda array: dispatch.without_history(bare)

    def rebind(self, tensor: TensorBase) -> None:
        self.array = tensor._data
        self.storage: Storage = tensor._shared_storage()
        self.version = self.storage.version

    def overwritten(self) -> bool:
        return self.version != self.storage.version

    def tensor(self) -> TensorBase:
        """The result's memory as a tensor, whether or not it was modified since."""
        result = self.make(self.array)
        result._storage = self.storage
        result._value = self.value
        if self.tangents is not None:
            result._tangents = self.tangents
        return result

    def restored(self, node: Node, number: int) -> TensorBase:
        """The result as a tensor; RuntimeError when it was modified since."""
        result = self.tensor()
        if self.overwritten():
            raise RuntimeError(modified(result, self.version, node, number))
        if modes.grad:
            result._grad_fn, result._output_nr = node, number
        return result


NUMBERS = (bool, int, float, complex)
_UNREAD, _NEVER = (None,), (0,)
"""The operand of a node that reads none, and how often it was written."""
_classes: dict[str, type[OpNode]] = {}


def _stays(x: Any) -> bool:
    """Whether a saved operand is kept when a node frees its values: numbers, and tensors created from numbers alone.

    A recording traces all tensors, so it frees the latter too.
    """
    return type(x) in NUMBERS or (isinstance(x, TensorBase) and x._inside and modes.recorder is None)


class ProgramNode(Node):
    """A node whose derivative is a program on saved values, which can become part of a larger one.

    ``sums`` numbers the edges with several gradients, which eager mode adds one by one to an earlier one.
    """

    __slots__ = ()

    sums: Set[int] = frozenset()

    def program(self, present: tuple[bool, ...]) -> Derivative:
        """The gradients of operands with edges, from those of the results that are ``present``."""
        raise NotImplementedError

    def value_types(self) -> Sequence[ArrayType]:
        """The dtypes and shapes of the values that the program may read."""
        raise NotImplementedError

    def take(self, slots: Sequence[int], arrays: list[Array]) -> bool:
        """Add the saved values in ``slots`` to ``arrays``; False if one of them is not as it was saved."""
        raise NotImplementedError


class OpNode(ProgramNode):
    """The application of a primitive. Saved operands are the tensors with the version seen."""

    __slots__ = ("attrs", "ins", "numbers", "op", "outs", "types", "versions")

    ins: tuple[Any, ...] | None
    outs: tuple[Any, ...]
    versions: Sequence[int]
    # Operands of the class's operator that backward may read, all or some, and whether it reads results.
    all_ins: bool
    some_ins: frozenset[int]
    keeps_outs: bool
    behind: dict[int, tuple[weakref.ref[Node], int]] | None = None
    """Nodes of results at which gradients accumulate: they have edges to this one, and other histories refer to
    them."""

    def __init__(
        self, op: Op, attrs: Attrs, operands: tuple[Any, ...], types: Sequence[Any], edges: tuple[Edge, ...],
        outs: Sequence[Any], out_types: tuple[Any, ...],
    ) -> None:  # fmt: skip
        super().__init__(edges, out_types)
        self.op = op
        self.attrs = attrs
        self.types = types
        if not outs and len(operands) == 1 and operands[0] is None:  # a view's, which many nodes are made for
            self.ins, self.versions, self.outs = _UNREAD, _NEVER, ()
            return
        if self.all_ins:
            self.ins = operands
        else:
            some = self.some_ins
            self.ins = tuple([x if i in some or type(x) in NUMBERS else None for i, x in enumerate(operands)])
        self.versions = [
            0 if x is None or type(x) in NUMBERS or x._storage is None else x._storage.version for x in self.ins
        ]
        keep = self.keeps_outs
        self.outs = tuple([SavedOut(t) for t in outs]) if keep else ()
        if modes.save_hooks:
            pairs = zip(self.ins, edges, strict=True)
            self.ins = tuple([x if x is None or _stays(x) else Packed(x, e) for x, e in pairs])
            self.outs = tuple([Packed(t, (self, i)) for i, t in enumerate(outs)]) if keep else ()

    def release(self) -> None:
        # A node without values to free may run again, as in PyTorch.
        if self.ins is not None:
            self.numbers = {i: x for i, x in enumerate(self.ins) if x is not None and _stays(x)}
        self.ins = None
        self.outs = ()

    def held(self) -> Sequence[TensorBase]:
        return [x for x in self.ins or () if isinstance(x, TensorBase)]

    def operands(self) -> Sequence[Any]:
        """The saved value of each operand, None if there is none; for a released node, the numbers."""
        return [self.numbers.get(i) for i in range(len(self.edges))] if self.ins is None else self.ins

    def packed(self) -> list[Packed]:
        """The values that ``saved_tensors_hooks`` keep for this node."""
        return [x for x in (*(self.ins or ()), *self.outs) if isinstance(x, Packed)]

    def note_tangents(self, result: TensorBase, operands: Sequence[Any]) -> None:
        """Keep the tangents of ``result``, one of this node's, and of packed operands, which ``operands`` give."""
        if self.outs:
            self.outs[result._output_nr].tangents = result._tangents
        for saved, tangents in zip(self.ins or (), operands, strict=False):
            if isinstance(saved, Packed):
                saved.tangents = tangents

    def result_moved(self, new: TensorBase) -> None:
        """This node's result was written into ``new``, which saved results now share."""
        for saved in self.outs:
            if isinstance(saved, SavedOut):
                saved.rebind(new)

    def form(self) -> Any:
        if self.observed or self.ins is None or self.op.is_separate or self.op.kind == "external":
            return None
        return type(self), attrs_key(self.attrs), tuple(self.types), self.out_types

    def program(self, present: tuple[bool, ...]) -> Derivative:
        return self._program(tuple([e is not None for e in self.edges]), present)

    def value_types(self) -> Sequence[ArrayType]:
        return (*self.types, *self.out_types)

    def take(self, slots: Sequence[int], arrays: list[Array]) -> bool:
        types, ins = self.types, self.ins
        assert ins is not None
        for slot in slots:
            if slot >= len(types):
                saved = self.outs[slot - len(types)]
                if type(saved) is not SavedOut or saved.overwritten():
                    return False
                array = saved.array
            else:
                x = ins[slot]
                if isinstance(x, NUMBERS):
                    array = np.full((), x, types[slot][0])
                elif not isinstance(x, TensorBase) or x._version != self.versions[slot]:
                    return False
                else:
                    array = x._data
                    if (array.dtype, array.shape) != types[slot]:
                        return False
            arrays.append(array)
        return True

    def backward(self, grads: Grads) -> Grads:
        present = tuple([g is not None for g in grads])
        program = self.program(present)
        like = next(g for g in grads if g is not None)
        if not use.begun or dispatch.asked(grads):
            return self._derived(program, grads, like)
        with meta.placed(meta.place_of([like._data])):
            return self._derived(program, grads, like)

    def _derived(self, program: Derivative, grads: Grads, like: TensorBase) -> Grads:
        if modes.grad or modes.recorder is not None or (use.begun and self._asks(grads)):
            slots: list[Any] = [self._saved(i, like) if i in program.reads else None for i in range(self._count)]
            run, recorder = type(like).__tracecomp_apply__, modes.recorder
            if recorder is not None:
                found: Grads = recorder.unobserved(program.run, [*slots, *grads], run)
                return found
            return program.run([*slots, *grads], run)
        slots = [self._saved(i, like)._data if i in program.reads else None for i in range(self._count)]
        arrays = program.run([*slots, *[None if g is None else g._data for g in grads]], run_on_arrays)
        return [None if a is None else like._wrap(np.asanyarray(a)) for a in arrays]

    def _asks(self, grads: Grads) -> bool:
        """Return whether a mode or a subclass handles the operators of this step, or tangents pass through it."""
        return (
            bool(modes.levels)
            or dispatch.asked((*grads, *(self.ins or ())))
            or any(isinstance(saved, SavedOut) and dispatch.asked((saved.tensor(),)) for saved in self.outs)
        )

    def _program(self, wanted: tuple[bool, ...], present: tuple[bool, ...]) -> Derivative:
        sized = None if modes.recorder is None else modes.recorder.sizes.sized_nodes.get(self)
        if sized is not None:
            attrs, types, outs = sized
            return derivative(self.op, attrs, types, outs, wanted, present, keep=False)
        return derivative(self.op, self.attrs, self.types, self.out_types, wanted, present)

    def spent(self) -> bool:
        return self.keeps() if self.ins is None else any(map(self._overwritten, self._reads()))

    def keeps(self) -> bool:
        """Whether backward reads anything but numbers: a pass lets go of it."""
        numbers = self.numbers if self.ins is None else [i for i, x in enumerate(self.ins) if _stays(x)]
        return any(slot not in numbers for slot in self._reads())

    def _reads(self) -> frozenset[int]:
        return self.program((True,) * len(self.out_types)).reads

    def _overwritten(self, slot: int) -> bool:
        assert self.ins is not None
        if slot < len(self.types):
            x = self.ins[slot]
            return isinstance(x, TensorBase) and x._version != self.versions[slot]
        saved = self.outs[slot - len(self.types)]
        return isinstance(saved, SavedOut) and saved.overwritten()

    @property
    def _count(self) -> int:
        return len(self.types) + len(self.out_types)

    def _saved(self, slot: int, like: TensorBase) -> TensorBase:
        """The tensor in ``slot`` (operands, then results), unchanged since it was saved."""
        if self.ins is None and slot not in self.numbers:
            raise RuntimeError(FREED)
        if slot < len(self.types):
            x, version = self.numbers[slot] if self.ins is None else self.ins[slot], self.versions[slot]
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
        before = None if self.behind is None else self.behind.get(number)
        node = None if before is None else before[0]()
        found: TensorBase = saved.restored(self if node is None else node, before[1] if node and before else number)
        return found

    @property
    def saved_tensors(self) -> tuple[TensorBase, ...]:
        if self.ins is None:
            raise RuntimeError(FREED)
        return tuple(x for x in self.ins if isinstance(x, TensorBase))


class Packed:
    """A saved tensor in the form that ``saved_tensors_hooks`` gave it."""

    __slots__ = ("edge", "packed", "tangents", "unpack")

    def __init__(self, tensor: TensorBase, edge: Edge) -> None:
        self.tangents: dict[Any, Any] | None = None  # hooks get the elements only
        hooks, modes.save_hooks = modes.save_hooks, ()
        try:
            pack, self.unpack = hooks[-1]
            self.packed = pack(tensor)
        finally:
            modes.save_hooks = hooks
        self.edge = edge

    def unpacked(self) -> TensorBase:
        """The tensor again, with its place in the autograd graph and its tangents."""
        tensor: TensorBase = self.unpack(self.packed)
        if not isinstance(tensor, TensorBase):
            raise TypeError(f"unpack hook should return a Tensor, but got {type(tensor).__name__}")
        result = tensor.detach()
        if modes.grad and self.edge is not None:
            result._grad_fn, result._output_nr = self.edge
        if self.tangents:
            result._tangents = self.tangents
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


_NAMES = {"concat": "cat"}
"""PyTorch's names of operators that have others here."""


def op_node(
    op: Op, attrs: Attrs, operands: tuple[object, ...], types: Sequence[object], edges: tuple[Edge, ...],
    outs: Sequence[object], out_types: tuple[object, ...],
) -> OpNode:  # fmt: skip
    """The node of one application; its class is named after the operator, as PyTorch's are."""
    cls = _classes.get(op.name)
    if cls is None:
        name = "".join(part.capitalize() for part in _NAMES.get(op.name, op.name).split("_")) + "Backward0"
        some = frozenset(s for s in op.saves if isinstance(s, int))
        saved = {"all_ins": "ins" in op.saves, "some_ins": some, "keeps_outs": "outs" in op.saves}
        cls = _classes[op.name] = type(name, (OpNode,), {"__slots__": (), **saved})
    return cls(op, attrs, operands, types, edges, outs, out_types)


def run_on_arrays(op: Op, operands: tuple[object, ...], attrs: Attrs) -> Any:
    """Run a step of a derivative on arrays."""
    if use.begun:
        if modes.watch is not None:
            modes.watch(op, operands, attrs)
        place = meta.place_of_results(op, operands)
        if place is not None:
            return meta.apply(op, operands, attrs, place)
    return meta.laid_out(op, operands, evaluate(op, operands, attrs))


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
