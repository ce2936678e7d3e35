"""The helpers of ``torch.nn.modules.utils`` with which layers of other libraries parse sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

Reader = Callable[[Any], tuple[Any, ...]]


def _ntuple(n: int, name: str = "parse") -> Reader:
    """A function that repeats one size ``n`` times, and converts several to a tuple."""

    def parse(x: object) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else tuple(repeat(x, n))

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Sequence[object], n: int) -> tuple[Any, ...]:
    """Every element ``n`` times, last dimension first: the form in which convolutions pass padding to `pad`."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: Sequence[int]) -> Any:
    """``out_size`` with the sizes of the input instead of None. ValueError unless the input has more dimensions."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [d if v is None else v for v, d in zip(out_size, defaults[-len(out_size) :], strict=True)]
