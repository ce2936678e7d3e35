"""The tensors that a call leaves behind, made anew from its outputs, with views and histories as eager ones have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tracecomp.compiled.autograd import CompiledNode, Freed
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, shared
from tracecomp.eager.tensor_base import View
from tracecomp.eager.views import look
from tracecomp.record.binding import tensor_of
from tracecomp.record.results import Followed, Given, Held, History, Passed, Plain, Seen

Array = np.ndarray[Any, Any]
Attrs = dict[str, Any]


class Builder:
    """Makes the results of one call. ``node`` is the history of its differentiable results.

    ``settle`` gives the attributes of a view for the sizes of this call.
    """

    def __init__(
        self, leaves: Sequence[Any], outputs: Sequence[Array], node: CompiledNode | None,
        settle: Callable[[Attrs], Attrs] | None,
    ) -> None:  # fmt: skip
        self._leaves = leaves
        self._outputs = outputs
        self._node = node
        self._settle = settle
        self._made: dict[int, Tensor] = {}

    def value(self, r: Held | Followed | Passed | Plain) -> Any:
        """What the call returns for ``r``: one object for each tensor."""
        if isinstance(r, Plain):
            return r.value.copy() if isinstance(r.value, np.ndarray) else r.value
        if isinstance(r, Passed):
            return self._leaves[r.number]
        if isinstance(r, Followed):
            return self._outputs[r.number].item()
        return self.tensor(r)

    def tensor(self, r: Held) -> Tensor:
        """The tensor that ``r`` stands for."""
        path = [r]
        while isinstance(last := path[-1], Seen) and id(last) not in self._made:
            path.append(last.of)
        for x in reversed(path):
            if id(x) not in self._made:
                self._made[id(x)] = self._new(x)
        return self._made[id(r)]

    def keep(self, r: Held, t: Tensor) -> None:
        """Let ``r`` stand for ``t``, which is there already."""
        self._made[id(r)] = t

    def rebase(self, t: Tensor, root: int | None) -> None:
        """Make differentiable result ``root`` the history of ``t``; without a root, a history that was used up."""
        kind = (t._data.dtype, t._data.shape)
        if root is None:
            t._grad_fn, t._output_nr = Freed((), (kind,)), 0
        elif self._node is not None:
            self._node.add_root(root, kind)
            t._grad_fn, t._output_nr = self._node, root
        t._requires_grad = False

    def _new(self, r: Held) -> Tensor:
        if isinstance(r, Given):
            found = tensor_of(r.source, self._leaves)
            return found if isinstance(found, Tensor) else shared(found)
        if isinstance(r, Seen):
            t = self._seen(r, self._made[id(r.of)])
        else:
            array = self._outputs[r.number]
            t = Tensor._wrap(array if r.order is None else array.transpose(np.argsort(r.order)))
            if r.inference:
                t._inference = True
        if r.history is not None:
            self._remember(t, r.history)
        if r.grad is not None:
            t._grad = self.tensor(r.grad)
        if r.kind is not Tensor:
            t.__class__ = r.kind
        return t

    def _seen(self, r: Seen, of: Tensor) -> Tensor:
        if r.step is None:
            return of.data if r.apart else of.detach()
        t = _view(of, r.step if self._settle is None else (r.step[0], self._settle(r.step[1])), r.linked)
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


def _view(of: Tensor, step: View, linked: bool) -> Tensor:
    before, modes.grad = modes.grad, linked
    try:
        found: Tensor = look(of, (step,))
        return found
    finally:
        modes.grad = before
