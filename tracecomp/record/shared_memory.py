"""Inputs that share memory while some of it is written: the memory becomes one input, and they are views of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import View
from tracecomp.ir.op import OPS
from tracecomp.ir.types import from_numpy_dtype
from tracecomp.record.binding import Binding, read, tensor_of
from tracecomp.record.guards.memory import overlap, shows_elements_twice
from tracecomp.record.pytree import Leaves

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class SharedMemory:
    """Memory of ``size`` elements of ``dtype`` that ``members`` share; it starts at the first one.

    ``layouts`` has each member's layout in it: offset in bytes, dtype, shape and strides.
    """

    members: tuple[Binding, ...]
    dtype: Any
    size: int
    layouts: tuple[tuple[int, Any, tuple[int, ...], tuple[int, ...]], ...]

    def read(self, leaves: Leaves) -> Array:
        """The memory of a call."""
        first = read(self.members[0], leaves)
        start = as_strided(first, (1,), (first.itemsize,))
        if self.dtype != first.dtype:
            start = start.view(self.dtype)[:1]
        return as_strided(start, (self.size,), (self.dtype.itemsize,))

    def miss(self, leaves: Leaves) -> str | None:
        """The reason why a call does not fit: its tensors have another layout."""
        arrays = [read(b, leaves) for b in self.members]
        fits = _layouts(arrays) == self.layouts and all(mergeable(tensor_of(b, leaves)) for b in self.members)
        return None if fits else "arguments or captured tensors share other memory"


def _layouts(arrays: Sequence[Array]) -> tuple[tuple[int, Any, tuple[int, ...], tuple[int, ...]], ...]:
    start = _address(arrays[0])
    return tuple([(_address(a) - start, a.dtype, a.shape, a.strides) for a in arrays])


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def find_shared(candidates: Mapping[int, tuple[Binding, Array]]) -> list[tuple[SharedMemory, list[int]]]:
    """The groups of ``candidates``, by key, that share memory, each with the keys of its members."""
    found = []
    for keys in _groups({k: a for k, (_, a) in candidates.items()}):
        keys.sort(key=lambda k: _address(candidates[k][1]))
        arrays = [candidates[k][1] for k in keys]
        if len(keys) > 1 or shows_elements_twice(arrays[0]):
            memory = _memory(tuple([candidates[k][0] for k in keys]), arrays)
            if memory is not None:
                found.append((memory, keys))
    return found


def _memory(members: tuple[Binding, ...], arrays: Sequence[Array]) -> SharedMemory | None:
    """The memory of a group; None if views cannot express the layouts of its members."""
    layouts = _layouts(arrays)
    end = max(byte_bounds(a)[1] for a in arrays) - _address(arrays[0])
    alike = len({a.dtype for a in arrays}) == 1 and all(o % arrays[0].itemsize == 0 for o, *_ in layouts)
    dtype = arrays[0].dtype if alike else np.dtype(np.uint8)
    told = all(s >= 0 and s % a.itemsize == 0 for a in arrays for s in a.strides)
    if not told or not (alike or all(a.dtype.kind in "biuf" for a in arrays)):
        return None
    return SharedMemory(members, dtype, end // dtype.itemsize, layouts)


def _groups(arrays: Mapping[int, Array]) -> Iterable[list[int]]:
    """The keys of arrays, grouped by whether they overlap, directly or through others."""
    group = {k: [k] for k in arrays}
    keys = sorted((k for k in arrays if arrays[k].size), key=lambda k: byte_bounds(arrays[k])[0])
    for n, k in enumerate(keys):
        end = byte_bounds(arrays[k])[1]
        for other in keys[n + 1 :]:
            if byte_bounds(arrays[other])[0] >= end:
                break
            if group[k] is not group[other] and overlap(arrays[k], arrays[other]):
                group[k].extend(group[other])
                for x in group[other]:
                    group[x] = group[k]
    return {id(g): g for g in group.values()}.values()


def views(memory: SharedMemory, number: int) -> tuple[View, ...]:
    """The views that lead from ``memory`` to its member ``number``."""
    offset, dtype, shape, strides = memory.layouts[number]
    steps = [s // dtype.itemsize for s in strides]
    span = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1 if 0 not in shape else 0
    first, scale = offset // memory.dtype.itemsize, dtype.itemsize // memory.dtype.itemsize
    chain = [_slice((memory.size,), (first,), (first + span * scale,))]
    if dtype != memory.dtype:
        chain.append((OPS["reinterpret"], {"dtype": from_numpy_dtype(dtype)}))
    order = sorted(range(len(shape)), key=lambda k: -steps[k])
    dense = np.empty(0, dtype) if 0 in shape else as_strided(np.empty(1, dtype), shape, strides).transpose(order)
    if dense.flags.c_contiguous:
        chain.append((OPS["reshape"], {"shape": tuple(shape[k] for k in order) if 0 not in shape else shape}))
        if 0 not in shape and order != list(range(len(shape))):
            chain.append((OPS["permute"], {"dims": tuple(order.index(k) for k in range(len(shape)))}))
        return tuple(chain)
    return (*chain, *_strided(shape, steps))


def _strided(shape: tuple[int, ...], steps: Sequence[int]) -> Iterable[View]:
    """From the elements between the first and the last one, a row, to those that strides lead to, axis by axis."""
    made: tuple[int, ...] = ()
    for k, (n, s) in enumerate(zip(shape, steps, strict=True)):
        rest = sum((m - 1) * t for m, t in zip(shape[k + 1 :], steps[k + 1 :], strict=True)) + 1
        if n == 1 or s == 0:
            yield OPS["reshape"], {"shape": (*made, 1, rest)}
            made = (*made, 1)
        else:
            yield OPS["windows"], {"sizes": (rest,), "strides": (s,), "dilations": (1,)}
            made = (*made, n)
    yield OPS["reshape"], {"shape": made}
    if made != shape:
        yield OPS["expand"], {"shape": shape}


def _slice(shape: tuple[int, ...], starts: tuple[int, ...], stops: tuple[int, ...]) -> View:
    return OPS["slice"], {"starts": starts, "stops": stops, "steps": (1,) * len(shape)}


def mergeable(t: object) -> bool:
    """Whether a tensor or array can become a view of shared memory: a separate history would be lost."""
    return not isinstance(t, Tensor) or not t.requires_grad


def inputs_that_share(arrays: Sequence[tuple[Array, Binding]], written: Sequence[Binding]) -> list[Binding]:
    """The inputs that share memory with another, or overlap themselves, if some of it is written."""
    changed = {id(b) for b in written}
    found: list[Binding] = []
    spans = [(*byte_bounds(array), n, array, source) for n, (array, source) in enumerate(arrays) if array.size]
    spans.sort(key=lambda s: s[:3])
    for n, (_, end, _, array, source) in enumerate(spans):
        if id(source) in changed and shows_elements_twice(array):
            found.append(source)
        for start, _, _, other, other_source in spans[n + 1 :]:
            if start >= end:
                break
            if {id(source), id(other_source)} & changed and overlap(array, other):
                found += [source, other_source]
    return found
