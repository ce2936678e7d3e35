"""Updates of parameters, which machine code runs once they are frequent, like calls of functions.

The learning rate is an operand, so that one program is valid for a whole schedule. Other options are part of the
program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tracecomp.eager.device import use
from tracecomp.eager.modes import modes
from tracecomp.eager.overrides import PLAIN
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.functional.publish import PLAIN_TENSORS
from tracecomp.functional.warm import Warm

Update = Callable[[Tensor, Tensor, dict[str, Any], tuple[Any, ...]], None]
Key = tuple[type, str]

AFTER = 3
"""Steps with the same options after which they count as constant: some programs set options again for every step."""
MOST = 256
"""Most combinations of options with compiled updates."""

_served: dict[Key, Updates] = {}
_steps: Counter[Key] = Counter()


class Updates:
    """Updates by one kind of optimizer with these options, of which the first is a varying learning rate."""

    def __init__(self, update: Update, name: str, options: tuple[Any, ...]) -> None:
        self._update = update
        self._name = name
        self._others = options[1:]
        self._runs: dict[Any, Callable[..., None]] = {}

    def __call__(self, param: Tensor, grad: Tensor, state: dict[str, Any], rate: Tensor) -> bool:
        """Update ``param``; return False, with nothing done, if only the optimizer can do it."""
        tensors = (param, grad, *state.values(), rate)
        if use.begun or not PLAIN or any(type(t) not in PLAIN_TENSORS for t in tensors):
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

    def _keep(self, names: tuple[str, ...], dtypes: tuple[Any, ...]) -> None:
        """Count such updates, and compile them eventually."""

        def run(param: Tensor, grad: Tensor, *rest: Tensor) -> None:
            rate: Any = rest[-1] if modes.recorder is not None else rest[-1].item()
            self._update(param, grad, dict(zip(names, rest, strict=False)), (rate, *self._others))

        run.__name__ = self._name

        def put(found: Callable[..., None]) -> None:
            self._runs[names, dtypes] = found

        put(Warm(run, dtypes, put))


def updates(kind: type, update: Update, options: tuple[Any, ...]) -> tuple[Updates, Tensor] | None:
    """Return compiled updates for these options, and the learning rate as a tensor; None: use the optimizer.

    ``kind`` uses ``update``, which reads nothing but its arguments.
    """
    if modes.recorder is not None or not options or type(options[0]) is not float or not _are_plain(options[1:]):
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
    return found, wrap(np.array(options[0]))


def _are_plain(options: tuple[Any, ...]) -> bool:
    return all(_are_plain(x) if type(x) is tuple else x is None or type(x) in (bool, int, float) for x in options)
