"""``torch.nn.modules.utils``: helpers with which libraries parse sizes and rename parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping, Sequence
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


def consume_prefix_in_state_dict_if_present(state_dict: MutableMapping[str, object], prefix: str) -> None:
    """Remove ``prefix`` from the names of a state dict and of its metadata, in place; other names stay.

    A model in ``DistributedDataParallel`` saves its names with the prefix ``"module."``.

    >>> from tracecomp import nn
    >>> state = nn.ModuleDict({"module": nn.Linear(1, 1)}).state_dict()
    >>> nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    >>> list(state), list(state._metadata)
    (['weight', 'bias'], [''])
    """
    for key in [*state_dict]:
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        for key in [*metadata]:
            if key and (key == prefix.replace(".", "") or key.startswith(prefix)):
                metadata[key[len(prefix) :]] = metadata.pop(key)
