"""Random bits as machine code, for any shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.base.locks import Lock
from tracecomp.codegen.kernels.philox import random_bits_text
from tracecomp.eager_kernels import background
from tracecomp.runtime import compiler
from tracecomp.runtime.image import Image
from tracecomp.runtime.loaded import Loaded

Array = np.ndarray[Any, Any]


_WORTH = 1 << 21
"""Elements that numpy generates before machine code does, with the same bits: LLVM takes as long for the routine."""
_SOON = 1 << 18
"""Elements after which the second thread begins to make the routine."""
_CALL = 1 << 13
"""Elements for which the overhead of one call counts."""

_made = 0
"""Elements that numpy has generated."""


_routines: list[Loaded | None] = []
"""The native routine, once it is made; None if this Python and numpy do not support it."""
_making = Lock()


def _routine() -> Loaded | None:
    if not _routines:
        with _making:
            if not _routines:
                _routines.append(_new_routine())
    return _routines[0]


def _new_routine() -> Loaded | None:
    target = compiler.host_target()
    objects = (compiler.object_code(random_bits_text(target), target),)
    try:
        return Loaded(Image(objects, 2, 3, 0, 0, ("random_bits",), False))
    except CompileError:
        return None


def _make_early() -> None:
    """Make the routine, and use it from now on."""
    global _made
    _routine()
    _made = _WORTH


def random_bits(state: Array, shape: tuple[int, ...]) -> Array | None:
    """32 random bits for each element of ``shape``, as int32; None if numpy has to generate them."""
    global _made
    count = math.prod(shape)
    if _made < _WORTH:
        before, _made = _made, _made + count + _CALL
        if before < _SOON <= _made < _WORTH:
            background.begin("random_bits", _make_early)
        if _made < _WORTH:
            return None
    routine = _routine()
    if routine is None or not count:
        return None
    out = np.empty(shape, np.int32)
    routine.run((np.ascontiguousarray(state), out, np.array(count)), 1)
    return out
