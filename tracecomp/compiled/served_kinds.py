"""Calls of a function that other code than its nodes serves: which ones, and by which code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from tracecomp.base import config
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.warm import Statics, Warm

MOST_KINDS = 256
"""Kinds of calls of one function that are served."""
Served = TypeVar("Served")


def kind_of(statics: Statics, tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """The key of a call: shapes, layouts of operands, which require gradients, and which are one tensor."""
    count = len(tensors)
    if count == 1:  # as below: most calls are of one tensor or two
        (t,) = tensors
        a = t._data
        return (statics, a.shape, a.flags.c_contiguous or a.strides, _asks(t))
    alike: tuple[int, ...] = ()
    if count == 2:
        alike = (0, 0) if tensors[0] is tensors[1] else ()
    elif count > 2:
        places = [id(t) for t in tensors]
        alike = () if len({*places}) == count else tuple(map(places.index, places))
    arrays = [t._data for t in tensors]
    layouts = [(a.shape, a.flags.c_contiguous or a.strides) for a in arrays]
    return (statics, alike, *[_asks(t) for t in tensors], *layouts)


def _asks(t: Tensor) -> bool:
    return t._requires_grad or t._grad_fn is not None or (t._linked and t.requires_grad)


class ServedKinds(Generic[Served]):
    """The compiled calls of one function, by their kinds."""

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        self.places: tuple[int, ...] = warm.tensors
        self._served: dict[tuple[Any, ...], Served] = {}

    def add(self, statics: Statics, tensors: Sequence[Tensor], served: Served) -> None:
        """Let ``served`` serve calls like this one; there are no more than ``MOST_KINDS``."""
        if len(self._served) < MOST_KINDS:
            self._served[kind_of(statics, tensors)] = served

    def find(self, args: tuple[Any, ...]) -> tuple[Served, Sequence[Tensor]] | None:
        """The compiled call, and its tensors; None if there is none."""
        warm = self._warm
        alone = len(args) == len(warm.tensors)
        tensors = args if alone else [args[i] for i in warm.tensors]
        served = self._served.get(kind_of(() if alone else warm.statics(args), tensors))
        if served is None or config.current().eager != "native" or not (alone or warm.may_be_known(args)):
            return None
        return served, tensors
