"""The fields of tensors and autograd nodes that both need of each other, without behaviour.

``TensorBase`` has the fields of a tensor; a ``Node`` is the start of its history. Derivatives (``grad_fn``), aliasing
and the tensor itself are in higher layers.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tracecomp.base.errors import Source, user_source
from tracecomp.eager.modes import modes, module_changes
from tracecomp.eager.room import settled
from tracecomp.eager.storage import Storage
from tracecomp.ir.graph import Origin
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import DType

Array = np.ndarray[Any, Any]
Edge: TypeAlias = tuple["Node", int] | None
View: TypeAlias = tuple[Op, dict[str, Any]]
Grads: TypeAlias = Sequence["TensorBase | None"]

_numbers = itertools.count()
_hook_ids = itertools.count()


def node_count() -> int:
    """A number between those of the nodes made so far and of those to come."""
    return next(_numbers)


class Handle:
    """Removes a hook; usable as a context manager.

    ``extra_dict`` are tables (one, or a list) with what else is known of the hook under its ``id``.
    """

    def __init__(self, hooks_dict: dict[int, Any], *, extra_dict: Any = None) -> None:
        self._hooks = hooks_dict
        self._extra = [extra_dict] if isinstance(extra_dict, dict) else list(extra_dict or ())
        self.id = next(_hook_ids)

    def hooks_dict_ref(self) -> dict[int, Any]:
        """The table that the hook is in."""
        return self._hooks

    def remove(self) -> None:
        module_changes.note()
        for table in (self._hooks, *self._extra):
            table.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def add_hook(hooks: dict[int, Any], fn: Callable[..., object], extra: object = None) -> Handle:
    """Put ``fn`` among ``hooks``, which recordings made without it are to find out."""
    module_changes.note()
    handle = Handle(hooks, extra_dict=extra)
    hooks[handle.id] = fn
    return handle


class Node:
    """One step of a differentiable computation. ``edges[k]`` leads to the node that takes the gradient of operand k."""

    __slots__ = ("__dict__", "__weakref__", "edges", "number", "out_types")

    # Rare attributes have no slot, and cost other nodes nothing.
    tensor_hooks: dict[int, dict[int, Any]] | None = None
    retained: dict[int, weakref.ref[TensorBase]] | None = None
    pre_hooks: dict[int, Any] | None = None
    post_hooks: dict[int, Any] | None = None
    source: Source | None = None
    origin: Origin | None = None
    _metadata: dict[Any, Any] | None = None
    observed = False  # whether gradients that arrive were announced to be read or replaced
    compiled = False  # whether machine code computed the results
    takes_nothing = False  # whether it runs when no gradient has arrived
    passes_on = False  # whether it replaces several nodes, of which only those with a gradient run

    def __init__(self, edges: tuple[Edge, ...], out_types: tuple[tuple[Any, tuple[int, ...]], ...]) -> None:
        self.edges = edges
        self.out_types = out_types
        self.number: float = next(_numbers)
        if modes.anomaly:
            self.source = user_source()
        if modes.recorder is not None:
            self.origin = modes.recorder.graph.here

    def backward(self, grads: Grads) -> Grads:
        """Operand gradients from result gradients (None: zero)."""
        raise NotImplementedError

    def edges_of(self, number: int) -> Sequence[Edge]:
        """The edges that the gradient of result ``number`` has a share in."""
        return self.edges

    def release(self) -> None:
        """Let go of saved values."""

    def form(self) -> Any:
        """A hashable description of what ``backward`` computes, without the edges; None: only ``backward`` knows."""
        return None

    def look(self) -> None:
        """See again which gradients to expect, where the tensor they are for has got other memory."""

    def spent(self) -> bool:
        """Whether ``backward`` would fail: its saved values were freed, or written to since."""
        return False

    def held(self) -> Sequence[TensorBase]:
        """The tensors that this node keeps alive."""
        return ()

    def name(self) -> str:
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return tuple((None, 0) if e is None else e for e in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def register_hook(self, fn: Callable[..., object]) -> Handle:
        """Call ``fn(grad_inputs, grad_outputs)`` after this node ran; its result replaces ``grad_inputs``."""
        self.observe()
        self.post_hooks = {} if self.post_hooks is None else self.post_hooks
        return add_hook(self.post_hooks, fn)

    def register_prehook(self, fn: Callable[..., object]) -> Handle:
        """Call ``fn(grad_outputs)`` before this node runs; its result replaces them."""
        self.observe()
        self.pre_hooks = {} if self.pre_hooks is None else self.pre_hooks
        return add_hook(self.pre_hooks, fn)

    def observe(self) -> None:
        """Announce that the gradients that arrive here will be read, or replaced."""
        self.observed = True

    def hook_tensor(self, number: int, fn: Callable[..., object]) -> Handle:
        """Call ``fn`` on the gradient of result ``number``."""
        self.observe()
        self.tensor_hooks = {} if self.tensor_hooks is None else self.tensor_hooks
        return add_hook(self.tensor_hooks.setdefault(number, {}), fn)

    def __call__(self, *grads: TensorBase | None) -> Any:
        result = tuple(self.backward(grads))
        return result[0] if len(result) == 1 else result


FIELDS = ("_data", "_grad", "_grad_fn", "_linked", "_requires_grad", "_seen", "_storage")


class TensorBase:
    """The fields of a tensor. Slots have fixed offsets, at which compiled calls read them without Python.

    Code that creates a tensor with ``blank`` sets ``_data``; the others have these initial values. ``_inside`` marks
    tensors that a function created internally, from numbers alone: PyTorch's nodes save those numbers. ``_reshaped``
    marks tensors that owned memory and became a view of their old self by an in-place change of shape.
    """

    __slots__ = (*FIELDS, "__dict__", "__weakref__")

    _data: Array
    _grad: TensorBase | None
    _grad_fn: Node | None
    _linked: bool
    _requires_grad: bool
    _seen: int
    _storage: Storage | None

    _base: TensorBase | None = None
    _source: weakref.ref[TensorBase] | None = None
    _chain: tuple[View, ...] = ()
    _unwritable: str | None = None
    _quiet: bool = False
    _output_nr: int = 0
    _accumulator: weakref.ref[Node] | None = None
    _hooks: dict[int, Any] | None = None
    _post_hooks: dict[int, Any] | None = None
    _inference: bool = False
    _inside: bool = False
    _reshaped: bool = False
    _tangents: dict[Any, Any] | None = None
    _value: Any = None
    _look: Any = None

    @property
    def _version(self) -> int:
        return 0 if self._storage is None else self._storage.version

    def _shared_storage(self) -> Storage:
        if self._storage is None:
            self._storage = Storage()
        return self._storage

    def _address(self) -> int:
        return int(settled(self).__array_interface__["data"][0])

    # Methods that ``Tensor`` provides and lower layers call.

    @staticmethod
    def __tracecomp_apply__(op: Op, operands: tuple[object, ...], attrs: Attrs) -> Any:
        raise NotImplementedError

    @staticmethod
    def _wrap(array: Array) -> TensorBase:
        raise NotImplementedError

    @staticmethod
    def _create(name: str, **attrs: Any) -> TensorBase:
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def requires_grad(self) -> bool:
        raise NotImplementedError

    @property
    def grad_fn(self) -> Node | None:
        raise NotImplementedError

    @property
    def is_leaf(self) -> bool:
        raise NotImplementedError

    def detach(self) -> TensorBase:
        raise NotImplementedError


INNER = frozenset(TensorBase.__annotations__) - frozenset(FIELDS) | {"_kept"}
"""The package's names among the attributes of a tensor, which are not a program's to read or to set."""
all_attributes: Callable[[TensorBase], dict[str, Any]] = vars(TensorBase)["__dict__"].__get__
"""The real ``__dict__`` of a tensor, which the package's rare attributes share with those of programs."""
_T = TypeVar("_T", bound=TensorBase)
_new_object = object.__new__


def blank(cls: type[_T]) -> _T:
    """A new tensor of class ``cls`` without data."""
    t = _new_object(cls)
    t._grad = t._grad_fn = t._storage = None
    t._linked = t._requires_grad = False
    t._seen = 0
    return t


def take_fields(target: TensorBase, source: TensorBase) -> None:
    """Give ``target`` the attributes of ``source`` that are other than the first values."""
    for name in FIELDS:
        value = getattr(source, name)
        if value is not None and value is not False:
            setattr(target, name, value)
    all_attributes(target).update(all_attributes(source))


def base_of(view: TensorBase) -> TensorBase:
    """The base of a linked view, in its state when the view was taken.

    A base is not itself a view when a view is taken. If it is one now, its shape was changed in place, and its base is
    its old state. If it now has another storage, its memory was replaced; it may get that memory back.
    """
    base = view._base
    assert base is not None
    storage = view._storage
    if base._storage is not storage and storage is not None and storage.former is not None:
        former = storage.former
        if not _same_layout(base._data, former._data):
            former._storage = storage
            return base_of(former) if former._linked else former
    if base._linked:
        view._base = base = base_of(base)
    return base


def end_view(view: TensorBase) -> None:
    """Make ``view`` a tensor that is not a view: nothing else refers to its base."""
    view._base, view._chain, view._linked, view._quiet, view._unwritable = None, (), False, False, None


def _same_layout(a: Array, b: Array) -> bool:
    """Whether two arrays have the same elements in memory, in the same order."""
    return a.shape == b.shape and a.strides == b.strides and a.ctypes.data == b.ctypes.data and a.dtype == b.dtype


def above(t: TensorBase) -> TensorBase | None:
    """The tensor that ``t`` is a view or an alias of."""
    if t._base is not None:
        return base_of(t) if t._linked else t._base
    source = None if t._source is None else t._source()
    return base_of(source) if source is not None and source._linked else source


def owner(t: TensorBase) -> tuple[TensorBase, tuple[View, ...]]:
    """The tensor that owns the memory of ``t``, and the views from there to ``t``."""
    chain: tuple[View, ...] = ()
    while (base := above(t)) is not None:
        t, chain = base, (*t._chain, *chain)
    return t, chain
