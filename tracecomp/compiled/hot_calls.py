"""Machine code for calls of functions that eager programs make often, made on a second thread.

A call is recorded there on copies of its arguments, and compiled like any function. The program goes on eagerly until
it is done, and is then served by native code alone. Both ways give the same bits, so results do not depend on when
that is; it is made sure of: machine code is put to use only when it gives the bits of the eager call, on the arguments
themselves and on random numbers. Where it does not (some sums over several axes, docs/eager.md), calls stay eager.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.compiled.backends import BACKENDS
from tracecomp.compiled.native_call import call_code, fast_record
from tracecomp.compiled.replay import Plan
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import blank
from tracecomp.eager_kernels import background
from tracecomp.functional.warm import Statics, Warm
from tracecomp.ir.arrays import same_bits
from tracecomp.record.capture import record
from tracecomp.record.recording import Recording
from tracecomp.record.results import Made

MOST_BYTES = 2**26
"""Of all tensors of a call: copies are made of them."""
MOST_SCRATCH = 2**22
"""Bytes of scratch memory, which stays with the machine code."""
MOST_KEPT = 2**16
"""Bytes of results whose memory is used again once nobody holds them."""
MOST_SHAPES = 16
"""Shapes of one function that native code tries in turn."""

Array = np.ndarray[Any, Any]


class Unfit(Exception):
    """Why a call is not served by machine code."""


_chains: dict[tuple[int, Statics], list[Any]] = {}
"""The machine code that serves a function, shape by shape. A forked child begins with none."""


def _make(warm: Warm, statics: Statics, tensors: list[Tensor], grad_mode: bool) -> None:
    """Serve calls like this one, in this gradient mode; Unfit when that cannot be."""
    modes.rehearsal = True
    modes.grad = grad_mode
    eager = _with(warm, statics)
    plan = _plan(eager, tensors)
    code = call_code()
    if code is None:
        raise Unfit("objects of this Python are laid out in an unknown way")
    chain = _chains.setdefault((id(warm), statics), [])
    if len(chain) >= MOST_SHAPES:
        raise Unfit("there are too many shapes")
    _compare(plan, eager, tensors)
    _compare(plan, eager, [_random(t) for t in tensors])
    if sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in plan.types) > MOST_KEPT:
        plan.kept = frozenset()
    found = fast_record(plan, tensors, code)
    if found is None:
        raise Unfit("a guard needs Python")
    chain.append(found)
    if len(chain) == 1:
        warm.serve(statics, code.builtin(eager, chain))


def consider(warm: Warm, args: tuple[Any, ...]) -> None:
    """Have machine code made for calls of ``warm`` with arguments like ``args``, if that is of use."""
    given = [args[i] for i in warm.tensors]
    if config.current().eager != "native" or modes.recorder is not None or modes.autocast is not None:
        return
    if modes.inference or not all(t._data.flags.c_contiguous for t in given):
        return
    # A derivative of the whole would compute values again that eager nodes have kept: it would see what is written
    # meanwhile into memory whose versions nobody counts (``.data``, arrays), and they would not.
    if modes.grad and any(t.requires_grad for t in given):
        return
    if sum(t._data.nbytes for t in given) <= MOST_BYTES:
        copies = [_like(t, t._data.copy()) for t in given]
        name = getattr(warm.run, "__name__", "?")
        background.begin(name, partial(_make, warm, warm.statics(args), copies, modes.grad))


def _with(warm: Warm, statics: Statics) -> Callable[..., Any]:
    """The eager call as a function of tensors alone."""

    def call(*tensors: Any) -> Any:
        return warm(*warm.with_statics(statics, tensors))

    call.__name__ = getattr(warm.run, "__name__", "call")
    return call


def _plan(call: Callable[..., object], tensors: list[Tensor]) -> Plan:
    """``call`` recorded and compiled; Unfit unless it computes new tensors from its arguments and nothing else."""
    _, recording = record(call, tuple(tensors), {}, call.__name__)
    if not isinstance(recording, Recording):
        raise Unfit(recording.reason)
    if recording.unsettled or recording.predicates or recording.updates or recording.effects:
        raise Unfit("it is more than its results")
    if any(b.kind != "argument" for b in recording.inputs) or not all(isinstance(r, Made) for r in recording.results):
        raise Unfit("it reads what is no argument, or returns what is not new")
    plan = Plan(recording, BACKENDS["native"], None, _not_again)
    executable = getattr(plan.forward, "executable", None)
    if executable is None or executable.image.memory_bytes > MOST_SCRATCH:
        raise Unfit("it needs the host or much memory")
    return plan


def _not_again(fn: object) -> Any:
    raise Unfit("it has a derivative")


def _random(t: Tensor) -> Tensor:
    """Random numbers in the place of floats, the same of everything else."""
    if t._data.dtype.kind != "f":
        return t
    numbers = np.asarray(np.random.default_rng(0).standard_normal(t._data.shape))
    return _like(t, numbers.astype(t._data.dtype))


def _like(t: Tensor, array: Array) -> Tensor:
    """A leaf over ``array`` that guards take for ``t``."""
    found = blank(type(t))
    found._data, found._requires_grad = array, t.requires_grad
    return found


def _compare(plan: Plan, call: Callable[..., object], tensors: list[Tensor]) -> None:
    """Unfit unless machine code gives the bits of the eager call."""
    _, found = plan.call(tensors)
    _same([t._data for t in _tensors(found)], [t._data for t in _tensors(call(*tensors))])


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for x in value for t in _tensors(x)] if isinstance(value, tuple | list) else []


def _same(found: list[Array], wanted: list[Array]) -> None:
    for a, b in zip(found, wanted, strict=True):
        if a.strides != b.strides or not same_bits(a, b, any_nan=True):
            raise Unfit("eager results have other bits")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_chains.clear)
