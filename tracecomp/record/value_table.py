"""The table of traced values: the graph value of every tensor in one recording.

It implements the aliasing model of ``eager/tensor.py``. Memory has a root, whose traced value has the current graph
value and counts writes. A view or alias derives its value from the root's again when its version is behind. This turns
in-place writes into new values (functionalization).

A tensor created in the call carries its own entry (``_value``, and ``_look``: its base), which ends with it. Tensors
from outside outlive the recording, and several recordings may use them: their entries are here, by identity.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from tracecomp.base.errors import Source
from tracecomp.eager.aliasing import is_refused
from tracecomp.eager.tensor import Tensor, gradient_edge
from tracecomp.eager.tensor_base import Node, View, above, node_count
from tracecomp.eager.views import look, write
from tracecomp.ir.graph import Graph, Value
from tracecomp.ops.autodiff import Sym
from tracecomp.record.context import Capturing
from tracecomp.record.traced_value import Look, TracedValue


class MadeTensor(NamedTuple):
    """A tensor made in the call: where, and at which line of the compiled function (0: none)."""

    ref: weakref.ref[Tensor]
    source: Source | None
    line: int


class Shared(NamedTuple):
    """A tensor from outside as ``chain`` of views of ``root``, which represents memory shared by several tensors."""

    tensor: Tensor
    root: Tensor
    chain: tuple[View, ...]


class _Views(NamedTuple):
    """Views of ``root`` that the call has made."""

    root: weakref.ref[Tensor]
    views: list[weakref.ref[Tensor]]


class ValueTable:
    """The current values of tensors in ``graph``. ``recorder`` creates inputs for new tensors."""

    def __init__(self, recorder: Capturing, graph: Graph) -> None:
        self._recorder = recorder
        self._graph = graph
        self._cells: dict[int, TracedValue] = {}
        self._shared: dict[int, Shared] = {}
        self._views: dict[int, Tensor] = {}  # those from outside that are views or aliases
        self._looks: dict[int, _Views] = {}  # views of the call, by identity of their root
        self.outside: dict[int, Tensor] = {}  # those that ``_cells`` is about, so that their ids stay theirs
        self.requires_grad: dict[int, bool] = {}  # whether these did when they were met
        self.edges: dict[int, tuple[Node, int]] = {}  # where their gradients go
        self.made: list[MadeTensor] = []
        self.started = node_count()  # nodes with lower numbers were made before the call

    # ---- entries

    def cell(self, t: Tensor) -> TracedValue | None:
        """The entry of ``t``, which for a view may be behind its root's; None if it was not met."""
        return t._value if self.is_made(t) else self._cells.get(id(t))

    def is_made(self, t: Tensor) -> bool:
        """Whether ``t`` came into being in this recording."""
        return t._value is not None and t._value.recorder is self._recorder

    def add(self, t: Tensor, value: Value, look: Look | None, source: Source | None, line: int) -> None:
        """Add the value of ``t``, created at ``source``, and its base."""
        version = 0
        if look is not None:
            version = self._version_of(look.root)
            self._views_of(look.root).append(weakref.ref(t))
        t._value, t._look = TracedValue(self._recorder, value, version), look
        self.made.append(MadeTensor(weakref.ref(t), source, line))

    def _views_of(self, root: Tensor) -> list[weakref.ref[Tensor]]:
        """The views of ``root`` that the call has made, while ``root`` lives."""
        key, looks = id(root), self._looks
        if key not in looks:
            looks[key] = _Views(weakref.ref(root, lambda _: looks.pop(key, None)), [])
        return looks[key].views

    def keep(self, t: Tensor, cell: TracedValue) -> None:
        """Make ``cell`` the entry of ``t``."""
        if self.is_made(t):
            t._value = cell
        else:
            self._cells[id(t)] = cell
            if id(t) not in self.outside:
                self.outside[id(t)] = t
                if above(t) is not None:
                    self._views[id(t)] = t
                self.requires_grad[id(t)] = t.requires_grad
                self.note_edge(t)

    def note_edge(self, t: Tensor) -> None:
        """Record the edge of the gradient of ``t``, which comes from outside. Histories of the call lead there."""
        edge = None if is_refused(t) else gradient_edge(t)
        if edge is not None and (t._grad_fn is None or t._grad_fn.number < self.started):
            self.edges[id(t)] = edge

    def share(self, t: Tensor, root: Tensor, chain: tuple[View, ...]) -> None:
        """Note that ``t``, from outside, is a view of ``root``."""
        self._shared[id(t)] = Shared(t, root, chain)
        self._views[id(t)] = t

    def shared(self) -> list[Tensor]:
        """The tensors from outside that are views of memory they have in common."""
        return [s.tensor for s in self._shared.values()]

    def forget(self) -> None:
        """Drop the references to tensors; those of the call no longer refer to the table."""
        self._cells.clear()
        self.outside.clear()
        self.requires_grad.clear()
        self.edges.clear()
        self._shared.clear()
        self._views.clear()
        self._looks.clear()
        for ref, *_ in self.made:
            t = ref()
            if t is not None:
                t._value = t._look = None

    # ---- values

    def value(self, t: Tensor) -> Value:
        """The graph value of ``t`` now."""
        cell: TracedValue | None = t._value
        if cell is not None and cell.recorder is self._recorder and t._look is None:
            if cell.value.type.shape == t._data.shape:
                return cell.value  # of most operands
            return self._recorder.resized(t, cell.value.shape)
        cell = self.cell(t)
        root, chain = self.root(t)
        if cell is not None and cell.value.shape != t._data.shape:
            return self._recorder.resized(t, cell.value.shape)
        if root is t:
            return self._recorder.capture(t).value if cell is None else cell.value
        if cell is not None and cell.version == self._version_of(root):
            return cell.value
        self.settle(t)
        found: Value = look(Sym(self._graph, self.value(root)), chain).value
        self.keep(t, TracedValue(self._recorder, found, self._version_of(root)))
        return found

    def set(self, t: Tensor, new: Value) -> None:
        """Write to the memory behind all views and aliases at once: elements that an expanded one shows are one."""
        self.settle(t)
        root, chain = self.root(t)
        cell = self.cell(root) or self._recorder.capture(root)
        if chain:
            cell.value = write(Sym(self._graph, self.value(root)), chain, Sym(self._graph, new)).value
        else:
            cell.value = new
        cell.version += 1
        if root is not t:
            self.keep(t, TracedValue(self._recorder, new, cell.version))

    def _version_of(self, root: Tensor) -> int:
        cell = self.cell(root)
        return 0 if cell is None else cell.version

    # ---- views and aliases

    def look(self, t: Tensor) -> Look | None:
        """The base of ``t``, if it was created in this recording as a view or an alias."""
        return t._look if self.is_made(t) else None

    def look_of(self, of: Tensor, step: View | None) -> Look:
        """The base of a new view (by ``step``) or alias of ``of``."""
        root, chain = self.root(of)
        return Look(of, step, root, chain if step is None else (*chain, step))

    def root(self, t: Tensor) -> tuple[Tensor, tuple[View, ...]]:
        """The tensor whose entry the memory of ``t`` has, and the views that lead from there to ``t``."""
        if self.is_made(t):
            found = self.look(t)
            return (t, ()) if found is None else (self.before_change(found.root), found.chain)
        chain: tuple[View, ...] = ()
        while id(t) not in self._shared:
            base = self._recorder.above(t)
            if base is None:
                return t, chain
            t, chain = base, (*t._chain, *chain)
        _, root, steps = self._shared[id(t)]
        return root, (*steps, *chain)

    def before_change(self, root: Tensor) -> Tensor:
        """The state of ``root`` when a view was taken, if its shape or memory may have changed since."""
        found = self.look(root)
        return root if found is None or found.former is None else found.former

    def origin(self, look: Look) -> Tensor:
        """The base in ``look``: in its former state, if it had a separate cell."""
        return self.before_change(look.of) if look.of is look.root else look.of

    def is_changed(self, look: Look, of: Tensor) -> bool:
        """Whether ``of``, which ``look`` is of, looks elsewhere by now."""
        steps = look.chain if look.step is None else look.chain[:-1]
        root, chain = self.root(of)
        same = len(chain) == len(steps) and all(a is b for a, b in zip(chain, steps, strict=True))
        return root is not self.before_change(look.root) or not same

    def become(self, t: Tensor, look: Look | None, former: Tensor, source: Source | None, line: int) -> None:
        """Record that ``t``, formerly ``former``, became a view of another tensor: its old views keep their base."""
        was = former._look
        t._look = None if look is None else look._replace(former=former if was is None else was.former)
        if look is not None:
            self._views_of(look.root).append(weakref.ref(t))
        self.made.append(MadeTensor(weakref.ref(t), source, line))

    def root_cell(self, t: Tensor) -> TracedValue:
        """The entry that counts the writes to the memory of ``t``."""
        root, _ = self.root(t)
        return self.cell(root) or self._recorder.capture(root)

    def looked_at(self, t: Tensor) -> bool:
        """Whether another tensor met so far has its memory in common with ``t``, from outside."""
        met = [*self._views.values(), *[x for ref in self._views_of(t) if (x := ref()) is not None]]
        root, chain = self.root(t)
        return root is not t or bool(chain) or any(x is not t and self.root(x)[0] is t for x in met)

    def path(self, t: Tensor) -> Sequence[tuple[Tensor, Look]]:
        """``t`` and its bases, in sequence, as far as they were created here."""
        found = []
        while (seen := self.look(t)) is not None:
            found.append((t, seen))
            t = seen.of
        return found

    def follows(self, t: Tensor) -> bool:
        """Whether 0-d tensors say where ``t`` looks."""
        return any(seen.numbers for _, seen in self.path(t))

    def settle(self, t: Tensor) -> None:
        """Fix the positions of the view ``t``: it is read or written as part of other memory."""
        for x, seen in self.path(t):
            self._recorder.depend(seen.numbers)
            x._look = seen._replace(numbers=())
