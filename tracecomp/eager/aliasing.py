"""The aliasing model: views and their bases, writes, and where gradients go. See ``docs/architecture.md``."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from tracecomp.eager import dispatch, tangents
from tracecomp.eager.device import use
from tracecomp.eager.grad_fn import NUMBERS, AccumulateGrad, CopySlices, OpNode, op_node
from tracecomp.eager.modes import MEMORY, modes, module_changes
from tracecomp.eager.room import settle, settled
from tracecomp.eager.storage import Storage
from tracecomp.eager.tensor_base import (
    Array,
    Edge,
    Node,
    TensorBase,
    View,
    all_attributes,
    base_of,
    blank,
    owner,
    take_fields,
)
from tracecomp.ir.op import OPS, Attrs, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype

T = TypeVar("T", bound=TensorBase)


def gradient_edge(t: TensorBase) -> Edge:
    """The destination of the gradient of ``t``: its node and result number, its accumulator, or none."""
    if t._linked:
        refresh(t)
    if t._grad_fn is not None:
        return (t._grad_fn, t._output_nr)
    if not t._requires_grad:
        return None
    node = None if t._accumulator is None else t._accumulator()
    if node is None:
        node = AccumulateGrad(t)
        t._accumulator = weakref.ref(node)
    return (node, 0)


def track(op: Op, operands: tuple[Any, ...], attrs: Attrs, arrays: list[Any], outs: Sequence[TensorBase]) -> None:
    """Give the results a node when some operand requires grad."""
    edges: list[Edge] = []
    tracked = inference = False
    dtype = None
    types: list[Any] = []
    for x, a in zip(operands, arrays, strict=True):
        edge = None
        if isinstance(x, TensorBase):
            # The last array determines the type of Python numbers.
            dtype = a.dtype
            types.append((dtype, a.shape))
            # The cheap tests first: most tensors have no history.
            if x._grad_fn is not None or x._requires_grad or x._linked:
                edge = gradient_edge(x)
                tracked = tracked or edge is not None
            inference = inference or x._inference
        else:
            types.append(None if isinstance(a, NUMBERS) else (a.dtype, a.shape))
        edges.append(edge)
    if not tracked:
        return
    if inference and not modes.takes_inference:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
            "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use "
            "it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
        )
    out_types = tuple([(t._data.dtype, t._data.shape) for t in outs])
    # Whole numbers and bools have no derivative.
    if out_types[0][0].kind in "biu" and all(kind.kind in "biu" for kind, _ in out_types):
        return
    if None in types:
        types = [(dtype, ()) if kind is None else kind for kind in types]
    recorder = modes.recorder
    sized = recorder is not None and recorder.sized
    # Attributes may hold sizes that are formulas: rules of derivatives get their numbers, the recorder the formulas.
    given = recorder.sizes.without_sizes(attrs) if sized else attrs
    node = op_node(op, given, operands, types, tuple(edges), outs, out_types)
    if sized:
        recorder.sizes.note_node(node, attrs, operands, outs)
    for i, t in enumerate(outs):
        if t._data.dtype.kind not in "biu":
            t._grad_fn = node
            if i:
                t._output_nr = i


def own(t: T) -> T:
    """A copy of ``t`` in new memory."""
    result: T = t.__tracecomp_apply__(OPS["cast"], (t,), {"dtype": t.dtype})
    return result


def before_write(target: T, others: tuple[object, ...]) -> T:
    """``target`` as an operand of the operation that overwrites it: a copy when derivatives may read it afterwards."""
    if not modes.grad:
        return target
    if target.requires_grad:
        return target if target.is_leaf else own(target)
    return own(target) if any(getattr(x, "requires_grad", False) for x in others) else target


def assign_(target: TensorBase, value: TensorBase) -> None:
    """Replace ``target``'s elements by those of ``value``, a fresh result of its shape: the only function that writes.

    Memory is written, and the storage's version counts. The history of the base becomes "the base with the elements
    seen through the view replaced by ``value``". RuntimeError where PyTorch forbids the write.
    """
    history = modes.grad and (value.requires_grad or target.requires_grad)
    check_write(target, history)
    if value._data.shape != target._data.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
        )
    if value._data.dtype != target._data.dtype:
        value = value.__tracecomp_apply__(OPS["cast"], (value,), {"dtype": target.dtype})
    edge = gradient_edge(value) if history else None
    before = gradient_edge(base_of(target) if target._linked else target) if history else None
    if use.begun and dispatch.asked((target, value)):
        dispatch.call("copy_", target, value)
    else:
        _copy(target._data, value._data)
    if modes.recorder is not None:
        modes.recorder.write(target, value)  # reads histories in their old state: the write below is not counted yet
    target._shared_storage().wrote()
    if use.begun and modes.levels:
        tangents.written(target, value)
    if history:
        _rebase(target, value, before, edge)


def _rebase(target: TensorBase, value: TensorBase, before: Edge, edge: Edge) -> None:
    if edge is not None and isinstance(edge[0], OpNode):
        edge[0].result_moved(target)
    base = base_of(target) if target._linked else None
    if base is None:
        if edge is None or isinstance(edge[0], AccumulateGrad):
            edge = (_written(before, edge, (), target), 0)
        target._grad_fn, target._output_nr = edge
        target._requires_grad = False
        target._seen = target._version
        return
    base._grad_fn, base._output_nr = _written(before, edge, target._chain, base), 0
    base._requires_grad = False


def _written(before: Edge, value: Edge, chain: tuple[View, ...], base: TensorBase) -> Node:
    node = CopySlices(before, value, chain, base._data)
    if modes.recorder is not None and modes.recorder.sized:
        modes.recorder.sizes.note_results(node, [base])
    return node


def _copy(target: Array, value: Array) -> None:
    try:
        np.copyto(target, value)
    except ValueError:
        if target.flags.writeable:
            raise
        raise RuntimeError(
            "the memory of this tensor is read-only: it belongs to a numpy array or a file that cannot be written. "
            "Please clone() the tensor before performing the operation."
        ) from None


def check_places(array: Array) -> None:
    """RuntimeError when ``array`` shows memory several times, so that it cannot be written."""
    if (
        0 in array.strides
        and array.size
        and any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def check_write(target: TensorBase, history: bool) -> None:
    """RuntimeError where ``target`` cannot be written, with or without ``history``."""
    check_places(target._data)
    if target._inference and not modes.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed."
            "You can make a clone to get a normal tensor before doing inplace update."
        )
    if history:
        check_history(target)


def check_history(target: TensorBase) -> None:
    """RuntimeError where an in-place operation on ``target`` cannot become part of its history."""
    base = base_of(target) if target._linked else target._base
    if base is not None and target._unwritable is not None:
        raise RuntimeError(target._unwritable)
    if target._requires_grad and target.grad_fn is None:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if base is not None and target._linked and base._requires_grad and base.grad_fn is None:
        raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")


NO_GRAD_VIEW = (
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case "
    "is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace "
    "either both inside the no_grad block (if you don't want the inplace to be tracked) or both outside (if you want "
    "the inplace to be tracked)."
)


INFERENCE_VIEW = NO_GRAD_VIEW.replace("no_grad mode", "inference mode").replace("grad mode enabled", "normal mode", 1)


def link(view: TensorBase, source: TensorBase, step: View) -> None:
    """Make ``view`` a view of ``source``, when they share memory."""
    if not view._data.size or np.may_share_memory(view._data, source._data):
        attach(view, source, (step,), modes.grad)
        if not modes.grad:
            ask_as(view, source)


def ask_as(view: TensorBase, source: TensorBase) -> None:
    """Mark ``view``, created without gradients, as a leaf that requires grad if its base does, as in PyTorch."""
    if source.requires_grad and view._data.dtype.kind not in "biu":
        view._requires_grad = True


def attach(view: TensorBase, source: TensorBase, steps: tuple[View, ...], follows: bool) -> None:
    """Make ``view`` a view of ``source``, through ``steps``.

    ``follows``: it has the history of its base, like views that are created while gradients are enabled.
    """
    view._storage = source._shared_storage()
    view._seen = view._storage.version
    if source._linked:
        view._base, view._chain = base_of(source), (*source._chain, *steps)
    else:
        view._base, view._chain = source, steps
    view._linked = True
    if source._unwritable is not None:
        view._unwritable = source._unwritable
    if not follows:
        view._quiet = True
        view._unwritable = INFERENCE_VIEW if modes.inference else NO_GRAD_VIEW
    if source._inference:
        view._inference = True


def several_views(views: Iterable[T], name: str) -> tuple[T, ...]:
    """The views that one function ``name`` returned together: autograd forbids writes to them, as PyTorch does."""
    found = tuple(views)
    for i, view in enumerate(found):
        if view._base is not None:
            view._unwritable = (
                f"Output {i} of {name}Backward0 is a view and is being modified inplace. This view is the output of a "
                "function that returns multiple views. Such functions do not allow the output views to be modified "
                "inplace. You should replace the inplace operation by an out-of-place one."
            )
    return found


def alias(source: T) -> T:
    """The same memory, without history."""
    wrapped = type(source) in dispatch.CLASSES
    alias = cast("T", dispatch.without_history(source) if wrapped else source._wrap(settled(source)))
    alias._storage = source._shared_storage()
    root, alias._chain = owner(source)
    alias._source = weakref.ref(root)
    if modes.recorder is not None:
        modes.recorder.alias(alias, source)
    return alias


def former_of(target: T) -> T:
    """A tensor with the current state of ``target``, before ``target`` changes its state.

    A leaf that is a view stays a leaf, so its new state must not find a history here.
    """
    settle(target._data)
    former = blank(type(target))
    take_fields(former, target)
    former._grad, former._reshaped = None, False
    if target._linked:
        former._requires_grad = False
    return former


def reshape_(target: T, former: T, view: T) -> None:
    """Make ``target``, whose former self is ``former``, the ``view`` of it: an in-place change of its shape.

    Memory and storage stay. Views of ``target`` become views of ``former``, see ``base_of``. The storage's version
    counts, as in PyTorch: tensors saved for a backward pass now have another shape.
    """
    if view is not former:
        had_own_memory = target._reshaped or not target._linked
        if target._requires_grad and target._grad_fn is None and not target._linked:
            _keep_leaf(target, former, view)
        else:
            # Only set fields are copied: the gradient and the hooks of the tensor are kept.
            take_fields(target, view)
            if view._grad_fn is not None:
                target._output_nr = view._output_nr
            target._reshaped = had_own_memory
            _look_again(target)
        if modes.recorder is not None:
            modes.recorder.reshape(target, former)
    storage = target._shared_storage()
    storage.wrote()
    target._seen = storage.version


def _keep_leaf(target: TensorBase, former: TensorBase, view: TensorBase) -> None:
    """Give leaf ``target`` the shape of ``view``, without making it a view: gradients are for ``target`` itself."""
    module_changes.note(MEMORY)
    old = target._shared_storage()
    _leave_to_views(target, former)
    target._storage = Storage(old.memory)
    target._storage.version = old.version
    target._data, target._value, target._look = view._data, view._value, view._look
    _look_again(target)


def replace_memory(target: TensorBase, value: TensorBase) -> None:
    """Make ``target`` share the memory of ``value``; old views of ``target`` keep the old memory."""
    former = former_of(target)
    module_changes.note(MEMORY)  # recordings check again which tensors are views
    old = target._shared_storage()
    old.share()
    if modes.recorder is not None:
        modes.recorder.replace(target, value, former)
    if target._reshaped:
        old.former = base_of(target)
    elif not target._linked:
        _leave_to_views(target, former)
    target._storage = Storage(value._shared_storage().memory)
    # A node that saved a result needs its old elements: a backward pass that would read others has to fail.
    target._storage.version = old.version + (target._grad_fn is not None)
    target._data = settled(value)
    target._base, target._source, target._chain, target._linked = None, None, (), False
    target._reshaped, target._unwritable, target._quiet = False, None, False
    target._seen = target._storage.version
    _look_again(target)


def _leave_to_views(target: TensorBase, former: TensorBase) -> None:
    """Make ``former`` represent ``target`` for the views that share the storage that ``target`` leaves.

    It gets the storage back when one of them is used: until then no cycle keeps memory alive.
    """
    if former._requires_grad and former._grad_fn is None:
        edge = gradient_edge(target)
        assert edge is not None
        former._accumulator = weakref.ref(edge[0])
        all_attributes(former)["_kept"] = edge[0]
    if former._storage is not None:
        former._storage.former = former
    former._storage = None


def _look_again(target: TensorBase) -> None:
    """Expect gradients of the shape that leaf ``target`` has got."""
    accumulator = None if target._accumulator is None else target._accumulator()
    if accumulator is not None:
        accumulator.look()


def is_refused(t: TensorBase) -> bool:
    """Whether ``t`` is a view that cannot take the history that its base has got."""
    if t._unwritable is None or not t._linked or t._base is None or t._seen == t._version:
        return False
    return gradient_edge(base_of(t)) is not None


def history_if_allowed(t: TensorBase) -> Node | None:
    """The start of the history of ``t``; None if requesting it is an error."""
    return None if is_refused(t) else t.grad_fn


def refresh(view: TensorBase) -> None:
    """Take a linked view's history from its base again when the storage has been written since.

    RuntimeError where that would be a history that the view cannot have, see ``_unwritable``.
    """
    storage = view._storage
    assert storage is not None
    if view._seen == storage.version:
        return
    base = base_of(view)
    edge = gradient_edge(base)
    if edge is not None and view._unwritable is not None:
        indirect = "its base or another view of its base has been modified"
        raise RuntimeError(view._unwritable.replace("is being modified", indirect))
    view._seen = storage.version
    if edge is None:
        return
    dtype, shape = base._data.dtype, base._data.shape
    for op, attrs in view._chain:
        (out,) = op.result_types([TensorType(from_numpy_dtype(dtype), shape)], attrs)
        kind = out.dtype.numpy
        node = op_node(op, attrs, (None,), [(dtype, shape)], (edge,), (), ((kind, out.shape),))
        edge, dtype, shape = (node, 0), kind, out.shape
    view._grad_fn, view._output_nr = edge
    view._requires_grad = False


def check_types(op: Op, operands: tuple[object, ...], attrs: Attrs) -> None:
    """Raise the operator's own error about operand types, if they are invalid."""
    dtype = next((x.dtype for x in reversed(operands) if isinstance(x, TensorBase)), None)
    types = [
        TensorType(x.dtype, x._data.shape) if isinstance(x, TensorBase) else TensorType(dtype, ())  # type: ignore[arg-type]
        for x in operands
    ]
    op.result_types(types, attrs)
