"""Two tensor objects that exchange what they are."""

from __future__ import annotations

import sys
import weakref

from tracecomp.base.capture_guide import Section
from tracecomp.base.interpreter import ARGUMENT_REFERENCES
from tracecomp.eager.modes import modes, module_changes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import FIELDS, Grads, all_attributes


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange the memory, history, gradient, class and attributes of two tensors; both objects remain.

    RuntimeError if a view, an alias or a weak reference shares one of them. A backward pass that saved one of the
    tensors before the swap, or has a gradient for it, raises RuntimeError.
    """
    if modes.recorder is not None:
        modes.recorder.refuse_here("swaps two tensors", Section.EXCLUDE)
    if t1 is t2:
        return
    for name, t in (("t1", t1), ("t2", t2)):
        _refuse_shared(name, t)
    for t in (t1, t2):
        _disconnect(t)
    module_changes.note()  # recordings check again which tensors they read
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    for field in FIELDS:
        first, second = getattr(t1, field), getattr(t2, field)
        setattr(t1, field, second)
        setattr(t2, field, first)
    # Nodes that saved one of the objects as an operand compare versions: none may equal the one they have seen.
    version = 1 + max(t1._version, t2._version)
    for t in (t1, t2):
        t._shared_storage().version = t._seen = version
    own, other = all_attributes(t1), all_attributes(t2)
    before = dict(own)
    for attributes, new in ((own, dict(other)), (other, before)):
        attributes.clear()
        attributes.update(new)


def _refuse_shared(name: str, t: Tensor) -> None:
    """RuntimeError if a weak reference, another tensor or a node refers to ``t`` or its memory."""
    if weakref.getweakrefs(t):
        raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    storage = t._shared_storage()
    # References: the tensor's or the storage's own, and the argument of getrefcount; the storage also has a variable.
    others = sys.getrefcount(storage) - 2 - ARGUMENT_REFERENCES + sys.getrefcount(storage.memory) - 2
    if others > 0:
        raise RuntimeError(
            f"Expected use_count of {name} to be 1 or 2 with an AccumulateGrad node but got {1 + others}, make sure "
            "you are not holding references to the tensor in other places."
        )


def _disconnect(t: Tensor) -> None:
    """Make the node that adds to ``t.grad`` raise: ``t`` will be another tensor when gradients arrive."""
    node = None if t._accumulator is None else t._accumulator()
    if node is not None and t.is_leaf:
        node.register_prehook(_refuse_gradient)
        t._accumulator = None


def _refuse_gradient(grads: Grads) -> None:
    raise RuntimeError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: the gradient belongs to a tensor "
        "that was swapped after the forward pass. Call swap_tensors before it."
    )
