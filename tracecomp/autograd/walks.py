"""Backward passes over graphs of a known form: one program instead of a walk from node to node.

The form of a graph is the forms of its nodes, newest first, and their edges. A layer above compiles the walk of a form
that recurs (``set_consider``), with the bits of the engine. A pass that hooks, modes or nodes observe has no form, and
a pass whose saved values were written to is the engine's, which raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tracecomp.autograd.engine import Target, accumulate
from tracecomp.base import config
from tracecomp.eager.device import use
from tracecomp.eager.grad_fn import AccumulateGrad, ProgramNode
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, get_grad, set_grad
from tracecomp.eager.tensor_base import Node

if TYPE_CHECKING:  # the module loads the assembler
    from tracecomp.runtime.aligned import Make

Array = np.ndarray[Any, Any]
Form: TypeAlias = tuple[Any, ...]

AFTER = 4
"""Passes over graphs of one form after which it is compiled."""
AFTER_EAGER = 24
"""The same for graphs of eager operators alone: their form changes when functions of the program get machine code."""
MANY = 512
"""Most forms that are counted."""
MOST_SERVED = 64
"""Most forms with a program."""
MOST_NODES = 1024
"""Most nodes of a graph whose form is computed."""
_newest_first: Callable[[Node], float] = attrgetter("number")


class Walk:
    """The passes over graphs of one form, and the program that serves them.

    ``reads`` are the nodes with saved values and the slots of those. ``released`` are those that let go of values, and
    the numbers of their results that had gradients. The program's results are for the ``leaves``, which accumulate.
    """

    __slots__ = ("_considered", "_count", "leaves", "reads", "released", "results", "run")

    def __init__(self) -> None:
        self.run: Callable[[Sequence[Array], Sequence[Array]], None] | None = None
        self.reads: Sequence[tuple[int, Sequence[int]]] = ()
        self.leaves: Sequence[int] = ()
        self.released: Sequence[tuple[int, Set[int]]] = ()
        self.results: Sequence[tuple[Make, tuple[int, ...], Any]] = ()
        self._count = 0
        self._considered = False

    def count(self, form: Form, nodes: Sequence[Node], grad: Tensor) -> None:
        """Count a pass of the engine; begin to compile the form if it recurs."""
        self._count += 1
        if self._considered or self._count < AFTER:
            return
        if self._count < AFTER_EAGER and not any(node.compiled for node in nodes):
            return
        self._count -= AFTER
        if sum(w.run is not None for w in _walks.values()) < MOST_SERVED:
            self._considered = consider(self, form, nodes, grad)

    def serve(self, nodes: Sequence[Node], grad: Tensor, keep_graph: bool) -> bool:
        """Run the program; False, without effects, if a saved value is not as it was saved."""
        run, arrays = self.run, [grad._data]
        assert run is not None
        for place, slots in self.reads:
            node = nodes[place]
            assert isinstance(node, ProgramNode)
            if not node.take(slots, arrays):
                return False
        gradients = [make(shape, dtype) for make, shape, dtype in self.results]
        run([a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in arrays], gradients)
        if not keep_graph:
            for place, present in self.released:
                node = nodes[place]
                assert isinstance(node, ProgramNode)
                node.release_after(present)
        before, modes.grad = modes.grad, False
        try:
            for place, array in zip(self.leaves, gradients, strict=True):
                leaf = nodes[place]
                assert isinstance(leaf, AccumulateGrad)
                _give(leaf.variable, array)
        finally:
            modes.grad = before
        return True


def _give(variable: Any, array: Array) -> None:
    """Accumulate ``array``, which nothing else refers to."""
    fresh = Tensor._wrap(array)
    if get_grad(variable) is None and variable._data.flags.c_contiguous:
        fresh._inference = modes.inference
        set_grad(variable, fresh)
    else:
        accumulate(variable, fresh)


_walks: dict[Form, Walk] = {}


def walk(roots: Sequence[Target], grads: Sequence[Tensor], keep_graph: bool) -> bool:
    """Run a pass that accumulates at all leaves as a program; False if the engine has to."""
    if len(roots) != 1 or modes.recorder is not None or use.begun or modes.anomaly or type(grads[0]) is not Tensor:
        return False
    if config.current().eager != "native":
        return False
    found = _form(roots[0], grads[0])
    if found is None:
        return False
    form, nodes = found
    known = _walks.get(form)
    if known is None:
        if len(_walks) >= MANY:
            _walks.clear()
        known = _walks[form] = Walk()
    if known.run is not None:
        return known.serve(nodes, grads[0], keep_graph)
    known.count(form, nodes, grads[0])
    return False


def _form(root: Target, grad: Tensor) -> tuple[Form, list[Node]] | None:
    """The form of the graph behind ``root`` and its nodes, newest first; None if a node has no form."""
    start, number = root
    forms, stack = {start: start.form()}, [start]
    while stack:
        node = stack.pop()
        if forms[node] is None or len(forms) > MOST_NODES:
            return None
        for edge in node.edges:
            if edge is not None and edge[0] not in forms:
                child = edge[0]
                forms[child] = child.form()
                stack.append(child)
    if start.out_types[number] != (grad._data.dtype, grad._data.shape):
        return None
    nodes = sorted(forms, key=_newest_first, reverse=True)
    place = {node: n for n, node in enumerate(nodes)}
    parts: list[Any] = [number]
    for node in nodes:
        parts.append(forms[node])
        parts.append(tuple([None if e is None else (place[e[0]], e[1]) for e in node.edges]))
    return tuple(parts), nodes


def _ignore(walk: Walk, form: Form, nodes: Sequence[Node], grad: Tensor) -> bool:
    """Ignore a form that recurs."""
    return True


consider: Callable[[Walk, Form, Sequence[Node], Tensor], bool] = _ignore
"""Called for forms that recur; set by the module that compiles them. False: call again later."""


def set_consider(fn: Callable[[Walk, Form, Sequence[Node], Tensor], bool]) -> None:
    """Set the function that is called for forms that recur."""
    global consider
    consider = fn
