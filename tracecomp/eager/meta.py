"""Tensors without memory: their arrays have shape, element type and strides, but unreadable elements.

The arrays are at addresses that are reserved and never backed by memory. numpy's rules thus determine views, offsets
and overlaps. The record's ``infer`` determines the results of an operator. Reads raise: the arrays' class handles all
numpy functions.
"""

from __future__ import annotations

import math
import mmap
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tracecomp.eager import dispatch
from tracecomp.eager.device import META, check_device, device, use
from tracecomp.eager.memory_formats import Order, preserved, result_strides, strides_in
from tracecomp.eager.modes import modes
from tracecomp.ir import arrays as memory
from tracecomp.ir.op import Attrs, Op
from tracecomp.ir.types import TensorType, from_numpy_dtype

Array: TypeAlias = np.ndarray[Any, Any]
NO_DATA = "Cannot copy out of meta tensor; no data!"


class _Addresses:
    """A range of reserved addresses, allocated in sequence and then reused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._region: mmap.mmap | None = None
        self._size = 1 << 46

    def _reserve(self) -> mmap.mmap:
        while self._region is None:
            try:
                self._region = mmap.mmap(-1, self._size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
            except OSError:  # a limit on address space
                self._size //= 2
        return self._region

    def take(self, nbytes: int) -> tuple[mmap.mmap, int]:
        """The region, and where in it so many bytes begin that nothing else was given of late."""
        with self._lock:
            region = self._reserve()
            if nbytes > self._size:
                raise RuntimeError(f"a meta tensor of {nbytes} bytes exceeds the address space")
            if self._next + nbytes > self._size:
                self._next = 0
            start, self._next = self._next, self._next + -(-nbytes // 64) * 64
            return region, start


_addresses = _Addresses()


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(NO_DATA)


class MetaArray(np.ndarray[Any, Any]):
    """An array without elements; ``place`` is the device that its tensor says it is on."""

    place: device

    def __array_finalize__(self, source: object) -> None:
        use.begin()
        self.place = getattr(source, "place", META)

    def __del__(self, end: Callable[[], None] = use.end) -> None:
        end()

    def __array_function__(self, func: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.copyto and isinstance(args[0], MetaArray):
            np.broadcast_shapes(args[0].shape, np.shape(args[1]))
            return None
        if func in _LOOK_ONLY:
            return super().__array_function__(func, types, args, kwargs)
        raise NotImplementedError(NO_DATA)

    def item(self, *index: Any) -> NoReturn:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    __array_ufunc__ = tolist = tobytes = astype = copy = take = argsort = sort = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = __iter__ = __setitem__ = __reduce__ = _refuse


_LOOK_ONLY = {np.may_share_memory, np.shares_memory, np.moveaxis, np.shape, np.ndim, np.transpose}


def new_array(
    shape: Sequence[int], dtype: Any, strides: Sequence[int] | None = None, place: device = META
) -> MetaArray:
    """An array without elements; ``strides`` in bytes, else in row-major order."""
    kind = np.dtype(dtype)
    spans = [] if strides is None else [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    numel = int(np.prod(shape, dtype=np.int64))
    nbytes = 0 if not numel else kind.itemsize * numel if strides is None else kind.itemsize + sum(spans)
    region, start = _addresses.take(nbytes)
    found = np.ndarray.__new__(
        MetaArray, tuple(shape), kind, region, start, None if strides is None else tuple(strides)
    )
    found.place = place
    return found


def like(array: Array, place: device = META) -> MetaArray:
    """An array without elements, of the type of ``array``, and of its strides if it is dense."""
    return new_array(array.shape, array.dtype, _dense(array.shape, array.dtype.itemsize, [array]), place)


def place_of(values: Iterable[object]) -> device | None:
    """The device of the first array without elements among ``values``."""
    return next((x.place for x in values if type(x) is MetaArray), None)


def place_of_results(op: Op, operands: Iterable[object]) -> device | None:
    """The device of an operator's results where they have no memory."""
    return place_of(operands) or (modes.place if op.kind in ("creation", "random") else None)


def in_order(array: Array, order: Order) -> Array:
    """``array`` with its elements in ``order``, dense; unchanged if they already are."""
    strides = strides_in(array.shape, order, array.itemsize)
    return array if array.strides == strides else with_strides(array, strides)


def with_strides(array: Array, strides: tuple[int, ...]) -> Array:
    """A copy of ``array`` with these strides, which leave no gaps."""
    if not array.size:
        return array
    if type(array) is MetaArray:
        return new_array(array.shape, array.dtype, strides, array.place)
    found = np.ndarray(array.shape, array.dtype, memory.new_array((array.size,), array.dtype), 0, strides)
    memory.fill(found, array)
    return found


_MUCH = 2**20
"""Bytes from which on numpy, which goes through all operands in one order, takes longer than a copy of one."""


def laid_alike(arrays: list[Any]) -> list[Any]:
    """Operands of an elementwise operator: large ones take the layout of the first, which results follow."""
    large = [a for a in arrays if type(a) is np.ndarray and a.nbytes >= _MUCH and a.ndim > 1]
    if len(large) < 2 or len({a.strides for a in large}) == 1:
        return arrays
    first = large[0]
    if 0 in first.strides or math.prod(first.shape) * first.itemsize != _span(first):
        return arrays
    size = first.itemsize
    alike = [x is not first and any(x is a for a in large) and x.shape == first.shape for x in arrays]
    return [
        with_strides(x, tuple([s // size * x.itemsize for s in first.strides])) if other and 0 not in x.strides else x
        for x, other in zip(arrays, alike, strict=True)
    ]


def _span(array: Array) -> int:
    """The bytes from the first element to the end of the last."""
    return int(sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))) + array.itemsize


KEEPS_ORDER = ("elementwise", "view")
"""Kinds of operators whose results keep their operands' layout; others are row-major, as in PyTorch."""


def in_order_of(operands: Sequence[Any], result: Any) -> Any:
    """numpy's result for ``operands``, in PyTorch's order: they differ if the operands' orders differ."""
    layouts = tuple([(a.shape, a.strides) for a in operands if isinstance(a, np.ndarray)])
    strides = result_strides(result.shape, layouts, result.itemsize)
    return result if result.strides == strides else with_strides(result, strides)


def laid_out(op: Op, operands: Sequence[Any], result: Any) -> Any:
    """numpy's results for ``operands`` in the memory layout of results of ``op``."""
    if type(result) is tuple:
        return tuple([laid_out(op, operands, r) for r in result])
    if type(result) is not np.ndarray or op.kind == "view":
        return result
    if op.kind != "elementwise":
        return result if result.flags.c_contiguous else np.ascontiguousarray(result)
    return result if result.flags.c_contiguous and _all_row_major(operands) else in_order_of(operands, result)


def _all_row_major(operands: Sequence[Any]) -> bool:
    return all(a.flags.c_contiguous for a in operands if isinstance(a, np.ndarray))


def contiguous(array: Array) -> Array:
    """``array`` in row-major order."""
    return array if array.flags.c_contiguous else in_order(array, tuple(range(array.ndim)))


def apply(op: Op, operands: Sequence[Any], attrs: dict[str, object], place: device) -> Any:
    """Apply ``op`` to arrays and numbers, some of which have no elements."""
    dtype = next((x.dtype for x in reversed(operands) if isinstance(x, np.ndarray)), None)
    given = None if dtype is None else from_numpy_dtype(dtype)
    types = [
        TensorType(from_numpy_dtype(x.dtype), x.shape) if isinstance(x, np.ndarray) else TensorType(given, ())  # type: ignore[arg-type]
        for x in operands
    ]
    results = op.result_types(types, attrs)
    if op.kind == "view":
        return _viewed(op, operands[0], attrs, results[0], place)
    arrays = [x for x in operands if isinstance(x, np.ndarray)] if op.kind == "elementwise" else []
    found = [new_array(t.shape, t.dtype.numpy, _dense(t.shape, t.dtype.itemsize, arrays), place) for t in results]
    return found[0] if len(found) == 1 else tuple(found)


def _viewed(op: Op, array: Array, attrs: Attrs, result: TensorType, place: device) -> MetaArray:
    plain = array.view(np.ndarray)
    try:
        found = plain.reshape(attrs["shape"], copy=False) if op.name == "reshape" else op.impl(plain, **attrs)
    except ValueError:  # no strides show the elements in this order
        return new_array(result.shape, result.dtype.numpy, place=place)
    if found.size and not np.may_share_memory(found, plain):
        return new_array(result.shape, result.dtype.numpy, place=place)
    meta: MetaArray = found.view(MetaArray)
    meta.place = place
    return meta


def _dense(shape: tuple[int, ...], itemsize: int, arrays: Sequence[Array]) -> tuple[int, ...] | None:
    """Strides of a new array in the order that operands have; None: row-major."""
    if all(a.flags.c_contiguous for a in arrays):
        return None
    return strides_in(shape, preserved(shape, arrays), itemsize)


# ---- where functions put what they make


class placed:
    """Inside, functions create tensors at ``place``: without memory, or (None) in it."""

    def __init__(self, place: device | None) -> None:
        self._place = place

    def __enter__(self) -> None:
        if self._place is not None:
            use.begin()
        self._before = modes.place
        modes.place = self._place

    def __exit__(self, *error: object) -> None:
        modes.place = self._before
        if self._place is not None:
            use.end()


def memory_or(where: device) -> device | None:
    """``where`` as a place: None for the CPU, where tensors have memory."""
    return None if where.type == "cpu" and not modes.without_memory else where


_MIXING = frozenset(("copy_", "where", "set_", "tensor", "as_tensor", "to", "type_as", "is_same_size"))
"""Functions whose tensor arguments may be on several devices."""


def place_of_call(name: str, makes: bool, args: Sequence[Any], kwargs: dict[str, Any]) -> device | None:
    """The device of a function's results: None for memory. ``makes``: the function is a factory.

    RuntimeError for a mix of tensors with and without memory.
    """
    found, with_memory = _met(args)
    more, memory = _met(kwargs.values())
    found = found or more
    if found is not None and (with_memory or memory) and modes.place is None and not _mixes(name):
        raise RuntimeError(f"{name}(): Tensor on device {found} is not on the expected device cpu!")
    asked = kwargs.get("device")
    if asked is not None and name != "to":
        where = check_device(asked)
        return memory_or(where)
    if found is not None or modes.place is not None:
        return found or modes.place
    if not makes or not modes.default_places or name.startswith("new_") or name.endswith("_like"):
        return None
    return memory_or(modes.default_places[-1])


def _mixes(name: str) -> bool:
    return name in _MIXING or "index" in name or "item" in name or "embedding" in name or name.startswith("new_")


def _met(values: Iterable[object]) -> tuple[device | None, bool]:
    """The place of a tensor without memory among ``values``, and whether one of other than 0 dimensions has memory."""
    place, memory = None, False
    for x in values:
        array = getattr(x, "_data", None)
        if type(array) is MetaArray and type(x) not in dispatch.CLASSES:
            place = place or array.place
        elif isinstance(array, np.ndarray):
            memory = memory or array.ndim > 0
        elif type(x) is list or type(x) is tuple:
            inner, beside = _met(x)
            place, memory = place or inner, memory or beside
    return place, memory
