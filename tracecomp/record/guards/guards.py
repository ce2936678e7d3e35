"""Guards: what must be as it was for a recording to be used again. Each miss is explained in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from typing import Any

import numpy as np

from tracecomp.eager.aliasing import refresh
from tracecomp.eager.modes import ModuleChanges, modes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.record.binding import Binding, tensor_of
from tracecomp.record.guards.memory import MemoryGuard
from tracecomp.record.guards.slots import Place, leaves_of, place_id, tensors_in
from tracecomp.record.guards.snapshots import (
    MISSING,
    MODULE_INTERNALS,
    ById,
    alike,
    freeze,
    module_change,
    module_snapshot,
    optimizer_snapshot,
    short,
)
from tracecomp.record.recorder import Recorder
from tracecomp.record.symbolic.sym_scalar import followed
from tracecomp.record.traced_value import GradSlot


class Names:
    """Snapshots of entries of dictionaries: globals, attributes, options that the program read.

    Entries that are ``known`` places are left out.
    """

    def __init__(self, known: Set[tuple[int, str]]) -> None:
        self.entries: list[tuple[Any, str, Any, str]] = []
        self.asks_types = False  # whether the program calls type()
        self._known = known
        self._seen: set[tuple[int, str]] = set()
        self._owned: list[tuple[Mapping[str, Any], set[str], str]] = []

    def own(self, attributes: Mapping[str, Any], where: str) -> None:
        """Note which attributes an object has."""
        self._owned.append((attributes, set(attributes), where))

    def added(self) -> str | None:
        """An attribute that an object has got since it was noted."""
        for attributes, before, where in self._owned:
            for name in attributes.keys() - before:
                return f"{where} {name} is new"
        return None

    def add(self, mapping: Mapping[str, Any], key: str, where: str) -> None:
        where_id = place_id(mapping, key)
        if where_id in self._seen or where_id in self._known:
            return
        self._seen.add(where_id)
        snapshot = freeze(mapping.get(key, MISSING))
        if snapshot is not MISSING:
            self.entries.append((mapping, key, snapshot, where))

    def miss(self) -> str | None:
        for mapping, key, snapshot, where in self.entries:
            value = mapping.get(key, MISSING)
            if type(snapshot) is ById:
                if value is snapshot.value:
                    continue
            elif type(value) is snapshot[0] and (value is snapshot[1] or freeze(value) == snapshot):
                continue
            return f"{where} {key} changed from {short(snapshot)} to {short(value)}"
        return None

    def moved(self) -> list[Place]:
        """The entries that now hold other tensors, and are otherwise as they were."""
        return [
            Place(mapping, key, f"{where} {key}") for mapping, key, snapshot, where in self.entries
            if _moved(snapshot, mapping.get(key, MISSING))
        ]  # fmt: skip


def _moved(snapshot: Any, value: Any) -> bool:
    now = freeze(value)
    return bool(now != snapshot) and alike(snapshot, now)


class _Held:
    """What a place held when the recording began. Numbers may be others later if the recording can ``follow`` them."""

    def __init__(self, place: Place, follow: bool) -> None:
        self.place = place
        self.follow = follow
        self.value = place.value()
        self.leaves = leaves_of(self.value)
        self.snapshot = freeze(self.value)
        self.tensors = tensors_in(self.leaves)
        self.types = [(t._data.dtype, t._data.shape, t.requires_grad) for t in self.tensors]

    def miss(self) -> str | None:
        now = freeze(self.place.value(MISSING))
        if not alike(self.snapshot, now) or not (self.follow or self._same_numbers()):
            return f"{self.place.where} changed from {short(self.snapshot)} to {short(now)}"
        for t, before in zip(self.place.tensors(), self.types, strict=True):
            if t._linked:
                refresh(t)
            kind = (t._data.dtype, t._data.shape, t.requires_grad)
            if kind != before:
                return f"{self.place.where} changed from {_kind(before)} to {_kind(kind)}"
        return None

    def _same_numbers(self) -> bool:
        return all(a == b for a, b in zip(self.leaves, self.place.leaves(), strict=True) if followed(a))


def _kind(kind: tuple[Any, tuple[int, ...], bool]) -> str:
    dtype, shape, requires_grad = kind
    return f"a tensor {dtype}{list(shape)}{' that requires grad' if requires_grad else ''}"


class _Growing(tuple[int, ...]):
    """Equal to shapes that differ from it at most in a first size for which something ``holds``."""

    holds: Callable[[int], bool]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(other) != len(self) or other[1:] != self[1:]:
            return False
        return self.holds(other[0])

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


class Guards:
    """The conditions of one recording."""

    def __init__(
        self, structure: Any, leaves: Sequence[Any], paths: Sequence[str], places: Sequence[Place] = (),
        follow: bool = False, numbers: Set[int] = frozenset(),
    ) -> None:  # fmt: skip
        self.structure = structure
        self.paths = paths
        self.modes = _modes()
        self.tensors: list[tuple[int, Any, tuple[int, ...], bool]] = []
        self.arrays: list[tuple[int, Any, tuple[int, ...], np.ndarray[Any, Any] | None]] = []
        self.values: list[tuple[int, Any]] = []
        self.numbers = [(i, type(leaves[i])) for i in sorted(numbers)]
        self.asked: set[int] = set()
        self.same = _sharing(leaves)
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                self.tensors.append((i, leaf._data.dtype, leaf._data.shape, leaf.requires_grad))
            elif isinstance(leaf, np.ndarray):
                self.arrays.append((i, leaf.dtype, leaf.shape, leaf.copy()))
            elif i not in numbers:
                snapshot = freeze(leaf)
                self.values.append((i, ById(leaf) if snapshot is MISSING else snapshot))
        self.shared_numbers = [i for i, *_ in (*self.tensors, *self.arrays)]
        self.one_size: list[int] = []
        self.distinct = len(set(self.same)) == len(self.same)
        self.places = [_Held(place, follow) for place in places]
        self.same_places = _sharing([*leaves, *[t for held in self.places for t in held.tensors]])
        self.pinned: list[tuple[Place, list[Tensor]]] = []
        self._known = {place.id for place in places}
        self.names = Names(self._known)
        self.options = Names(frozenset())  # options of optimizers, which are never followed
        self.epoch = ModuleChanges.epoch
        self.module_state: list[tuple[Any, Any]] = []
        self.optimizers: list[tuple[Any, list[ById]]] = []
        self.state: list[tuple[Tensor, Any, tuple[int, ...], bool, str]] = []
        self.grads: list[tuple[Binding, bool, str]] = []
        self.memory = MemoryGuard((), (), leaves)

    def close(
        self, recorder: Recorder, used: Mapping[int, str], array_inputs: set[int],
        grads: Sequence[tuple[Binding, GradSlot]],
    ) -> None:  # fmt: skip
        """Take over what the recorder met.

        ``used`` maps ids of captured tensors to input names. Contents of array arguments matter, except those in
        ``array_inputs``, which are inputs of the graph. ``grads`` pairs what was asked for its gradient with its slot.
        """
        self.arrays = [(i, dtype, shape, None if i in array_inputs else a) for i, dtype, shape, a in self.arrays]
        flags = {key: before for key, (_, before) in recorder.flags.items()}
        flagged = {key: t for key, (t, _) in recorder.flags.items() if key not in recorder.arguments}
        for key, t in (recorder.state | flagged).items():
            if key in used or key in flagged:
                before = flags[key] if key in flags else recorder.requires_grad[key]
                name = used.get(key) or recorder.names.get(key, "a tensor")
                self.state.append((t, t._data.dtype, t._data.shape, before, name))
        for owner, option in recorder.watched.values():
            self.options.add(owner if isinstance(owner, Mapping) else vars(owner), option, "option")
        self.optimizers = [(o, optimizer_snapshot(o)) for o in recorder.optimizers.values()]
        self.pinned = [
            (held.place, held.tensors) for held in self.places
            if any(id(t) in recorder.grads or id(t) in flagged for t in held.tensors)
        ]  # fmt: skip
        for holder, slot in grads:
            if slot.read or (slot.initial is not None and id(slot.initial) in used):
                self.grads.append((holder, slot.initial is not None, used.get(id(slot.tensor), "a tensor")))

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """The shapes of tensor and array arguments."""
        return {i: shape for i, _, shape, _ in (*self.tensors, *self.arrays)}

    def for_sizes(self, leaves: Sequence[int], holds: Callable[[int], bool]) -> Guards:
        """Guards that let the first size of ``leaves`` be any one for which something ``holds``."""
        found = copy(self)

        def shape(i: int, known: tuple[int, ...]) -> tuple[int, ...]:
            if i not in leaves:
                return known
            growing = _Growing(known)
            growing.holds = holds
            return growing

        found.tensors = [(i, dtype, shape(i, known), grad) for i, dtype, known, grad in self.tensors]
        found.arrays = [(i, dtype, shape(i, known), contents) for i, dtype, known, contents in self.arrays]
        found.one_size = list(leaves)
        return found

    def miss(self, structure: Any, leaves: Sequence[Any]) -> str | None:
        """Why this call does not fit, or None when it does."""
        if structure != self.structure:
            return "the arguments have another structure"
        for i, dtype, shape, requires_grad in self.tensors:
            t = leaves[i]
            if not isinstance(t, Tensor):
                return f"argument {self.paths[i]} was a tensor and is {short(t)}"
            array = t._data
            if t._linked:
                refresh(t)
            if (
                array.shape != shape
                or (array.dtype is not dtype and array.dtype != dtype)
                or (t._requires_grad or t._grad_fn is not None) is not requires_grad
            ):
                return self._tensor_miss(f"argument {self.paths[i]}", t, dtype, shape)
        for i, snapshot in self.values:
            leaf = leaves[i]
            if type(snapshot) is ById:
                if leaf is not snapshot.value:
                    return f"argument {self.paths[i]} went from {short(snapshot.value)} to {short(leaf)}"
            elif type(leaf) is not snapshot[0] or (leaf is not snapshot[1] and freeze(leaf) != snapshot):
                return f"argument {self.paths[i]} went from {short(snapshot[1])} to {short(leaf)}"
        for i, kind in self.numbers:
            if type(leaves[i]) is not kind or not followed(leaves[i]):
                return f"argument {self.paths[i]} was {_article(kind)} and is {short(leaves[i])}"
        for i, dtype, shape, contents in self.arrays:
            a = leaves[i]
            if not isinstance(a, np.ndarray) or a.dtype != dtype or a.shape != shape:
                return f"argument {self.paths[i]} went from an array {dtype}{list(shape)} to {short(a)}"
            if contents is not None and not np.array_equal(a, contents):
                return f"the contents of the array {self.paths[i]} changed"
        if len({len(leaves[i]) for i in self.one_size}) > 1:
            return "the first sizes of the arguments differ"
        miss = self._sharing_miss(leaves) or self._world_miss(leaves)
        return miss or (self._places_miss(leaves) if self.places else None) or self.memory.check(leaves)

    def moved_numbers(self, structure: Any, leaves: Sequence[Any]) -> Set[int]:
        """The arguments that are other numbers than they were, when all else is the same."""
        if structure != self.structure:
            return set()
        before = {
            i: snapshot[1] for i, snapshot in self.values
            if type(snapshot) is not ById and type(leaves[i]) is snapshot[0] and followed(leaves[i])
            and followed(snapshot[1]) and leaves[i] != snapshot[1]
        }  # fmt: skip
        alike = before and self.miss(structure, [before.get(i, x) for i, x in enumerate(leaves)]) is None
        return before.keys() if alike else set()

    def _shared_alike(self, leaves: Sequence[Any]) -> bool:
        """Whether the same tensor arguments are one object."""
        if self.distinct:
            numbers = self.shared_numbers
            if len(numbers) == 2:
                return leaves[numbers[0]] is not leaves[numbers[1]]
            return len({id(leaves[i]) for i in numbers}) == len(numbers)
        return _sharing(leaves) == self.same

    def _sharing_miss(self, leaves: Sequence[Any]) -> str | None:
        if len(self.shared_numbers) > 1 and not self._shared_alike(leaves):
            return "other arguments are the same tensor"
        return None

    def _world_miss(self, leaves: Sequence[Any]) -> str | None:
        now = _modes()
        if now != self.modes:
            names = ("gradient mode", "inference mode", "default dtype", "autocast")
            changed = [f"{n} went from {a} to {b}" for n, a, b in zip(names, self.modes, now, strict=True) if a != b]
            return ", ".join(changed)
        for t, dtype, shape, requires_grad, name in self.state:
            array = t._data
            if array.shape != shape or (array.dtype is not dtype and array.dtype != dtype):
                return self._tensor_miss(f"captured tensor {name}", t, dtype, shape)
            if t._requires_grad is not requires_grad and t.requires_grad is not requires_grad:
                return self._tensor_miss(f"captured tensor {name}", t, dtype, shape)
        for holder, present, name in self.grads:
            if (tensor_of(holder, leaves)._grad is not None) != present:
                return f".grad of {name} was {'a tensor' if present else 'None'}"
        if self.epoch != ModuleChanges.epoch:
            for module, snapshot in self.module_state:
                changed_attribute = module_change(module, snapshot, self._known)
                if changed_attribute is not None:
                    return changed_attribute
            for optimizer, tensors in self.optimizers:
                if optimizer_snapshot(optimizer) != tensors:
                    return f"the state of {type(optimizer).__name__} consists of other tensors"
            self.epoch = ModuleChanges.epoch
        return self.names.miss() or self.options.miss()

    def _places_miss(self, leaves: Sequence[Any]) -> str | None:
        for held in self.places:
            miss = held.miss()
            if miss is not None:
                return miss
        for place, pinned in self.pinned:
            if any(a is not b for a, b in zip(place.tensors(), pinned, strict=True)):
                return f"{place.where}, whose .grad or requires_grad the program uses, became another tensor"
        tensors = [t for held in self.places for t in held.place.tensors()]
        if _sharing([*leaves, *tensors]) != self.same_places:
            return "other arguments and attributes are the same tensor"
        return None

    def moved(self) -> list[Place]:
        """Places that now hold other tensors than those the recording reads, and are otherwise as they were."""
        found = self.names.moved()
        for module, before in self.module_state:
            for name, snapshot in before.items():
                if name in MODULE_INTERNALS:
                    mapping = vars(module)[name]
                    entries = [(mapping, k, v) for k, v in snapshot.items()]
                else:
                    entries = [(vars(module), name, snapshot)]
                found += [
                    Place(mapping, k, f"attribute of {type(module).__name__}: {k}", True)
                    for mapping, k, s in entries if _moved(s, mapping.get(k, MISSING))
                ]  # fmt: skip
        return found

    def watch_module(self, module: Any) -> None:
        """Compare attributes of ``module`` when one was assigned, and the contents of its lists and dicts always."""
        snapshot = module_snapshot(module, self._known)
        self.module_state.append((module, snapshot))
        for name, frozen in snapshot.items():
            contents = frozen[1] if type(frozen) is tuple and frozen[0] in (list, dict) else None
            if isinstance(contents, tuple) and not name.startswith("_"):
                self.names.add(vars(module), name, f"attribute of {type(module).__name__}:")

    def changed(self) -> str | None:
        """Which watched value of names and modules is another than when it was first seen."""
        found = self.names.miss() or self.names.added()
        for module, snapshot in self.module_state:
            found = found or module_change(module, snapshot, self._known)
        for held in self.places:
            if found is None and not alike(held.snapshot, freeze(held.place.value(MISSING))):
                found = f"{held.place.where} is something else than {short(held.value)}"
        return found

    def _tensor_miss(self, what: str, t: Tensor, dtype: Any, shape: tuple[int, ...]) -> str:
        if t._data.shape != shape:
            return f"shape of {what} went from {shape} to {tuple(t._data.shape)}"
        if t._data.dtype != dtype:
            return f"dtype of {what} went from {dtype} to {t._data.dtype}"
        return f"requires_grad of {what} became {t.requires_grad}"


def _article(kind: type) -> str:
    return "an int" if kind is int else f"a {kind.__name__}"


def _modes() -> tuple[Any, ...]:
    return (modes.grad, modes.inference, default_dtype(), modes.autocast)


def _sharing(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Which arguments that are tensors or arrays are the same object."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(t), i) for i, t in enumerate(leaves) if isinstance(t, Tensor | np.ndarray)])
