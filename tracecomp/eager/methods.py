"""Base class for methods that higher layers publish for ``Tensor``: empty at run time, with a stub for type
checkers."""

from __future__ import annotations

from tracecomp.eager.tensor_base import TensorBase


class TensorMethods(TensorBase):
    """The methods that ``functional`` and ``autograd`` set on ``Tensor``: the stub next to this file declares them."""

    __slots__ = ()
