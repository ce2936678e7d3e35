"""The guards of a recording: one list that Python, the native call and ``explain`` go through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from tracecomp.base.errors import CheckError
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import above
from tracecomp.record.binding import Binding
from tracecomp.record.context import Met
from tracecomp.record.guards.facts import FactGuard
from tracecomp.record.guards.guard import (
    ArrayGuard,
    GivenContainers,
    Guard,
    NumberGuard,
    SameTensors,
    TensorGuard,
    ValueGuard,
)
from tracecomp.record.guards.memory import MemoryGuard
from tracecomp.record.guards.reads import Reads
from tracecomp.record.guards.sizes import AnySize, SizesGuard
from tracecomp.record.guards.slot_guards import SlotGuard, SlotsApart
from tracecomp.record.guards.slots import StateSlot
from tracecomp.record.guards.snapshots import MISSING, MODULE_INTERNALS, ById, alike, freeze, loosen, whole
from tracecomp.record.guards.state_guards import (
    CapturedTensor,
    CapturedView,
    GradGuard,
    ModesGuard,
    ModulesGuard,
    NotCaptured,
    OptimizerGuard,
    Options,
    SameArgument,
    _optimizer_hooks,
)
from tracecomp.record.guards.varying_objects import note_difference
from tracecomp.record.pytree import Leaves, with_leaves
from tracecomp.record.size_range import Conditions
from tracecomp.record.symbolic.sizes import Holder, SizeSource
from tracecomp.record.symbolic.sym_scalar import followed
from tracecomp.record.traced_value import GradSlot


class Guards:
    """The conditions of one recording, in the order of their checks."""

    def __init__(
        self, structure: object, leaves: Leaves, paths: Sequence[str], places: Sequence[StateSlot] = (),
        follow: bool = False, numbers: Set[int] = frozenset(),
    ) -> None:  # fmt: skip
        self.structure = structure
        self.paths = paths
        self.asked: set[int] = set()
        self.arguments = [_argument(i, leaf, paths[i], i in numbers) for i, leaf in enumerate(leaves)]
        self.places = [SlotGuard(place, follow) for place in places]
        self.reads = Reads(frozenset({place.id for place in places}))
        self.modules = ModulesGuard(self.reads.places)
        self._same = SameTensors(leaves)
        self.modes = ModesGuard()
        self._apart = SlotsApart(self.places, leaves)
        self.memory = MemoryGuard((), (), leaves)
        self.list: list[Guard] = []

    def close(
        self, met: Met, used: Mapping[int, str], array_inputs: set[int],
        grads: Sequence[tuple[Binding, GradSlot]], memory: MemoryGuard, facts: Sequence[FactGuard],
        containers: GivenContainers | None,
    ) -> None:  # fmt: skip
        """Build the guards from the recorder's data.

        ``used`` maps ids of captured tensors to input names. Contents of array arguments matter, except those in
        ``array_inputs``, which are inputs of the graph. ``grads`` pairs tensors whose gradient was read with their
        slots. ``memory`` is the guard on their memory, ``facts`` are other queries about tensors.
        ``containers`` is the guard on containers among the arguments, if it matters which of them are one object.
        """
        self.arguments = [
            replace(g, contents=None) if isinstance(g, ArrayGuard) and g.leaf in array_inputs else g
            for g in self.arguments
        ]
        flags = {key: before for key, (_, before) in met.changes.flags.items()}
        flagged = {key: t for key, (t, _) in met.changes.flags.items() if key not in met.inputs.arguments}
        state: list[CapturedTensor] = []
        for key, t in (met.inputs.state | flagged).items():
            # Also one that the graph does not read in the end: whether it requires grad, and its hooks, have their say.
            before = flags[key] if key in flags else met.values.requires_grad[key]
            name = used.get(key) or met.inputs.names.get(key, "a tensor")
            state.append(CapturedTensor(t, t._data.dtype, t._data.shape, before, name))
            self.modules.add_tensor(t, name)
        views, behind = self._views(met, flagged)
        present: list[Guard] = [
            GradGuard(holder, slot.initial is not None, used.get(id(slot.tensor), "a tensor"))
            for holder, slot in grads if slot.read or (slot.initial is not None and id(slot.initial) in used)
        ]  # fmt: skip
        options = Options()
        for owner, option in met.python.watched.values():
            options.add(owner if isinstance(owner, Mapping) else vars(owner), option)
        self.modules.optimizers = [(o, _optimizer_hooks(o)) for o in met.python.optimizers.values()]
        self._apart.pinned = [
            (held.place, held.tensors) for held in self.places
            if any(id(t) in met.changes.grads or id(t) in flagged or id(t) in behind for t in held.tensors)
        ]  # fmt: skip
        self.memory = memory
        self.list = [
            *self.arguments, self._same, self.modes, *state, *views, *present,
            *self._met_twice(met, [g.tensor for g in state], behind), self.modules,
            *map(OptimizerGuard, met.python.optimizers.values()), self.reads, options,
        ]  # fmt: skip
        if self.places:
            self.list += [*self.places, self._apart]
        self.list += facts if containers is None else [*facts, containers]
        self.list.append(memory)
        self._loosen()

    def _loosen(self) -> None:
        """Refer weakly to objects that the program holds."""
        self.reads.forget_arguments()
        self.reads.loosen()
        for g in self.arguments:
            if isinstance(g, ValueGuard):
                loosen(g.snapshot, self.reads.lifetimes)

    def _tensors(self) -> list[int]:
        return [g.leaf for g in self.arguments if isinstance(g, TensorGuard)]

    def _views(self, met: Met, flagged: Mapping[int, Tensor]) -> tuple[list[Guard], dict[int, Tensor]]:
        """Guards on captured views and aliases, and their bases."""
        found: list[Guard] = []
        behind: dict[int, Tensor] = {}
        for key, t in met.values.outside.items():
            base = met.above(t)
            # A former base is guarded too: it may get back the memory that it had.
            origin = above(t) if base is None and key in met.inputs.state else base
            if isinstance(origin, Tensor) and not t.is_meta:
                self.modules.add_view(t, origin)
            if base is None:
                continue
            behind[id(base)] = base
            if key not in flagged:
                found.append(CapturedView(t, met.values.requires_grad[key]))
                self.modules.add_tensor(t, "a captured view")
        return found, behind

    def _met_twice(self, met: Met, state: Sequence[Tensor], behind: Mapping[int, Tensor]) -> list[Guard]:
        """Guards on whether an argument is a tensor that the program also reaches otherwise, or its base:
        ``behind``."""
        found: list[Guard] = []
        own = {**self.reads.tensors, **behind}
        for module in met.python.modules.values():
            own.update({id(t): t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None})
        for o in met.python.optimizers.values():
            own.update({id(t): t for group in o.param_groups for t in group["params"]})
        for key, t in met.inputs.arguments.items():
            if key in own:
                (leaf, *_) = [i for i, x in enumerate(met.leaves) if x is t]
                found.append(SameArgument(leaf, t, self.paths[leaf]))
        arguments = self._tensors()
        if arguments and state:
            found.append(NotCaptured(arguments, {id(t): t for t in state}))
        return found

    def shapes(self) -> dict[Holder, tuple[int, ...]]:
        """The shapes of tensors and arrays among the arguments and in places; a number there is as one size."""
        found: dict[Holder, tuple[int, ...]] = {
            ("argument", g.leaf): g.shape for g in self.arguments if isinstance(g, TensorGuard | ArrayGuard)
        }
        for g in self.arguments:
            if isinstance(g, ValueGuard) and type(g.snapshot) is not ById and g.snapshot[0] is int:
                found["number", g.leaf] = (g.snapshot[1],)
        for held in self.places:
            found |= held.shapes()
        return found

    def shapes_now(self, leaves: Leaves) -> dict[Holder, tuple[int, ...]]:
        """The shapes of the same tensors and arrays in a call; () for other objects."""
        found: dict[Holder, Any] = {("argument", n): x for n, x in enumerate(leaves)}
        for held in self.places:
            found |= {("place", held.place.id, n): x for n, x in enumerate(held.place.leaves())}
        arrays = {k: x._data if isinstance(x, Tensor) else x for k, x in found.items()}
        numbers = {("number", n): (x,) for n, x in enumerate(leaves) if type(x) is int}
        return {
            k: arrays[k].shape if isinstance(arrays.get(k), np.ndarray) else numbers.get(k, ()) for k in self.shapes()
        }

    @property
    def takes_arrays(self) -> bool:
        """Whether an argument is a numpy array."""
        return any(isinstance(g, ArrayGuard) for g in self.arguments)

    def sizes(self) -> SizesGuard:
        """The guard on sizes that calls may change."""
        return next(g for g in self.list if isinstance(g, SizesGuard))

    def for_sizes(self, conditions: Conditions, sources: Sequence[Sequence[SizeSource]]) -> Guards:
        """Guards that let the sizes of ``sources`` be others, as far as ``conditions`` hold."""
        found = copy(self)
        axes: dict[Holder, set[int]] = {}
        for source in (s for same in sources for s in same):
            axes.setdefault(source.holder, set()).add(source.axis)

        def growing(g: Any) -> Any:
            if ("number", g.leaf) in axes:
                return NumberGuard(g.leaf, int, g.path)
            own = axes.get(("argument", g.leaf))
            return g if own is None else replace(g, shape=AnySize(g.shape, own))

        found.arguments = list(map(growing, self.arguments))
        found.places = [held.for_sizes(axes) for held in self.places]
        guard = SizesGuard(conditions, sources, {h.place.id: h.place for h in self.places})
        rest = [g for g in self.list[len(self.arguments) :] if not isinstance(g, SlotGuard)]
        found.list = [*found.arguments, *found.places, guard, *rest]
        return found

    def miss(self, structure: object, leaves: Leaves) -> str | None:
        """Why this call does not fit, or None when it does."""
        if structure != self.structure:
            return "the structure of the arguments changed"
        if self.reads.lifetimes.ended:
            return self.reads.check(leaves)
        for guard in self.list:
            found = guard.check(leaves)
            if found is not None:
                return found
        return None

    def note_other_objects(self, leaves: Leaves) -> None:
        """Note objects among the arguments that are others than in the recorded call, if all classes are the same."""
        if len(leaves) != len(self.arguments):
            return
        for g in self.arguments:
            if isinstance(g, ValueGuard) and type(g.snapshot) is ById:
                note_difference(g.snapshot.value, leaves[g.leaf])

    def kinds(self) -> dict[int, type]:
        """The classes of objects among the arguments, by their leaves."""
        held = [g for g in self.arguments if isinstance(g, ValueGuard)]
        return {g.leaf: g.snapshot.kind for g in held if type(g.snapshot) is ById}

    def verify(self) -> None:
        """CheckError when what ``miss`` need not compare, because nothing was counted as a change, has changed."""
        found = self.modules.change()
        if found is not None:
            raise CheckError(f"guards missed a change: {found}")

    def arrays(self) -> list[ArrayGuard]:
        """The guards of arrays among the arguments."""
        return [g for g in self.arguments if isinstance(g, ArrayGuard)]

    def lines(self, leaves: Leaves) -> Set[int]:
        """The lines of the compiled function that read the values that do not fit."""
        found = self.reads.missed
        if found:
            return found
        arrays = [g for g in self.arrays() if g.leaf < len(leaves)]
        found = {line for g in arrays if g.check(leaves) is not None for line in self.reads.array_lines}
        if len(leaves) == len(self.arguments):
            found |= {g.line for g in self.list if isinstance(g, FactGuard) and g.check(leaves) is not None} - {0}
        return found

    def explain(self) -> str:
        """List the conditions, one guard per line."""
        return "\n".join(f"    {guard.explain()}" for guard in self.list)

    def is_whole(self, leaf: int) -> bool:
        """Whether an argument that is followed is an integer."""
        return self.arguments[leaf].kind is int

    def moved_numbers(self, structure: object, leaves: Leaves) -> Set[int]:
        """The arguments that are other numbers than they were, when all else but sizes is the same."""
        if structure != self.structure:
            return set()
        before = {}
        for g in self.arguments:
            if isinstance(g, ValueGuard) and type(g.snapshot) is not ById:
                now, (kind, seen) = leaves[g.leaf], g.snapshot
                if type(now) is kind and followed(now) and followed(seen) and freeze(now) != g.snapshot:
                    before[g.leaf] = seen
        was = with_leaves(leaves, [before.get(i, x) for i, x in enumerate(leaves)])
        fits = before and all(_but_for_sizes(guard, was).check(was) is None for guard in self.list)
        return before.keys() if fits else set()

    def moved_as_sizes(self, leaves: Leaves) -> Set[int]:
        """The integers among the arguments that have changed by as much as a size of a tensor or array."""
        before, now = self.shapes(), self.shapes_now(leaves)
        moved = [(*h, b - a) for h, s in before.items() for a, b in zip(s, now[h], strict=False) if a != b]
        steps = {step for kind, *_, step in moved if kind != "number"}
        return {leaf for kind, leaf, *_, step in moved if kind == "number" and step in steps}

    def moved(self) -> list[StateSlot]:
        """Places that now hold other tensors than those the recording reads, and are otherwise as they were."""
        found = self.reads.moved()
        for module, before in self.modules.modules:
            for name, snapshot in before.items():
                if name in MODULE_INTERNALS:
                    mapping = vars(module)[name]
                    entries = [(mapping, k, v) for k, v in snapshot.items()]
                else:
                    entries = [(vars(module), name, snapshot)]
                found += [
                    StateSlot(mapping, k, f"attribute of {type(module).__name__}: {k}", id(module))
                    for mapping, k, s in entries if _moved(s, mapping.get(k, MISSING))
                ]  # fmt: skip
        return found


def _but_for_sizes(guard: Guard, leaves: Leaves) -> Guard:
    """``guard`` with the sizes that a tensor among the arguments has now."""
    t = leaves[guard.leaf] if isinstance(guard, TensorGuard) else None
    if not isinstance(guard, TensorGuard) or not isinstance(t, Tensor):
        return guard
    now = tuple(t._data.shape)
    return replace(guard, shape=now) if len(now) == len(guard.shape) else guard


def _moved(snapshot: object, value: object) -> bool:
    now = freeze(value)
    return bool(now != snapshot) and alike(snapshot, now)


def _argument(i: int, leaf: object, path: str, is_number: bool) -> Any:
    if isinstance(leaf, Tensor):
        return TensorGuard(i, type(leaf), leaf._data.dtype, leaf._data.shape, leaf.requires_grad, path)
    if isinstance(leaf, np.ndarray):
        return ArrayGuard(i, leaf.dtype, leaf.shape, leaf.copy(), path)
    if is_number:
        return NumberGuard(i, type(leaf), path)
    return ValueGuard(i, whole(leaf), path)
