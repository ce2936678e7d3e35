"""Construction of the tensors that a call leaves behind, from its outputs, with views and histories as in eager
mode."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracecomp.compiled.autograd import CompiledNode, Freed
from tracecomp.eager.aliasing import attach
from tracecomp.eager.modes import modes
from tracecomp.eager.room import RoomArray
from tracecomp.eager.tensor import Tensor, shared
from tracecomp.eager.tensor_base import View
from tracecomp.eager.views import look
from tracecomp.record.binding import tensor_of
from tracecomp.record.guards.reads import Read
from tracecomp.record.pytree import LEAF, Leaves, begin, fill, unflatten
from tracecomp.record.recording import Repeated
from tracecomp.record.results import (
    PLAIN,
    Common,
    Found,
    Given,
    Held,
    History,
    Made,
    Passed,
    Plain,
    Result,
    Seen,
    SizeResult,
    bottom,
    lowest,
)
from tracecomp.record.symbolic.sym_int import settled

Array = np.ndarray[Any, Any]


class Builder:
    """Makes the results of one call. ``node`` is the history of its differentiable results.

    ``sizes`` are the dynamic sizes of this call, if its program has some; ``given`` are its arguments.
    """

    def __init__(
        self, leaves: Leaves, outputs: Sequence[Array] | Mapping[int, Array],
        node: CompiledNode | None = None,
        sizes: Sequence[int] | None = None, given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {}),
    ) -> None:  # fmt: skip
        self._leaves = leaves
        self._outputs = outputs
        self._node = node
        self._sizes = sizes
        self._given = given
        self._made: dict[int, Tensor] = {}
        self._containers: dict[int, Any] = {}
        self._found: dict[Read, Any] = {}

    def effect(self, e: Repeated) -> Callable[[], object]:
        """Make all that an effect needs, and return a function that repeats it."""
        args = [self.value(r) for r in e.results] if e.flat else self.values(e.structure, e.results)
        return partial(e.apply, *args) if e.owner is None else partial(e.apply, self._located(e.owner), *args)

    def _located(self, read: Read) -> Any:
        """The object at the end of ``read`` before the effects of this call."""
        if read not in self._found:
            owner = read.owner
            self._found[read] = read.now(self._given) if owner is None else read.fetch(self._located(owner))
        return self._found[read]

    def values(self, structure: object, results: Sequence[Result]) -> Any:
        """Build the call's values for ``results``, in their structure."""
        return unflatten(structure, [self.value(r) for r in results])

    def value(self, r: Result) -> Any:
        """Build the call's value for ``r``: one object for each tensor, and for each container."""
        if isinstance(r, Plain):
            return r.value.copy() if isinstance(r.value, np.ndarray) else r.value
        if isinstance(r, Made | Seen | Given):
            found = self._made.get(id(r))
            return self.tensor(r) if found is None else found
        if isinstance(r, Found):
            return self._located(r.read)
        if isinstance(r, Common):
            found = self._containers.get(id(r))
            return self._common(r) if found is None else found
        if isinstance(r, Passed):
            return self._leaves[r.number]
        if isinstance(r, SizeResult):
            return r.at(self._sizes)
        return self._outputs[r.number].item()

    def _common(self, r: Common) -> Any:
        if not r.holds_itself:
            found = self._containers[id(r)] = self.values(r.structure, r.results)
            return found
        found = self._containers[id(r)] = begin(r.structure)
        fill(found, r.structure, map(self.value, r.results))
        return found

    def tensor(self, r: Held) -> Tensor:
        """The tensor of ``r``."""
        if not isinstance(r, Seen):
            found = self._made.get(id(r))
            if found is None:
                found = self._made[id(r)] = self._new(r)
            return found
        path: list[Held] = [r]
        while isinstance(last := path[-1], Seen) and id(last) not in self._made:
            path.append(last.of)
        for x in reversed(path):
            if id(x) not in self._made:
                self._made[id(x)] = self._new(x)
        return self._made[id(r)]

    def keep(self, r: Held, t: Tensor) -> None:
        """Use ``t``, which exists already, for ``r``."""
        self._made[id(r)] = t

    def rebase(self, t: Tensor, root: int | None) -> None:
        """Make differentiable result ``root`` the history of ``t``; without a root, a history that was used up."""
        kind = (t._data.dtype, t._data.shape)
        if root is None:
            t._grad_fn, t._output_nr = Freed((), (kind,)), 0
        elif self._node is not None:
            t._grad_fn, t._output_nr = self._node.add_root(root, kind)
        t._requires_grad = False

    def _new(self, r: Held) -> Tensor:
        if isinstance(r, Given):
            found = tensor_of(r.source, self._leaves)
            return found if isinstance(found, Tensor) else shared(found)
        t = self._seen(r, self._made[id(r.of)]) if isinstance(r, Seen) else self._own(r)
        if r.history is not None:
            self._remember(t, r.history)
        if r.grad is not None:
            t._grad = self.tensor(r.grad)
        if r.kind is not Tensor:
            t.__class__ = r.kind
        return t

    def _own(self, r: Made) -> Tensor:
        array = self._outputs[r.number]
        t = Tensor._wrap(array if r.order is None else array.transpose(np.argsort(r.order)))
        if type(array) is RoomArray:
            array.owner = weakref.ref(t)
        if r.inference:
            t._inference = True
        return t

    def _seen(self, r: Seen, of: Tensor) -> Tensor:
        if not r.steps:
            return of.data if r.apart else of.detach()
        if r.layout is not None and of._grad_fn is None and not of._requires_grad:
            dtype, shape, strides, offset = r.layout
            t = Tensor._wrap(np.ndarray(shape, dtype, self._outputs[bottom(r).number], offset, strides))
            attach(t, of, r.steps, r.follows)
        else:
            steps = [(op, settled(attrs, self._sizes)) for op, attrs in r.steps]
            # A view that cannot take its base's history gets none here: asking for it is an error.
            t = _view(of, steps, r.follows and not (r.history is not None and r.history.refused))
            t._quiet, t._unwritable = not r.follows, of._unwritable if r.follows else t._unwritable
            if not r.follows:  # its base may have got a history later; the view's history determines requires_grad
                t._requires_grad = False
        if r.unwritable is not None:
            t._unwritable = r.unwritable
        return t

    def _remember(self, t: Tensor, history: History) -> None:
        if history.root is not None or history.freed:
            self.rebase(t, history.root)
        elif history.leaf:
            t._requires_grad = True
        if history.version:
            t._shared_storage().version = history.version
        if history.refused:
            t._seen = -1


class Finish:
    """Makes what a native call returns of tensors over its outputs, and of tensors from outside."""

    def __init__(self, results: Sequence[Held | Plain], structure: object) -> None:
        held = [lowest(r) for r in results if not isinstance(r, Plain)]
        self.below = [*{id(r): r for r in held}.values()]
        self._results = results
        self._structure = structure
        self._quick = _quick(results[0]) if structure is LEAF else None

    def __call__(self, found: tuple[Tensor, ...]) -> Any:
        """``found`` are the tensors for ``below``."""
        if self._quick is not None:
            return self._quick(found[0])
        builder = Builder((), {r.number: t._data for r, t in zip(self.below, found, strict=True) if type(r) is Made})
        for r, t in zip(self.below, found, strict=True):
            if isinstance(r, Given) or (r.order is None and r.history is PLAIN and not r.inference):
                builder.keep(r, t)
        return builder.values(self._structure, self._results)


def _quick(r: Held | Plain) -> Callable[[Tensor], Tensor] | None:
    """Makes the only result from the tensor that native code has made for its memory, where that is simple."""
    if isinstance(r, Made) and r.order is not None and r == Made(r.number, r.order):
        axes = tuple(map(int, np.argsort(r.order)))

        def turned(t: Tensor) -> Tensor:
            t._data = t._data.transpose(axes)
            return t

        return turned
    if not isinstance(r, Seen) or not isinstance(r.of, Made) or not r.steps or r.layout is None:
        return None
    if r != Seen(Made(r.of.number), r.steps, r.layout, r.follows, False):
        return None
    (dtype, shape, strides, offset), steps, follows = r.layout, r.steps, r.follows

    def seen(of: Tensor) -> Tensor:
        t = Tensor._wrap(np.ndarray(shape, dtype, of._data, offset, strides))
        attach(t, of, steps, follows)
        return t

    return seen


def _view(of: Tensor, steps: Sequence[View], follows: bool) -> Tensor:
    before, modes.grad = modes.grad, follows
    try:
        found: Tensor = look(of, steps)
        return found
    finally:
        modes.grad = before
