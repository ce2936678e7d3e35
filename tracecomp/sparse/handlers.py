"""Registration of functions on sparse tensors: an entry of ``HANDLERS`` for each name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.promotion import Operand
from tracecomp.sparse.tensors import HANDLERS, CooTensor, SparseTensor, compressed_of

Handler = Callable[..., Any]


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Make a function the handler of these names for sparse tensors."""

    def put(fn: Handler) -> Handler:
        for name in names:
            assert name not in HANDLERS, name
            HANDLERS[name] = fn
        return fn

    return put


def like(x: SparseTensor, made: CooTensor) -> Any:
    """``made`` in the layout of ``x``."""
    return made if isinstance(x, CooTensor) else compressed_of(made, x.layout)


def is_number(x: Operand) -> bool:
    return isinstance(x, int | float | complex) or (isinstance(x, Tensor) and x.dim() == 0)
