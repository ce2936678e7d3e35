"""Guards on state outside the arguments: modes, captured tensors, modules, optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tracecomp.base import switches
from tracecomp.base.patches import patches
from tracecomp.codegen.calls.call_tables import OBJECT
from tracecomp.eager.meta import MetaArray
from tracecomp.eager.modes import EAGER, MEMORY, Modes, modes, module_changes
from tracecomp.eager.room import plain
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import above
from tracecomp.functional import default_dtype as dtype_setting
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.record.binding import Binding, tensor_of
from tracecomp.record.context import OptimizerLike
from tracecomp.record.guards.guard import Rows, tensor_miss
from tracecomp.record.guards.slots import slot_id
from tracecomp.record.guards.snapshots import (
    MISSING,
    MODULE_INTERNALS,
    ById,
    freeze,
    module_change,
    module_snapshot,
    short,
)
from tracecomp.record.pytree import Leaves

_NAMES = (
    "gradient mode", "inference mode", "default dtype", "autocast", "gradients in inference mode",
    "count of replaced functions",
)  # fmt: skip
_LEFT = ("grad", "inference", "grad_asked", "autocast", "default_places", *EAGER)
"""Modes of the thread that a call may leave changed."""


class ModesGuard:
    """Gradient mode, inference mode, default dtype, autocast, the default device, settings of the process.

    Under the other modes of a thread (``EAGER``) no recording is made or used.
    """

    def __init__(self) -> None:
        self.seen = _modes()
        self.settings: switches.Snapshot | None = switches.Snapshot()
        self._before = {name: getattr(modes, name) for name in _LEFT}

    def ignore_settings(self) -> None:
        """Guard no settings of the process: the recording reads none."""
        self.settings = None

    def check(self, leaves: Leaves) -> str | None:
        now = _modes()
        if now == self.seen and (self.settings is None or self.settings.is_current()):
            return None
        settings = [] if self.settings is None else self.settings.changed()
        pairs = [*zip(_NAMES, self.seen, now, strict=True), *settings]
        return ", ".join(f"{n} went from {a} to {b}" for n, a, b in pairs if a != b)

    def explain(self) -> str:
        return ", ".join(f"{n} is {a}" for n, a in zip(_NAMES, self.seen, strict=True))

    def native_row(self, rows: Rows) -> bool:
        grad, inference, dtype, autocast, asked, _ = self.seen
        own = {"recorder": None, "grad": grad, "inference": inference, "autocast": autocast, "grad_asked": asked}
        for name, value in own.items():
            rows.mode(name, value)
        for name in ("default_places", *EAGER):
            rows.mode(name, getattr(Modes, name))
        tables = [] if self.settings is None else switches.tables
        counted = (patches, *(table for table, _ in tables))
        return all(rows.word(x, "version", None) for x in counted) and rows.entry(
            vars(dtype_setting), "_default", dtype
        )

    def left(self) -> list[Callable[[], None]]:
        """Functions that set the modes and settings that the call has changed."""
        found = [] if self.settings is None else self.settings.left()
        changed = {n: now for n, before in self._before.items() if (now := getattr(modes, n)) != before}
        if changed:
            found.append(partial(_set_modes, changed))
        if default_dtype() is not self.seen[2]:
            found.append(partial(dtype_setting.set_default_dtype, default_dtype()))
        return found


def _set_modes(changed: Mapping[str, object]) -> None:
    vars(modes).update(changed)


def _modes() -> tuple[Any, ...]:
    return modes.grad, modes.inference, default_dtype(), modes.autocast, modes.grad_asked, patches["count"]


@dataclass(slots=True)
class CapturedTensor:
    """A tensor from outside has some dtype and shape, and requires grad or not."""

    tensor: Tensor
    dtype: Any
    shape: tuple[int, ...]
    requires_grad: bool
    name: str

    def check(self, leaves: Leaves) -> str | None:
        t, array = self.tensor, plain(self.tensor._data)
        other = array.shape != self.shape or (array.dtype is not self.dtype and array.dtype != self.dtype)
        if other or type(array) is MetaArray:
            return tensor_miss(f"captured tensor {self.name}", t, self.dtype, self.shape)
        if t._requires_grad is not self.requires_grad and t.requires_grad is not self.requires_grad:
            return tensor_miss(f"captured tensor {self.name}", t, self.dtype, self.shape)
        return None

    def explain(self) -> str:
        grad = " that requires grad" if self.requires_grad else ""
        return f"{self.name} is a tensor {self.dtype}{list(self.shape)}{grad}"

    def native_row(self, rows: Rows) -> bool:
        rows.tensor(OBJECT, self.tensor, int(self.requires_grad), self.dtype, self.shape)
        return True


@dataclass(slots=True)
class CapturedView:
    """Guard whether a tensor from outside that is a view of another requires grad."""

    tensor: Tensor
    requires_grad: bool

    def check(self, leaves: Leaves) -> str | None:
        if self.tensor.requires_grad is self.requires_grad:
            return None
        return f"requires_grad of a captured view became {self.tensor.requires_grad}"

    def explain(self) -> str:
        return f"a captured view {'requires' if self.requires_grad else 'does not require'} grad"

    def native_row(self, rows: Rows) -> bool:
        # A view gets its history through the tensor above it, which has a separate guard.
        rows.flag(self.tensor)
        return True


@dataclass(slots=True)
class NotCaptured:
    """No argument is a tensor that the recording reads, writes or differentiates as state."""

    arguments: Sequence[int]
    tensors: dict[int, Tensor]

    def check(self, leaves: Leaves) -> str | None:
        if any(id(leaves[i]) in self.tensors for i in self.arguments):
            return "an argument is also a captured tensor"
        return None

    def explain(self) -> str:
        return "no argument is a captured tensor"

    def native_row(self, rows: Rows) -> bool:
        for i in self.arguments:
            for t in self.tensors.values():
                if rows.leaves[i].requires_grad is t.requires_grad and rows.leaves[i].shape == t.shape:
                    rows.apart(i, OBJECT, t)  # stricter: views of it neither
        return True


@dataclass(slots=True)
class SameArgument:
    """An argument is the tensor that the program also found elsewhere."""

    leaf: int
    tensor: Tensor
    path: str

    def check(self, leaves: Leaves) -> str | None:
        if leaves[self.leaf] is self.tensor:
            return None
        return f"argument {self.path} is no longer the captured tensor"

    def explain(self) -> str:
        return f"argument {self.path} is also a captured tensor"

    def native_row(self, rows: Rows) -> bool:
        return False


@dataclass(slots=True)
class GradGuard:
    """Whether a tensor has a ``.grad``."""

    holder: Binding
    present: bool
    name: str

    def check(self, leaves: Leaves) -> str | None:
        if (tensor_of(self.holder, leaves)._grad is not None) != self.present:
            return f".grad of {self.name} was {'a tensor' if self.present else 'None'}"
        return None

    def explain(self) -> str:
        return f"{self.name} has {'a' if self.present else 'no'} .grad"

    def native_row(self, rows: Rows) -> bool:
        if self.holder.kind != "state":  # an argument is another tensor at every call
            return False
        rows.grad(self.holder.ref, self.present)
        return True


class ModulesGuard:
    """The modules that ran, hooks, and relations of views: compared after changes of which a watch tells."""

    def __init__(self, known: Set[tuple[int, str]]) -> None:
        self.known = known
        self.watch = module_changes.watch()
        self.modules: list[tuple[Any, dict[str, Any]]] = []
        self.tables: list[tuple[dict[str, Any], list[int]]] = []
        self.attributes: list[tuple[dict[str, Any], int]] = []
        self.tensors: list[tuple[Tensor, Any, str]] = []
        self.views: list[tuple[Tensor, Tensor, int | None]] = []
        self.optimizers: list[tuple[Any, Any]] = []
        self.hooks = _global_hooks()

    def add_module(self, module: object) -> None:
        module_changes.add(module, self.watch)
        self.modules.append((module, module_snapshot(module, self.known)))
        # An attribute that goes before a parameter, buffer or submodule may be set without a count.
        self.attributes.append((vars(module), len(vars(module))))
        for name in MODULE_INTERNALS:
            table = vars(module)[name]
            if table and not any(slot_id(table, key) in self.known for key in table):
                self.tables.append((table, list(map(id, table.values()))))

    def add_tensor(self, t: Tensor, name: str) -> None:
        """Guard the hooks of a captured tensor."""
        self.tensors.append((t, tensor_hooks(t), name))

    def add_view(self, view: Tensor, base: Tensor) -> None:
        """Guard whether a tensor from outside is a view of another: ``.data = other`` can change that."""
        self.views.append((view, base, _distance(view, base)))

    def check(self, leaves: Leaves) -> str | None:
        same = all([*map(id, table.values())] == seen for table, seen in self.tables)
        same = same and all(len(own) == size for own, size in self.attributes)
        if same and not self.watch.moved:
            return None
        changed = self.watch.take()
        found = self.change(changed if same else None)
        if found is not None:
            self.watch.put_back(changed)
        elif not same:
            self.attributes = [(own, len(own)) for own, _ in self.attributes]
        return found

    def change(self, changed: Set[int] | None = None) -> str | None:
        """The change; ``changed`` is the result of ``Watch.take``, without which everything is compared."""
        for module, snapshot in self.modules:
            if changed is None or id(module) in changed:
                found = module_change(module, snapshot, self.known)
                if found is not None:
                    return found
        for view, base, distance in self.views if changed is None or MEMORY in changed else ():
            if above(view) is not base or _distance(view, base) != distance:
                return "the memory of a captured view was replaced"
        if changed is not None:
            return None
        for t, hooks, name in self.tensors:
            if tensor_hooks(t) != hooks:
                return f"the hooks of {name} changed"
        for optimizer, hooks in self.optimizers:
            if _optimizer_hooks(optimizer) != hooks:
                return f"the hooks of {type(optimizer).__name__} changed"
        return None if _global_hooks() == self.hooks else "the hooks of all modules changed"

    def explain(self) -> str:
        kinds = dict.fromkeys(type(m).__name__ for m, _ in self.modules)
        return f"submodules, hooks and options of {len(self.modules)} modules: {', '.join(kinds)}"

    def native_row(self, rows: Rows) -> bool:
        if not (self.modules or self.tensors or self.views or self.optimizers or self.hooks):
            # Other changes mean nothing here.
            return all(rows.word(table, "length", 0) for table in module_changes.global_hooks)
        if not rows.word(self.watch, "moved", False):
            return False
        if not all(rows.word(own, "length", len(own)) for own, _ in self.attributes):
            return False
        return all(rows.word(table, "version", None) for table, _ in self.tables)


def _distance(view: Tensor, base: Tensor) -> int | None:
    """The distance of the first element of a view from that of its base, in bytes; None if it views other memory."""
    if view._data.size and not np.may_share_memory(view._data, base._data):
        return None
    a, b = (t._data.__array_interface__["data"][0] for t in (view, base))
    return int(a) - int(b)


def _global_hooks() -> dict[int, dict[int, ById]]:
    """The tables that hold hooks, by position: importing ``nn`` adds empty ones."""
    tables = enumerate(module_changes.global_hooks)
    return {n: {k: ById(v) for k, v in table.items()} for n, table in tables if table}


def tensor_hooks(t: Tensor) -> Any:
    """The hooks of a leaf."""
    return [{k: ById(f) for k, f in table.items()} for table in (t._hooks, t._post_hooks) if table]


def _optimizer_hooks(optimizer: OptimizerLike) -> Any:
    tables = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    return [list(map(ById, getattr(optimizer, table).values())) for table in tables]


class OptimizerGuard:
    """The tensors that an optimizer moves, group by group, and those that are its state."""

    def __init__(self, optimizer: OptimizerLike) -> None:
        self.optimizer = optimizer
        self.seen = _optimizer_ids(optimizer)
        self.kept = [*self._tensors()]

    def _tensors(self) -> list[Any]:
        held = [v for state in self.optimizer.state.values() if isinstance(state, dict) for v in state.values()]
        return held + [t for group in self.optimizer.param_groups for t in group["params"]]

    def check(self, leaves: Leaves) -> str | None:
        if _optimizer_ids(self.optimizer) != self.seen:
            return f"tensors in the state of {type(self.optimizer).__name__} were replaced"
        return None

    def explain(self) -> str:
        return f"{type(self.optimizer).__name__} updates the same tensors and has the same state"

    def native_row(self, rows: Rows) -> bool:
        groups, state = self.optimizer.param_groups, self.optimizer.state
        own = vars(self.optimizer)
        if not (rows.entry(own, "state", state) and rows.entry(own, "param_groups", groups)):
            return False
        for group in groups:
            if not (rows.entry(group, "params", group["params"]) and rows.contents(group["params"])):
                return False
        dicts = [state, *(held for held in state.values() if isinstance(held, dict))]
        return rows.word(groups, "length", len(groups)) and all(rows.word(d, "version", None) for d in dicts)


def _optimizer_ids(optimizer: OptimizerLike) -> tuple[Any, ...]:
    state = [(id(k), [(n, id(v)) for n, v in held.items()] if isinstance(held, dict) else id(held))
             for k, held in optimizer.state.items()]  # fmt: skip
    return state, [list(map(id, group["params"])) for group in optimizer.param_groups]


class Options:
    """Entries of dictionaries that this package reads as the recording does: options of optimizers."""

    def __init__(self) -> None:
        self.entries: list[tuple[Mapping[str, Any], str, Any]] = []

    def add(self, mapping: Mapping[str, object], key: str) -> None:
        snapshot = freeze(mapping.get(key, MISSING))
        if snapshot is not MISSING:
            self.entries.append((mapping, key, snapshot))

    def check(self, leaves: Leaves) -> str | None:
        for mapping, key, snapshot in self.entries:
            value = mapping.get(key, MISSING)
            if freeze(value) != snapshot:
                return f"option {key} changed from {short(snapshot)} to {short(value)}"
        return None

    def explain(self) -> str:
        return f"options: {', '.join(dict.fromkeys(key for _, key, _ in self.entries))}"

    def native_row(self, rows: Rows) -> bool:
        return all(rows.item(mapping, key, snapshot) for mapping, key, snapshot in self.entries)
