"""Updates of parameters, which machine code runs once they are frequent, like calls of functions.

The learning rate is an operand, so that one program is valid for a whole schedule. Other options are part of the
program. In a recorded call, the first update of each kind is recorded operator by operator, and the others are eager:
the graph gets copies of the first one's nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import numpy as np

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes, unrecorded
from tracecomp.eager.overrides import PLAIN
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional.publish import PLAIN_TENSORS
from tracecomp.functional.warm import Warm
from tracecomp.record.node_tape import NodeTape
from tracecomp.record.recorder import Recorder
from tracecomp.record.symbolic.sym_scalar import SymScalar

State = dict[str, Any]
Options = tuple[Any, ...]
Served = Callable[[Tensor, Tensor, State], bool]
"""Updates a parameter by its gradient and state; False, with nothing done, if only the optimizer can do it."""
Update = Callable[[Tensor, Tensor, State, Options], None]
Key = tuple[type, str]

AFTER = 3
"""Steps with the same options after which they count as constant: some programs set options again for every step."""
MOST = 256
"""Most combinations of options with compiled updates."""

_served: dict[Key, Updates] = {}
_steps: Counter[Key] = Counter()


class Updates:
    """Updates by one kind of optimizer with these options, of which the first is a varying learning rate."""

    def __init__(self, update: Update, name: str, options: Options) -> None:
        self._update = update
        self._name = name
        self._others = options[1:]
        self._runs: dict[Any, Callable[..., None]] = {}

    def __call__(self, rate: Tensor, param: Tensor, grad: Tensor, state: State) -> bool:
        """Update ``param``; return False, with nothing done, if only the optimizer can do it."""
        tensors = (param, grad, *state.values(), rate)
        if not _are_plain_tensors(tensors):
            return False
        names, dtypes = tuple(state), tuple([t._data.dtype for t in tensors])
        run = self._runs.get((names, dtypes))
        if run is not None:
            run(*tensors)
            return True
        self._update(param, grad, state, (rate.item(), *self._others))
        # The first update creates the state. An update that replaces state tensors does not depend on its operands
        # alone.
        if tuple(state) == names and all(a is b for a, b in zip(state.values(), tensors[2:], strict=False)):
            self._keep(names, dtypes)
        return True

    def _keep(self, names: tuple[str, ...], dtypes: Options) -> None:
        """Count such updates, and compile them eventually."""

        def run(param: Tensor, grad: Tensor, *rest: Tensor) -> None:
            rate: Any = rest[-1] if modes.recorder is not None else rest[-1].item()
            self._update(param, grad, dict(zip(names, rest, strict=False)), (rate, *self._others))

        run.__name__ = self._name

        def put(found: Callable[..., None]) -> None:
            self._runs[names, dtypes] = found

        put(Warm(run, dtypes, put))


class RecordedUpdates:
    """Updates with these options in one step of a call that ``recorder`` records. ``eager`` serves them if it can."""

    def __init__(self, recorder: Recorder, kind: type, update: Update, options: Options) -> None:
        self._recorder = recorder
        self._update = update
        self._options = options
        self._numbers = tuple(map(_number, options))
        self._eager = _eager_updates(kind, update, self._numbers)
        self._tapes: dict[Any, tuple[NodeTape, list[str]] | None] = {}

    def __call__(self, param: Tensor, grad: Tensor, state: State) -> bool:
        tensors = _by_name(param, grad, state)
        if modes.recorder is not self._recorder or not self._are_alike(tensors.values()):
            return False
        done: bool = self._recorder.unobserved(self._run, param, grad, state, tensors)
        return done

    def _run(self, param: Tensor, grad: Tensor, state: State, tensors: State) -> bool:
        key = tuple([(name, *self._kind(t)) for name, t in tensors.items()])
        if key not in self._tapes:
            self._tapes[key] = self._first(param, grad, state)
            return True
        found = self._tapes[key]
        if found is None:
            return False
        with unrecorded():
            if self._eager is None or not self._eager(param, grad, state):
                self._update(param, grad, state, self._numbers)
        tape, names = found
        tensors = _by_name(param, grad, state)  # the first update creates the state
        tape.add_again([tensors[name] for name in names])
        return True

    def _are_alike(self, tensors: Collection[Tensor]) -> bool:
        """Whether types tell how an update of ``tensors`` is recorded."""
        # The recorder reads the history of a view's base before the view is written; copies come after the write.
        return (
            _are_plain_tensors(tensors)
            and len({id(t) for t in tensors}) == len(tensors)
            and not self._recorder.memory.brought
            and not any(t._linked and not self._recorder.is_made(t) for t in tensors)
        )

    def _kind(self, t: Tensor) -> tuple[object, ...]:
        a, made = t._data, self._recorder.is_made(t)
        history = (t._requires_grad, t._grad_fn is None, t._linked, t._inference)
        return (a.dtype, a.shape, a.flags.c_contiguous or a.strides, made, *history)

    def _first(self, param: Tensor, grad: Tensor, state: State) -> tuple[NodeTape, list[str]] | None:
        """Record an update; return its tape, with names of tensors, if it is valid for others."""
        made, before = self._recorder.is_made, dict(state)
        run = partial(self._update, param, grad, state, self._options)
        tape = self._recorder.taped(run, [t for t in (param, grad, *state.values()) if made(t)])
        # A state that the call has made is part of its results, which other updates would lack.
        tape.valid = (
            tape.valid
            and _are_plain_tensors(state.values())
            and all(state.get(name) is t for name, t in before.items())
            and not any(made(t) for name, t in state.items() if name not in before)
        )
        names = tape.close({id(t): name for name, t in _by_name(param, grad, state).items()})
        return None if names is None else (tape, names)


def _by_name(param: Tensor, grad: Tensor, state: State) -> State:
    return {"param": param, "grad": grad} | {f"state {name}": t for name, t in state.items()}


def _are_plain_tensors(values: Iterable[object]) -> bool:
    return bool(PLAIN) and not use.begun and all(type(x) in PLAIN_TENSORS for x in values)


def _number(option: Any) -> Any:
    """The current value of an option, which a recording may follow."""
    if type(option) is tuple:
        return tuple(map(_number, option))
    return option.value if type(option) is SymScalar else option


def updates(kind: type, update: Update, options: Options) -> Served | None:
    """Return what serves updates with these options; None: use the optimizer.

    ``kind`` uses ``update``, which reads nothing but its arguments.
    """
    recorder = modes.recorder
    if recorder is None:
        return _eager_updates(kind, update, options)
    if recorder.repeats_nodes and not recorder.sized and _are_plain(_number(options)):
        return RecordedUpdates(recorder, kind, update, options)
    return None


def _eager_updates(kind: type, update: Update, options: Options) -> Served | None:
    """Return compiled updates, once they are frequent."""
    if not options or type(options[0]) is not float or not _are_plain(options[1:]):
        return None
    key = (kind, repr(options[1:]))  # distinguishes 1 from 1.0, and signs of zeros
    found = _served.get(key)
    if found is None:
        if len(_steps) >= MOST:
            _steps.clear()
        _steps[key] += 1
        if _steps[key] < AFTER or len(_served) >= MOST:
            return None
        found = _served[key] = Updates(update, kind.__name__, options)
    return partial(found, wrap(np.array(options[0])))


def _are_plain(options: Options) -> bool:
    return all(_are_plain(x) if type(x) is tuple else x is None or type(x) in (bool, int, float) for x in options)
