"""Machine code for frequent calls of functions in eager programs, compiled on a second thread.

A call is recorded there on copies of its arguments, and compiled like any function. The program continues eagerly until
that is done; then native code alone serves the call. Both paths give the same bits, so results do not depend on the
time of the switch. This is verified: machine code is used only if it gives the bits of the eager call, on the arguments
themselves and on random numbers. Otherwise (some sums over several axes, docs/eager.md), calls stay eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tracecomp.base import config
from tracecomp.base.forks import in_child
from tracecomp.compiled.backends import BACKENDS
from tracecomp.compiled.native_call import call_code, fast_record
from tracecomp.compiled.replay import Plan
from tracecomp.compiled.strided_calls import add_turned, row_major
from tracecomp.compiled.tracked_calls import add_tracked, has_inference, tracked_call
from tracecomp.compiled.trial_runs import Unfit, copies, of_tensors, same, tensors_in, valid_random
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.eager_kernels import background
from tracecomp.functional.warm import Run, Statics, Warm
from tracecomp.record.capture import record
from tracecomp.record.recording import Recording
from tracecomp.record.results import Given, Made, Plain
from tracecomp.runtime.call import Code

MOST_BYTES = 2**26
"""Most bytes of all tensors of a call, as they are copied."""
MOST_SCRATCH = 2**22
"""Bytes of scratch memory, which stays with the machine code."""
MOST_KEPT = 2**16
"""Most bytes of results whose memory is reused once they are unreferenced."""
MOST_SHAPES = 256
"""Kinds of calls of one function that machine code serves."""
_IN_TURN = 16
"""Kinds that native code tries in turn, which takes 30 ns each; looking up the shapes of a call takes 600 ns."""


class _Records:
    """The records of a function with some plain arguments. Those beyond the first are found by the tensors' shapes."""

    def __init__(self, code: Code, eager: Run) -> None:
        self.count = 0
        self.first: list[Any] = []
        self._others: dict[tuple[tuple[int, ...], ...], tuple[list[Any], Run]] = {}
        self.eager = eager
        self._code = code

    def add(self, record: Any, tensors: Sequence[Tensor]) -> None:
        """Serve one more kind of calls, like that with ``tensors``."""
        self.count += 1
        own, shapes = self.first, _shapes(tensors)
        if self.count > _IN_TURN:
            made: list[Any] = []
            own, _ = self._others.setdefault(shapes, (made, self._code.builtin(self.eager, made)))
        own.append(record)

    def builtin(self) -> Run:
        """The function of tensors that finds the record of a call, or calls the function itself."""
        return self._code.builtin(self._by_shape, self.first)

    def _by_shape(self, *tensors: Tensor) -> Any:
        found = self._others.get(_shapes(tensors))
        return self.eager(*tensors) if found is None else found[1](*tensors)


def _shapes(tensors: Sequence[Tensor]) -> tuple[tuple[int, ...], ...]:
    return tuple([t._data.shape for t in tensors])


_records: dict[tuple[Warm, Statics], _Records] = {}
"""The machine code that serves a function, which is held. A forked child begins with none."""


def _make(warm: Warm, statics: Statics, tensors: list[Tensor]) -> None:
    """Serve calls like this one, in this thread's modes; Unfit when that cannot be."""
    eager = of_tensors(warm, statics)
    plan, code = _plan(eager, tensors), _code()
    _known(warm, statics, code, eager)
    if plan.recording.updates and modes.inference:
        raise Unfit("it writes in inference mode")
    _add(warm, statics, _record(plan, eager, tensors, code), tensors)


def _make_tracked(warm: Warm, statics: Statics, tensors: list[Tensor]) -> None:
    """Serve calls like this one, whose results have a history: by native code, else from Python."""
    served = tracked_call(warm, statics, tensors)
    try:
        finish, code = served.for_native_code(tensors), _code()
        _known(warm, statics, code, of_tensors(warm, statics))
        _keep_small(served.plan)
        record = fast_record(served.plan, tensors, code, finish)
    except Unfit:
        record = None
    if record is None:
        add_tracked(warm, statics, tensors, served)
    else:
        _add(warm, statics, record, tensors)


def _known(warm: Warm, statics: Statics, code: Code, eager: Run) -> _Records:
    """The records of a function so far; Unfit where there are too many."""
    known = _records.setdefault((warm, statics), _Records(code, eager))
    if known.count >= MOST_SHAPES:
        raise Unfit("there are too many shapes")
    return known


def _add(warm: Warm, statics: Statics, record: Any, tensors: Sequence[Tensor]) -> None:
    """Serve one more kind of calls by native code."""
    known = _records[warm, statics]
    written = [b.ref for b, _ in record[-1].recording.updates]
    if known.first and written and not known.first[0][-1].recording.updates:
        raise Unfit("it writes for some shapes only")
    known.add(record, tensors)
    if known.count == 1:
        builtin = known.builtin()
        warm.serve(statics, _writing(builtin, known.eager, written) if written else builtin)


def _code() -> Code:
    code = call_code()
    if code is None:
        raise Unfit("the object layout of this Python is unknown")
    return code


def _record(plan: Plan, eager: Run, tensors: list[Tensor], code: Code) -> Any:
    """The arguments of native code for calls like this one, whose bits are compared."""
    _compare(plan, eager, tensors)
    _compare(plan, eager, valid_random(eager, tensors))
    _keep_small(plan)
    found = fast_record(plan, tensors, code)
    if found is None:
        raise Unfit("a guard needs Python")
    return found


def _keep_small(plan: Plan) -> None:
    """Memory of results is used again where there is little of it."""
    if sum(np.dtype(dtype).itemsize * int(np.prod(shape)) for shape, dtype in plan.types) > MOST_KEPT:
        plan.kept = frozenset()


def _make_turned(warm: Warm, statics: Statics, tensors: list[Tensor]) -> None:
    """Serve calls like this one, with operands that are not row-major, on copies of them that are."""
    eager = of_tensors(warm, statics)
    dense = row_major(tensors)
    plan, code = _plan(eager, dense), _code()
    if plan.recording.updates:
        raise Unfit("it writes")
    add_turned(warm, statics, tensors, code.builtin(eager, [_record(plan, eager, dense, code)]), eager)


def _writing(builtin: Run, eager: Run, written: list[int]) -> Run:
    """``builtin``, which writes to some tensors, if these may be written anywhere; ``eager`` knows what others may."""

    def call(*tensors: Tensor) -> Any:
        if has_inference(tensors):
            return eager(*tensors)
        for i in written:
            if tensors[i]._storage is None:  # native code counts writes only where they are counted already
                tensors[i]._shared_storage()
        return builtin(*tensors)

    return call


def consider(warm: Warm, args: tuple[Any, ...], again: Callable[[], None]) -> bool:
    """Begin to compile calls of ``warm`` with arguments like ``args``, if that is worthwhile.

    Return False if a mode of this call excludes native code or the queue is full. The caller then repeats the request,
    as it does after a call of ``again``.
    """
    given = [args[i] for i in warm.tensors]
    if config.current().eager != "native" or modes.recorder is not None or modes.autocast is not None:
        return False
    tracked = modes.grad and any(t.requires_grad for t in given)
    if sum(t._data.nbytes for t in given) > MOST_BYTES:
        warm.is_open = True
        return True
    dense = all(t._data.flags.c_contiguous for t in given)
    if modes.inference and not dense:
        return True
    make = _make_tracked if tracked else _make if dense else _make_turned
    name = getattr(warm.run, "__name__", "?")
    work = partial(_try, make, warm, warm.statics(args), copies(given), modes.grad, modes.inference)
    return background.begin(name, work, warm.seconds, again)


def _try(
    make: Callable[..., None], warm: Warm, statics: Statics, tensors: list[Tensor], grad_mode: bool, inference: bool
) -> None:
    """Serve a kind of call, in these modes; if it cannot be, the calls inside it may."""
    modes.trial_run, modes.grad, modes.inference = True, grad_mode, inference
    try:
        make(warm, statics, tensors)
    except Exception:
        warm.is_open = True
        raise
    finally:
        modes.inference = False


def _plan(call: Callable[..., object], tensors: list[Tensor]) -> Plan:
    """``call`` recorded and compiled; Unfit unless all it does is to compute from its arguments.

    Results are new tensors, or arguments, which it may write to.
    """
    _, recording = record(call, tuple(tensors), {}, call.__name__)
    if not isinstance(recording, Recording):
        raise Unfit(recording.reason)
    if recording.unsettled or recording.predicates or recording.effects:
        raise Unfit("it has effects other than its results")
    written = {b.ref for b, _ in recording.updates if b.kind == "argument"}
    if any(b.kind != "argument" for b in recording.inputs) or len(written) < len(recording.updates):
        raise Unfit("it reads or writes tensors that are not arguments")
    if not all(isinstance(r, Made) or _is_written(r, written) for r in recording.results):
        raise Unfit("it returns an unmodified argument")
    recording.guards.modes.ignore_settings()
    plan = Plan(recording, BACKENDS["native"], None, _not_again)
    executable = getattr(plan.forward, "executable", None)
    if executable is None or executable.image.memory_bytes > MOST_SCRATCH:
        raise Unfit("it needs host routines or too much memory")
    return plan


def _is_written(r: object, written: set[Any]) -> bool:
    if isinstance(r, Plain):
        return r.value is None
    return isinstance(r, Given) and r.source.kind == "argument" and r.source.ref in written


def _not_again(fn: object) -> Any:
    raise Unfit("it has a derivative")


def _compare(plan: Plan, call: Callable[..., object], tensors: list[Tensor]) -> None:
    """Unfit unless machine code gives the bits of the eager call, in its results and its writes."""
    ours, theirs = copies(tensors), copies(tensors)
    _, found = plan.call(ours)
    wanted = call(*theirs)
    same([t._data for t in (*tensors_in(found), *ours)], [t._data for t in (*tensors_in(wanted), *theirs)])


in_child(_records.clear)
