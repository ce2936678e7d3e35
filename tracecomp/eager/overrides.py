"""``__torch_function__``: objects that override functions, and modes that receive every call.

Every published function checks the types of its arguments. Nearly all calls have only types in ``PLAIN``, which do not
override functions. For others ``override`` calls the objects, subclasses before their bases. While a mode is active in
any thread, ``PLAIN`` is empty, so that the check for modes is free without them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from tracecomp.base.code_origin import is_pytorchs
from tracecomp.eager import dispatch
from tracecomp.eager.foreign import check_takes, is_foreign
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor_base import TensorBase

Fn = Callable[..., Any]

_NEVER = (int, float, bool, complex, str, bytes, type(None), slice, type(Ellipsis), type)
PLAIN: set[type] = set(_NEVER)
NOT_OVERRIDDEN = object()
_NOT_ASKING = ("is_storage", "is_tensor")
"""Questions about what an object is, which it does not answer itself."""
_lock = threading.Lock()
_active = 0


def disabled(func: Fn, types: object, args: tuple[object, ...] = (), kwargs: Mapping[str, object] | None = None) -> Any:
    """The ``__torch_function__`` of classes whose objects are plain tensors to functions, as ``Parameter``."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def overrides(kind: type) -> bool:
    """Whether functions ask objects of this type."""
    if kind in _NEVER:
        return False
    how = getattr(kind, "__torch_function__", None)
    return how is not None and how is not disabled and not _is_root(kind)


def _is_root(kind: type) -> bool:
    """Whether ``kind`` is ``Tensor`` itself, the first class with the default ``__torch_function__``."""
    return issubclass(kind, TensorBase) and not hasattr(kind.__base__, "__torch_function__")


_MOST_LEVELS = 200
"""The deepest nesting of lists in arguments. numpy takes 64 levels; a list that holds itself has no end."""


def _asked(values: Iterable[Any], found: list[Any], level: int = 0) -> None:
    """Add to ``found`` the objects to ask, one of each type, subclasses before their bases.

    ValueError for lists without an end.
    """
    if level > _MOST_LEVELS:
        raise ValueError(f"too many dimensions 'list': an argument has more than {_MOST_LEVELS} levels of lists")
    for x in values:
        kind = type(x)
        if kind in PLAIN:
            continue
        if kind is tuple or kind is list:
            _asked(x, found, level + 1)
        elif not overrides(kind):
            if not _active and kind.__hash__ is not None and kind not in dispatch.CLASSES:
                PLAIN.add(kind)
        elif all(type(y) is not kind for y in found):
            place = next((i for i, y in enumerate(found) if issubclass(kind, type(y))), len(found))
            found.insert(place, x)


def override(
    fn: Fn, args: tuple[object, ...], kwargs: Mapping[str, object], asked: tuple[object, ...] | None = None
) -> Any:
    """Call the overrides of a mode or an argument for ``fn(*args, **kwargs)``; NOT_OVERRIDDEN if there are none.

    ``asked`` are the objects with overrides if they are not the arguments. TypeError when all overrides return
    NotImplemented.
    """
    found: list[Any] = []
    if not modes.plain_subclasses and fn.__name__ not in _NOT_ASKING:
        _asked((*args, *kwargs.values()) if asked is None else asked, found)
    if not modes.function_modes and not found:
        return NOT_OVERRIDDEN
    kinds = [*map(type, found)]
    if any(map(is_foreign, kinds)):
        check_takes(fn.__name__, kinds)
        found = [x for x in found if not is_foreign(type(x))]
        if not modes.function_modes and not found:
            return NOT_OVERRIDDEN
    return dispatch.first_answer("__torch_function__", fn.__name__, fn, found, args, kwargs)


class DisableTorchFunctionSubclass:
    """Inside, subclasses of Tensor are plain tensors to functions."""

    def __enter__(self) -> None:
        self._before = modes.plain_subclasses
        modes.plain_subclasses = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        modes.plain_subclasses = self._before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Inside, neither subclasses nor modes have a say."""

    def __enter__(self) -> None:
        super().__enter__()
        self._stack, modes.function_modes = modes.function_modes, ()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        modes.function_modes = self._stack
        super().__exit__(kind, error, trace)


def watch_calls() -> None:
    """Make functions check every argument, and run operator by operator, until ``unwatch_calls``."""
    global _active
    with _lock:
        _active += 1
        PLAIN.clear()


def unwatch_calls() -> None:
    """The end of a ``watch_calls``."""
    global _active
    with _lock:
        _active -= 1
        if not _active:
            PLAIN.update(_NEVER)


class TorchFunctionMode:
    """``with Mode():`` every call of a published function goes to ``__torch_function__``, which may run it.

    Inside ``__torch_function__`` the mode itself is off.
    """

    def __torch_function__(
        self, func: Fn, types: object, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        watch_calls()
        modes.function_modes = (*modes.function_modes, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        modes.function_modes = modes.function_modes[:-1]
        unwatch_calls()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """A mode made with these arguments."""
        return cls(*args, **kwargs)


# ---- subclasses of Tensor


def as_class(result: object, cls: type) -> Any:
    """The tensors in ``result`` as objects of ``cls``, which they are made into where they are plain tensors."""
    if isinstance(result, TensorBase):
        if _is_root(type(result)):
            result.__class__ = cls
        return result
    if isinstance(result, tuple | list):
        values = (as_class(x, cls) for x in result)
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)
    if isinstance(result, Iterator):
        return (as_class(x, cls) for x in result)
    return result


def default(cls: type, func: Fn, types: Any, args: tuple[object, ...], kwargs: Mapping[str, object] | None) -> Any:
    """The default override of Tensor's subclasses: results have the subclass too."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    if is_pytorchs(func):
        raise TypeError(
            f"{func.__name__}(): a function of PyTorch is given a tensor of tracecomp. Use torch.from_dlpack(x)"
        )
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    if func in NOT_WRAPPED or any(result is x for x in args):
        return result
    return as_class(result, cls)


NOT_WRAPPED: set[Any] = set()
"""Functions whose results keep their class: reads of gradients and bases."""


def _asking(base: Fn) -> Fn:
    """The method ``base`` of Tensor for a subclass: it asks the subclass."""

    @functools.wraps(base)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if modes.plain_subclasses:
            return base(self, *args, **kwargs)
        found = override(base, (self, *args), kwargs)
        return base(self, *args, **kwargs) if found is NOT_OVERRIDDEN else found

    return method


def _asking_property(base: property) -> property:
    """The property ``base`` of Tensor for a subclass."""
    get, put, delete = (None if f is None else _asking(f) for f in (base.__get__, base.__set__, base.fdel))
    return property(get, None if base.fset is None else put, delete, base.__doc__)


_KEPT = (
    "as_subclass", "requires_grad_", "__init__", "__new__", "__hash__", "__init_subclass__", "__torch_function__",
    "__tracecomp_apply__", "__reduce_ex__", "__reduce__", "__getattr__", "__setattr__", "__getattribute__",
    "__array_wrap__", "__dict__",
)  # fmt: skip
"""Members without an override: construction, storage, and methods that return the object itself."""


@functools.cache
def _asking_members(root: type) -> dict[str, tuple[Any, Any]]:
    """Methods and properties of Tensor without an override: Tensor's own, and the subclass's versions."""
    found: dict[str, tuple[Any, Any]] = {}
    for owner in (c for c in reversed(root.__mro__) if issubclass(c, TensorBase)):
        for name, member in vars(owner).items():
            internal = name.startswith("_") and not name.endswith("__")
            if internal or name in _KEPT or hasattr(member, "__takes__"):
                continue
            if isinstance(member, property):
                found[name] = (member, _asking_property(member))
            elif callable(member) and not isinstance(member, type | staticmethod | classmethod):
                found[name] = (member, _asking(member))
    return found


def prepare_subclass(root: type, cls: type) -> None:
    """Give a new subclass of Tensor (``root``) the methods that ask ``__torch_function__``, where it has Tensor's."""
    if not overrides(cls):
        return
    for name, (base, asking) in _asking_members(root).items():
        owner = next((c for c in cls.__mro__ if name in vars(c)), None)
        if owner is not None and vars(owner)[name] is base:
            setattr(cls, name, asking)
