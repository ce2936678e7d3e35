"""``__torch_dispatch__``: modes and tensor subclasses that handle every operator, below autograd.

A primitive is dispatched if a mode is active or an operand has such a class. A higher layer maps it to operators of
``torch.ops`` (``aten/calls.py``). No cost when disabled: a single check of ``device.use.begun``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes, records_history
from tracecomp.eager.tensor_base import TensorBase, blank, take_fields
from tracecomp.ir.op import Attrs, Op

CLASSES: set[type] = set()
"""Tensor classes with ``__torch_dispatch__``."""
_STACKS = {"__torch_function__": "function_modes", "__torch_dispatch__": "dispatch_modes"}
"""Attributes with the active modes of each protocol."""


def disabled(func: object, types: object, args: object = (), kwargs: object = None) -> Any:
    """The ``__torch_dispatch__`` of classes whose objects are plain tensors to operators."""
    raise NotImplementedError("tensors of this class do not dispatch operators")


def note_class(cls: type) -> None:
    """Register ``cls``, a new subclass of Tensor, if it has ``__torch_dispatch__``."""
    how = getattr(cls, "__torch_dispatch__", None)
    if how is not None and how is not disabled:
        use.begin()
        CLASSES.add(cls)


def asked(operands: Iterable[object]) -> bool:
    """Whether a mode, or the class of an operand, has a say."""
    if modes.undispatched:
        return False
    return bool(modes.dispatch_modes) or (bool(CLASSES) and any(type(x) in CLASSES for x in operands))


def first_answer(
    protocol: str,
    told: str,
    fn: object,
    found: Iterable[object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> Any:
    """Call the handlers of the innermost mode, then of the objects ``found`` in turn, for ``fn(*args, **kwargs)``.

    ``protocol`` is ``__torch_function__`` or ``__torch_dispatch__``. TypeError, which names ``told``, when all of them
    return NotImplemented.
    """
    types = tuple(map(type, found))
    name = _STACKS[protocol]
    stack = getattr(modes, name)
    if stack:
        # A mode is inactive inside its own handler.
        setattr(modes, name, stack[:-1])
        try:
            result = getattr(stack[-1], protocol)(fn, types, args, kwargs)
        finally:
            setattr(modes, name, stack)
        if result is not NotImplemented:
            return result
    for kind in types:
        result = getattr(kind, protocol)(fn, types, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"Multiple dispatch failed for '{told}'; all {protocol} handlers returned NotImplemented: "
        f"{', '.join(t.__qualname__ for t in types)}"
    )


class _Above:
    """How a primitive, and an operator of ``aten``, is called: set by ``tracecomp.aten`` when it is first needed."""

    @staticmethod
    def answer(op: Op, operands: tuple[object, ...], attrs: Attrs) -> Any:
        import_module("tracecomp.aten")
        return above.answer(op, operands, attrs)

    @staticmethod
    def call(name: str, *args: Any) -> Any:
        import_module("tracecomp.aten")
        return above.call(name, *args)


above = _Above()


def ask(op: Op, operands: tuple[object, ...], attrs: Attrs) -> Any:
    """The handlers' results for a primitive, without history."""
    before, outer = modes.grad, modes.grad_above
    modes.grad, modes.grad_above = False, records_history()
    try:
        return above.answer(op, operands, attrs)
    finally:
        modes.grad, modes.grad_above = before, outer


def call(name: str, *args: Any) -> Any:
    """The handlers' result for the operator ``name`` of ``aten``."""
    before, modes.grad = modes.grad, False
    try:
        return above.call(name, *args)
    finally:
        modes.grad = before


class no_dispatch:
    """A context without handlers: tensors are read directly."""

    def __enter__(self) -> None:
        self._before, modes.undispatched = modes.undispatched, True

    def __exit__(self, *error: object) -> None:
        modes.undispatched = self._before


def without_history(t: TensorBase) -> TensorBase:
    """Another object that is the same tensor, as a leaf."""
    found = blank(type(t))
    take_fields(found, t)
    found._grad = found._grad_fn = None
    found._requires_grad = found._linked = False
    for name in ("_base", "_chain", "_output_nr", "_hooks", "_post_hooks", "_accumulator", "_tangents"):
        found.__dict__.pop(name, None)
    return found
