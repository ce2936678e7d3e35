"""A call's reads and changes of Python objects known by name: modules, optimizers, options, schedules.

``observer.py`` observes other reads of its functions, instruction by instruction, and adds their effects here.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tracecomp.base.capture_guide import BreakReason, Section
from tracecomp.eager.modes import unrecorded
from tracecomp.record.context import OptimizerLike, RecordingContext
from tracecomp.record.effects import Effect
from tracecomp.record.guards.read_steps import Entry
from tracecomp.record.inputs import Inputs
from tracecomp.record.refusals import Refusals
from tracecomp.record.symbolic.sym_scalar import SymScalar, arithmetic


class PythonState:
    """The reads and changes of one recording. Numbers that every call reads again become ``inputs``."""

    def __init__(self, recorder: RecordingContext, inputs: Inputs, refusals: Refusals) -> None:
        self._recorder = recorder
        self._inputs = inputs
        self._refusals = refusals
        self.effects: list[Effect] = []
        self.stepped: set[int] = set()  # schedules that have made a step, and the groups of numbers they may change
        self.set_by_call: set[tuple[int, Any]] = set()  # writes of the call itself: objects and steps
        self.kept: BreakReason | None = None  # state kept by a library that every call would have to create
        self.watched: dict[tuple[int, str], tuple[Any, str]] = {}
        self.modules: dict[int, Any] = {}
        self.on_module: Callable[[Any], None] = lambda module: None
        self.optimizers: dict[int, OptimizerLike] = {}

    def host(self, owner: object, key: str, value: object) -> Any:
        """A number that every call reads again from ``owner``, followed as a float; other values are guarded."""
        if id(getattr(owner, "group", owner)) in self.stepped:
            what = f"reads {key} after a schedule's step in the same call"
            self._refusals.refuse_here(what, Section.STEP, "Step the schedule last")
            return value  # the bound input is the number before the step
        if (id(getattr(owner, "group", owner)), Entry(key).same()) in self.set_by_call:
            return value  # set by the call itself: its operands are guarded
        if type(value) is SymScalar:  # of a place, which is read again itself; the call may have set it
            return arithmetic(operator.mul, value, 1.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.watch(owner, key)
            return value
        found = self._inputs.bind_host(owner, key, value)
        if found.value != value == value:  # not NaN, which differs from itself
            self._refusals.refuse_here(f"reads {key}, which untracked code changed in the same call", Section.STATE)
            return value
        return SymScalar(self._recorder, found.tensor, float(value))

    def watch(self, owner: object, key: str) -> None:
        """Guard ``owner[key]``, or the attribute ``key`` of ``owner``."""
        self.watched.setdefault((id(owner), key), (owner, key))

    def step(
        self,
        step: Callable[..., object],
        owner: object,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        groups: Sequence[object],
    ) -> Any:
        """Run ``step`` aside; later calls run it again after the graph. It may change the numbers in ``groups``."""
        if any(type(x) not in (int, float, type(None)) for x in (*args, *kwargs.values())):
            what = f"calls {type(owner).__name__}.step with a value of the compiled call"
            self._refusals.refuse_here(what, Section.STEP, "Return the value and make this step outside")
        self.effects.append(Effect(partial(step, owner, *args, **kwargs), None, ()))
        self.stepped.update(map(id, (owner, *groups)))
        watch = sys.gettrace()
        sys.settrace(None)
        try:
            with unrecorded():
                return step(owner, *args, **kwargs)
        finally:
            sys.settrace(watch)

    def module_ran(self, module: Any) -> None:
        """Note a module whose attributes the program may have read."""
        if id(module) not in self.modules:
            self.modules[id(module)] = module
            for name, t in (*module.named_parameters(), *module.named_buffers()):
                self._inputs.names.setdefault(id(t), name)
            self.on_module(module)

    def optimizer_ran(self, optimizer: OptimizerLike) -> None:
        """Note an optimizer whose state the program has used."""
        self.optimizers[id(optimizer)] = optimizer
