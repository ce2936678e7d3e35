"""Random bits as machine code, for any shape."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from tracecomp.base.errors import CompileError
from tracecomp.codegen.kernels.philox import random_bits_text
from tracecomp.runtime import compiler
from tracecomp.runtime.image import Image
from tracecomp.runtime.loaded import Loaded

Array = np.ndarray[Any, Any]


_WORTH = 1 << 21
"""Elements that numpy generates before machine code does, with the same bits: LLVM takes as long for the routine."""
_CALL = 1 << 13
"""Elements for which the overhead of one call counts."""

_made = 0
"""Elements that numpy has generated."""


@cache
def _routine() -> Loaded | None:
    """The native routine; None if this Python and numpy do not support it."""
    target = compiler.host_target()
    objects = (compiler.object_code(random_bits_text(target), target),)
    try:
        return Loaded(Image(objects, 2, 3, 0, 0, ("random_bits",), False))
    except CompileError:
        return None


def random_bits(state: Array, shape: tuple[int, ...]) -> Array | None:
    """32 random bits for each element of ``shape``, as int32; None if numpy has to generate them."""
    global _made
    count = math.prod(shape)
    if _made < _WORTH:
        _made += count + _CALL
        if _made < _WORTH:
            return None
    routine = _routine()
    if routine is None or not count:
        return None
    out = np.empty(shape, np.int32)
    routine.run((np.ascontiguousarray(state), out, np.array(count)), 1)
    return out
