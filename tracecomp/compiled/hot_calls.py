"""Machine code for calls of functions that eager programs make often, made on a second thread.

A call is recorded there on copies of its arguments, and compiled like any function. The program goes on eagerly until
it is done, and is then served by native code alone. Both ways give the same bits, so results do not depend on when
that is; it is made sure of: machine code is put to use only when it gives the bits of the eager call, on the arguments
themselves and on random numbers. Where it does not (some sums over several axes, docs/eager.md), calls stay eager.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.locks import Lock
from tracecomp.compiled.backends import BACKENDS
from tracecomp.compiled.native_call import call_code, fast_record
from tracecomp.compiled.replay import Plan
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import blank
from tracecomp.functional.warm import Statics, Warm
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
MOST_WAITING = 64
"""Calls that wait for machine code, each with a copy of its arguments; more are not added."""
REST = 2.0
"""The second thread rests so much longer than it has worked, because it slows down the program."""

Array = np.ndarray[Any, Any]
Call = tuple[str, Callable[[], None]]


class Unfit(Exception):
    """Why a call is not served by machine code."""


class _Maker:
    """The second thread and what waits for it, with names. A forked child begins with none."""

    def __init__(self) -> None:
        self.waiting: SimpleQueue[Call | None] = SimpleQueue()
        self.chains: dict[tuple[int, Statics], list[Any]] = {}
        self.refused: list[tuple[str, str]] = []
        self._thread: threading.Thread | None = None
        self._ending = False
        self._added = self._done = 0
        self._adding = Lock()

    def add(self, call: Call) -> None:
        """Have machine code made for ``call``, if not too many wait."""
        if self.waiting.qsize() >= MOST_WAITING or self._ending:
            return
        with self._adding:
            self._added += 1
        self.waiting.put(call)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, name="tracecomp hot calls", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # the system gives none, or the interpreter is ending
                self._thread = None

    def finish(self) -> None:
        """Wait until nothing waits."""
        while self._done < self._added:
            time.sleep(0.005)

    def end(self) -> None:
        """Finish what is being made: a thread that is ended inside of LLVM takes the process with it."""
        self._ending = True
        self.waiting.put(None)
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        modes.rehearsal = True
        while (call := self.waiting.get()) is not None and not self._ending:
            began = time.perf_counter()
            name, work = call
            try:
                work()
            except Exception as error:  # the function's own, on copies: the program meets it itself
                self.refused.append((name, f"{type(error).__name__}: {error}"))
            del call, work
            self._done += 1
            self._rest(REST * (time.perf_counter() - began))

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._ending and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.02))

    def make(self, warm: Warm, statics: Statics, tensors: list[Tensor], grad_mode: bool) -> None:
        """Serve calls like this one, in this gradient mode; Unfit when that cannot be."""
        modes.grad = grad_mode
        eager = _with(warm, statics)
        plan = _plan(eager, tensors)
        code = call_code()
        if code is None:
            raise Unfit("objects of this Python are laid out in an unknown way")
        chain = self.chains.setdefault((id(warm), statics), [])
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


_maker = _Maker()


def finish() -> None:
    """Wait until machine code is made for all calls that were made often; for tests and measurements."""
    _maker.finish()


def refused() -> list[tuple[str, str]]:
    """The functions that are called often and stay eager, with reasons."""
    return list(_maker.refused)


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
        in_background(name, partial(_maker.make, warm, warm.statics(args), copies, modes.grad))


def in_background(name: str, work: Callable[[], None]) -> None:
    """Have ``work`` done on the second thread, where what it raises is a reason why ``name`` stays eager."""
    _maker.add((name, work))


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
        if a.dtype != b.dtype or a.shape != b.shape or a.strides != b.strides or not _same_bits(a, b):
            raise Unfit("eager results have other bits")


def _same_bits(a: Array, b: Array) -> bool:
    """Whether all elements but NaNs, whose bits mean nothing, have the same bits."""
    if a.dtype.kind not in "fV":
        return np.array_equal(a, b)
    bits = np.dtype(f"u{a.dtype.itemsize}")
    same = np.ascontiguousarray(a).view(bits) == np.ascontiguousarray(b).view(bits)
    return bool(np.all(same | (np.isnan(a) & np.isnan(b))))


def _after_fork() -> None:
    global _maker
    _maker = _Maker()


atexit.register(lambda: _maker.end())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
