"""The results of a call, for later calls to build: new memory, tensors from outside, and views of either.

One object represents one tensor: results that are the same tensor, or views of the same one, share it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.eager.aliasing import history_if_allowed, is_refused
from tracecomp.eager.grad_fn import OpNode
from tracecomp.eager.tensor import Tensor, gradient_edge
from tracecomp.eager.tensor_base import Node, View, base_of
from tracecomp.eager.views import look
from tracecomp.ir.arrays import memory_order
from tracecomp.ir.graph import Value
from tracecomp.ir.op import OPS
from tracecomp.ops.autodiff import Sym
from tracecomp.record.backward.reach import history_of
from tracecomp.record.binding import Array, Binding
from tracecomp.record.guards.reads import Read
from tracecomp.record.recorder import Recorder
from tracecomp.record.traced_value import Look

_MOVED = BreakReason("changes the shape or memory of the base of a returned view", Section.MEMORY)


@dataclass(frozen=True, slots=True)
class History:
    """Autograd's state of a result with a new history, or with none.

    ``root`` is its number among the differentiable results. ``freed``: its history was freed in the call, or can no
    longer run. ``leaf``: it requires grad without a history. ``refused``: a view that cannot take its base's new
    history. ``version`` counts the writes to its storage.
    """

    root: int | None = None
    freed: bool = False
    leaf: bool = False
    refused: bool = False
    version: int = 0


PLAIN = History()
Layout = tuple[Any, tuple[int, ...], tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class Made:
    """A tensor with new memory: output ``number`` of the graph.

    ``order`` are its axes in memory order, if that is not row-major. ``grad`` is its gradient, ``kind`` its class, such
    as ``Parameter``.
    """

    number: int
    order: tuple[int, ...] | None = None
    history: History = PLAIN
    grad: Held | None = None
    kind: type[Tensor] = Tensor
    inference: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """An argument or a captured tensor."""

    source: Binding


@dataclass(frozen=True, slots=True)
class Seen:
    """A view of another tensor's memory: through ``steps``, or, without any, an alias.

    ``layout`` is dtype, shape, strides and offset in bytes, in memory that the graph allocates. ``follows``: the view
    was created while gradients were enabled. ``apart``: the alias has a separate version counter, like ``x.data``.
    Without a ``history`` it has that of ``of``. ``unwritable`` is autograd's reason to forbid writes to it.
    """

    of: Made | Given | Seen
    steps: tuple[View, ...]
    layout: Layout | None
    follows: bool
    apart: bool
    history: History | None = None
    grad: Held | None = None
    kind: type[Tensor] = Tensor
    unwritable: str | None = None


@dataclass(frozen=True, slots=True)
class Followed:
    """A result that is a Python number, computed as output ``number`` of the graph."""

    number: int


@dataclass(frozen=True, slots=True)
class Passed:
    """A result that is an array or container among the arguments: leaf ``number``."""

    number: int


@dataclass(frozen=True, slots=True)
class Plain:
    """A result that is not a tensor."""

    value: Any

    def is_constant(self) -> bool:
        """Whether all calls return one object: each returns another array, which its caller may write."""
        return not isinstance(self.value, np.ndarray)


@dataclass(frozen=True, slots=True)
class Found:
    """A list, dictionary or array from outside, found where the program found it."""

    read: Read


@dataclass(frozen=True, slots=True, eq=False)
class Common:
    """A list, dictionary or object that the call leaves in several places, or that holds itself: made once per call."""

    structure: Any
    results: list[Result]
    holds_itself: bool


Held = Made | Given | Seen
Result = Held | Followed | Passed | Plain | Found | Common


def bottoms(results: Sequence[Result | None]) -> list[Made]:
    """The bases of ``results`` that have new memory, each once."""
    found = [lowest(r) for r in all_results(results) if isinstance(r, Made | Given | Seen)]
    return [r for r in found if isinstance(r, Made)]


def all_results(results: Sequence[Result | None]) -> list[Result | None]:
    """``results`` and those within them; within what holds itself, each once."""
    found = list(results)
    met: set[int] = set()
    for r in found:  # which grows
        if isinstance(r, Common) and id(r) not in met:
            met.add(id(r))
            found.extend(r.results)
    return found


def lowest(r: Held) -> Made | Given:
    """The base of ``r``, or ``r`` itself."""
    while isinstance(r, Seen):
        r = r.of
    return r


def bottom(r: Held) -> Made:
    """The memory of ``r``, which the call has allocated."""
    found = lowest(r)
    assert isinstance(found, Made)
    return found


class Results:
    """Find the representation of each tensor that a recorded call leaves behind.

    ``origin`` returns the source of a tensor from outside, ``output`` adds an output to the graph.
    """

    def __init__(
        self, recorder: Recorder, origin: Callable[[Tensor], Binding], output: Callable[[Value, str], int]
    ) -> None:
        self.roots: list[Tensor] = []
        self.made: dict[int, int] = {}
        self.moved: BreakReason | None = None
        self._recorder = recorder
        self._origin = origin
        self._output = output
        self._held: dict[int, Held] = {}
        self._places: dict[int, int] = {}
        self._freed: set[int] = set()
        self._only: set[int] = set()

    def differentiate(self, tensors: Sequence[Tensor], spent: Callable[[Tensor], bool]) -> None:
        """Find the differentiable ones of what ``tensors`` take their histories from."""
        # A node that other histories pass through has a history: its gradient is more than the one from outside.
        passed = {e for n in history_of(tensors) for e in n.edges if e is not None}
        made = filter(self._recorder.is_made, (self._historian(t, passed) for t in tensors))
        found = {id(t): t for t in made if history_if_allowed(t) is not None}
        for t in found.values():
            if spent(t):
                self._freed.add(id(t))
            else:
                self.add_root(t)
        flows = {e for n in history_of(self.roots) for e in n.edges if e is not None}
        for t in tensors:
            is_new_leaf = self._recorder.is_made(t) and not is_refused(t) and t.is_leaf and t.requires_grad
            if is_new_leaf and gradient_edge(t) in flows:
                # Each result has the derivatives by inputs alone: those by another result would be lost.
                cause = "leaves both a leaf that it creates and a result that depends on it"
                self._recorder.refusals.refuse(BreakReason(cause, Section.STEP, "Create the leaf outside"))

    def note(self, tensors: Iterable[Tensor]) -> None:
        """Find the views among ``tensors``, all that the call leaves behind, whose base has no other reference.

        If they show all of it and have no history, they become separate tensors.
        """
        seen = Counter(id(self._recorder.values.root(t)[0]) for t in {id(t): t for t in tensors}.values())
        self._only = {key for key, count in seen.items() if count == 1}

    def _stands_alone(self, t: Tensor) -> bool:
        """Whether ``t`` needs no base."""
        seen = self._recorder.values.look(t)
        if seen is None or seen.step is None or t._grad is not None or t.requires_grad:
            return seen is None or self._is_ended(seen, t)
        if t._unwritable is not None and not t._quiet:
            return False
        root, _ = self._recorder.values.root(t)
        if id(root) in self._only and self._recorder.is_made(root) and self._recorder.values.follows(t):
            return True
        a, b = t._data, root._data
        same = a.size == b.size and a.dtype == b.dtype
        dense = (x.flags.c_contiguous or memory_order(x) is not None for x in (a, b))
        return id(root) in self._only and self._recorder.is_made(root) and same and all(dense)

    def _is_ended(self, seen: Look, t: Tensor) -> bool:
        """Whether ``t`` was made as a view of new memory that nothing else refers to, and is not a view any more."""
        if seen.step is None or t._linked or t._source is not None:
            return False
        return self._recorder.is_made(self._recorder.values.root(t)[0])

    def add_root(self, t: Tensor) -> None:
        self._places[id(t)] = len(self.roots)
        self.roots.append(t)

    def place(self, t: Tensor) -> int | None:
        """The number of ``t`` among the differentiable results."""
        return self._places.get(id(t))

    def of(self, t: Tensor) -> Held:
        """The representation of ``t``."""
        path = [t]
        while id(path[-1]) not in self._held and not self._stands_alone(path[-1]):
            path.append(self._below(path[-1])[0])
        for x in reversed(path):
            if id(x) not in self._held:
                self._held[id(x)] = self._find(x)
        return self._held[id(t)]

    def number(self, t: Tensor, name: str) -> int:
        """The output that is the memory of ``t``."""
        found = self.made.get(id(t))
        if found is None:
            value, order = self._recorder.value(t), memory_order(t._data)
            if order is not None:
                value = look(Sym(self._recorder.graph, value), ((OPS["permute"], {"dims": order}),)).value
            found = self.made[id(t)] = self._output(value, name)
        return found

    def _find(self, t: Tensor) -> Held:
        if not self._recorder.is_made(t):
            return Given(self._origin(t))
        history = self._history(t)
        grad = None if t._grad is None else self.of(t._grad)
        if self._stands_alone(t):
            number = self.number(t, f"out{len(self.made)}")
            return Made(number, memory_order(t._data), history, grad, type(t), t._inference)
        self._recorder.values.settle(t)
        below, steps = self._below(t)
        self._check(t, below, steps)
        apart = t._storage is not below._storage
        own = history.root is not None or history.freed or history.leaf or history.refused or apart
        unwritable = t._unwritable if _follows(t) and t._unwritable != below._unwritable else None
        layout, kept = self._layout(t), history if own else None
        return Seen(self.of(below), steps, layout, _follows(t), apart, kept, grad, type(t), unwritable)

    def _below(self, t: Tensor) -> tuple[Tensor, tuple[View, ...]]:
        """The base of the view or alias ``t``, and the steps to it: views of linked views refer to their base."""
        values = self._recorder.values
        seen = values.look(t)
        assert seen is not None
        of = values.origin(seen)
        steps: tuple[View, ...] = () if seen.step is None else (seen.step,)
        if values.is_changed(seen, of) and _followed(t) is values.root(t)[0]:
            return values.root(t)
        while steps and _follows(t) and _follows(of):
            further = values.look(of)
            if further is None or further.step is None:
                break
            of, steps = values.origin(further), (further.step, *steps)
            if values.is_changed(further, of) and _followed(t) is values.root(t)[0]:
                return values.root(t)
        return of, steps

    def _layout(self, t: Tensor) -> Layout | None:
        """The layout of ``t`` in memory of the call; None if that is other memory, or has another layout."""
        root, _ = self._recorder.values.root(t)
        data = root._data
        told = data.flags.c_contiguous or memory_order(data) is not None
        if not self._recorder.is_made(root) or not told or self._recorder.sized or data.dtype.kind == "V":
            return None
        return t._data.dtype, t._data.shape, t._data.strides, t._address() - root._address()

    def _history(self, t: Tensor) -> History:
        root = self._places.get(id(t))
        refused = is_refused(t)
        leaf = not refused and t.grad_fn is None and t.requires_grad
        return History(root, id(t) in self._freed, leaf, refused, t._version)

    def _historian(self, t: Tensor, passed: set[tuple[Node, int]]) -> Tensor:
        """The tensor whose history ``t`` has, seen through views.

        That is ``t`` itself when hooks or writes come between, or when other histories go through its (``passed``).
        """
        source = t
        while _follows(source) and (seen := self._recorder.values.look(source)) is not None:
            source = self._recorder.values.origin(seen)
        if source is t or is_refused(t):
            return source
        if t.grad_fn is not None and gradient_edge(t) in passed:
            return t
        ends = [gradient_edge(x) for x in (source, base_of(source) if _follows(source) else None) if x is not None]
        edge = gradient_edge(t)
        while edge is not None and edge not in ends and _only_looks(edge[0]):
            edge = edge[0].edges[0]
        return source if edge in ends and not t._requires_grad else t

    def _check(self, t: Tensor, of: Tensor, steps: Sequence[View]) -> None:
        """Record if the base of ``t`` now has another shape or other memory."""
        found = of._data
        try:
            for op, attrs in steps:
                found = op.impl(found, **self._recorder.sizes.without_sizes(attrs))
        except (IndexError, ValueError):  # the steps do not suit the shape that it has now
            self.moved = _MOVED
            return
        if (found.shape, found.strides, _address(found)) != (t._data.shape, t._data.strides, t._address()):
            self.moved = _MOVED


def _followed(t: Tensor) -> Tensor | None:
    """The base of ``t`` where it has the history of that, else None."""
    return cast("Tensor", base_of(t)) if _follows(t) else None


def _follows(t: Tensor) -> bool:
    """Whether ``t`` is a view that was made while gradients were enabled, and so has the history of its base."""
    return t._linked and not t._quiet


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _only_looks(node: Any) -> bool:
    """Whether ``node`` is a view, without hooks that would be lost when it is rebuilt."""
    hooked = node.tensor_hooks or node.pre_hooks or node.post_hooks or node.retained
    return isinstance(node, OpNode) and node.op.kind == "view" and not hooked
