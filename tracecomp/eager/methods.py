"""The place of the methods that are published for ``Tensor`` above: nothing at run time, a stub for type checkers."""

from __future__ import annotations

from tracecomp.eager.tensor_base import TensorBase


class TensorMethods(TensorBase):
    """What ``functional`` and ``autograd`` set on ``Tensor``: the stub beside this file declares it."""

    __slots__ = ()
