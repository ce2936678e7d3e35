"""Sparse tensors, which store only some elements. Values are an ordinary tensor, which carries the gradients.

``CooTensor`` stores a column of indices for each value. ``CompressedTensor`` (CSR, CSC, BSR, BSC) stores the start of
each row (or column) among the values, and the other index of each value. Published functions reach them through
``__torch_function__`` (``sparse/functions.py``). The array that a tensor must have is one of ``NoElements``, which
cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NoReturn

import numpy as np

from tracecomp.eager.device import (
    MemoryFormat,
    device,
    layout,
    sparse_bsc,
    sparse_bsr,
    sparse_coo,
    sparse_csc,
    sparse_csr,
)
from tracecomp.eager.modes import no_grad
from tracecomp.eager.overrides import DisableTorchFunctionSubclass
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType, int64

Array = np.ndarray[Any, Any]

BY_ROWS = (sparse_csr, sparse_bsr)
IN_BLOCKS = (sparse_bsr, sparse_bsc)

_PLAIN = frozenset(
    ("dim", "dtype", "element_size", "is_tensor", "itemsize", "ndim", "ndimension", "nelement", "numel", "output_nr",
     "retains_grad", "shape", "size")
)  # fmt: skip
"""Attributes and functions of any tensor that read no elements."""

HANDLERS: dict[str, Callable[..., Any]] = {}
"""Functions on sparse tensors, by name."""


class NoElements(np.ndarray[Any, Any]):
    """The array of a sparse tensor: it has a shape and a type, and numpy gets nothing else from it."""

    def __array_function__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("a sparse tensor has no dense memory: use to_dense()")

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("a sparse tensor has no dense memory: use to_dense()")


@cache
def _property_names() -> dict[property, str]:
    members = {n: v for c in reversed(Tensor.__mro__) for n, v in vars(c).items() if isinstance(v, property)}
    return {member: name for name, member in members.items()}


def _no_elements(shape: Sequence[int], dtype: DType) -> Array:
    made = np.broadcast_to(np.zeros((), dtype.numpy), tuple(shape))
    return made.view(NoElements)


class SparseTensor(Tensor):
    """Common base of sparse tensors of all layouts."""

    _stored: Tensor

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        name = func.__name__
        if name == "__get__":  # of a property
            name = _property_names()[func.__self__]  # type: ignore[attr-defined]
        if name in _PLAIN:
            with DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        # A function that writes (``sin_``) is not the one that does not: its entry says so itself.
        writes = name.endswith("_") and not name.startswith("__")
        found = HANDLERS.get(name) or (None if writes else HANDLERS.get(name.strip("_")))
        if found is None:
            raise NotImplementedError(
                f"Could not run 'aten::{name}' with arguments from the 'Sparse{_backend(args)}CPU' backend: sparse "
                "tensors do not support it. Use to_dense()"
            )
        return found(*args, **(kwargs or {}))

    # Unpublished methods that would read memory.

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(f"can't convert {self.layout} layout tensor to {what}. Use Tensor.to_dense() first.")

    def numpy(self, *, force: bool = False) -> Array:
        self._refuse("numpy")

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> Array:
        self._refuse("numpy")

    def tolist(self) -> Any:
        self._refuse("a list")

    def __dlpack__(self, **options: Any) -> Any:
        self._refuse("DLPack")

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def stride(self, dim: int | None = None) -> Any:
        raise RuntimeError("Sparse tensors do not have strides")

    def storage_offset(self) -> int:
        raise RuntimeError("Sparse tensors do not have storage")

    def is_contiguous(self, memory_format: MemoryFormat = None) -> bool:
        raise RuntimeError("Tensors of type SparseTensorImpl do not have is_contiguous")

    def item(self) -> Any:
        return self.to_dense().item()

    def __bool__(self) -> bool:
        return bool(self.to_dense())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    @property
    def nbytes(self) -> int:
        raise RuntimeError("nbytes is not defined for sparse tensors: add those of what they store")

    # Gradients live in the values.

    @property
    def requires_grad(self) -> bool:
        return self._stored.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._stored.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self._stored.requires_grad_(requires_grad)
        return self

    @property
    def grad_fn(self) -> Any:
        return self._stored.grad_fn

    @property
    def is_leaf(self) -> bool:
        return self._stored.is_leaf

    @property
    def grad(self) -> Any:
        found = self._stored.grad
        return None if found is None else self._with(found)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        self._stored.grad = None if value is None else value.coalesce().values()

    @grad.deleter
    def grad(self) -> None:
        self._stored.grad = None

    def retain_grad(self) -> None:
        self._stored.retain_grad()

    def detach(self) -> Any:
        return self._with(self._stored.detach())

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        raise RuntimeError("the data of a sparse tensor cannot be replaced")

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        with no_grad():
            made = memo[id(self)] = self._with(self._stored.detach().clone())
        return made.requires_grad_(self.requires_grad and self.is_leaf)

    def _with(self, values: Tensor) -> Any:
        """The same places with other values."""
        raise NotImplementedError

    def _nnz(self) -> int:
        return int(self._stored.shape[0])

    def _values(self) -> Tensor:
        return self._stored

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])


def _backend(args: Sequence[object]) -> str:
    return "Csr" if any(isinstance(a, CompressedTensor) for a in args) else ""


class CooTensor(SparseTensor):
    """Values at places: ``_places`` is an int64 tensor [sparse dimensions, values]."""

    _places: Tensor
    _coalesced: bool
    layout = sparse_coo

    def _indices(self) -> Tensor:
        return self._places

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_places", "_stored"], (tuple(self.shape), self._coalesced)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: Any, size: object, stride: object) -> CooTensor:
        return coo(inner["_places"], inner["_stored"], *context)

    def _with(self, values: Tensor) -> CooTensor:
        return coo(self._places, values, self.shape, self._coalesced)

    def __reduce_ex__(self, protocol: object) -> Any:
        return _coo_again, (self._places, self._stored, tuple(self.shape), self._coalesced)


class CompressedTensor(SparseTensor):
    """``_compressed`` [rows + 1] says where each row's values begin, ``_plain`` the column of each; or vice versa."""

    _compressed: Tensor
    _plain: Tensor
    layout = sparse_csr  # unless an object says otherwise

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["_compressed", "_plain", "_stored"], (tuple(self.shape), self.layout)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: Any, size: object, stride: object) -> CompressedTensor:
        return compressed(inner["_compressed"], inner["_plain"], inner["_stored"], *context)

    def _with(self, values: Tensor) -> CompressedTensor:
        return compressed(self._compressed, self._plain, values, self.shape, self.layout)

    def __reduce_ex__(self, protocol: object) -> Any:
        parts = self._compressed, self._plain, self._stored, tuple(self.shape), str(self.layout)
        return _compressed_again, parts


def _coo_again(indices: Tensor, values: Tensor, shape: tuple[int, ...], coalesced: bool) -> CooTensor:
    return coo(indices, values, shape, coalesced)


def _compressed_again(c: Tensor, plain: Tensor, values: Tensor, shape: tuple[int, ...], kind: str) -> CompressedTensor:
    found = next(k for k in (sparse_csr, sparse_csc, sparse_bsr, sparse_bsc) if str(k) == kind)
    return compressed(c, plain, values, shape, found)


def _blank(kind: type, shape: Sequence[int], dtype: DType) -> Any:
    with no_grad():
        made: Any = Tensor._wrap(_no_elements(shape, dtype))
    made.__class__ = kind
    return made


def coo(indices: Tensor, values: Tensor, shape: Sequence[int], coalesced: bool = False) -> CooTensor:
    """A tensor of ``values`` at ``indices``, which are believed."""
    made: CooTensor = _blank(CooTensor, shape, values.dtype)
    made._places, made._stored, made._coalesced = indices, values, coalesced
    return made


def compressed(c: Tensor, plain: Tensor, values: Tensor, shape: Sequence[int], kind: layout) -> CompressedTensor:
    """A compressed tensor of these parts, which are believed."""
    made: CompressedTensor = _blank(CompressedTensor, shape, values.dtype)
    made._compressed, made._plain, made._stored, made.layout = c, plain, values, kind
    return made


# ---- forms


def flat_places(x: CooTensor) -> Tensor:
    """The number of each place, counted row by row."""
    sizes = x.shape[: x._places.shape[0]]
    found = T.zeros(x._places.shape[1], dtype=int64)
    for row, size in zip(x._places, sizes, strict=True):
        found = found * size + row
    return found


def coalesce(x: CooTensor) -> CooTensor:
    """Every place once, in order; values at one place are added."""
    if x._coalesced:
        return x
    sizes = tuple(x.shape[: x._places.shape[0]])
    places, which = T.unique(flat_places(x), return_inverse=True)
    empty = T.zeros((places.shape[0], *x._stored.shape[1:]), dtype=x._stored.dtype)
    if x._stored.dtype.kind == "bool":
        values = empty.to(int64).index_add(0, which, x._stored.to(int64)) > 0
    else:
        values = empty.index_add(0, which, x._stored)
    return coo(unraveled(places, sizes), values, x.shape, True)


def unraveled(places: Tensor, sizes: Sequence[int]) -> Tensor:
    """Columns of indices, from the numbers of places."""
    rows = []
    for size in reversed(sizes):
        rows.append(places % max(size, 1))
        places = places // max(size, 1)
    return T.stack(rows[::-1]) if rows else T.zeros((0, places.shape[0]), dtype=int64)


def dense_of(x: SparseTensor) -> Tensor:
    """All elements, those that are not stored as zeros."""
    if isinstance(x, CompressedTensor):
        return dense_of(coo_of(x)) if x.layout not in IN_BLOCKS else _dense_blocks(x)
    assert isinstance(x, CooTensor)
    sizes = x.shape[: x._places.shape[0]]
    count = int(np.prod(sizes, dtype=np.int64))
    flat = T.zeros((count, *x._stored.shape[1:]), dtype=x._stored.dtype)
    if x._stored.dtype.kind == "bool":
        flat = flat.to(int64).index_add(0, flat_places(x), x._stored.to(int64)) > 0
    else:
        flat = flat.index_add(0, flat_places(x), x._stored)
    return flat.reshape(tuple(x.shape))


def _dense_blocks(x: CompressedTensor) -> Tensor:
    rows, columns = _both(x)
    height, width = x._stored.shape[-2:]
    down, across = x.shape[-2] // height, x.shape[-1] // width
    flat = T.zeros((down * across, height, width), dtype=x.dtype).index_add(0, rows * across + columns, x._stored)
    return flat.reshape(down, across, height, width).permute(0, 2, 1, 3).reshape(tuple(x.shape))


def coo_of_dense(x: Tensor, sparse_dim: int | None = None) -> CooTensor:
    """The nonzero elements of ``x``; the first ``sparse_dim`` dimensions are sparse."""
    count = x.dim() if sparse_dim is None else sparse_dim
    some = x.detach() != 0
    if x.dim() > count:
        some = some.flatten(count).any(-1)
    places = T.nonzero(some).t()
    return coo(places, x[tuple(places)], x.shape, True)


def _both(x: CompressedTensor) -> tuple[Tensor, Tensor]:
    """The row and the column of each value."""
    counts = x._compressed[1:] - x._compressed[:-1]
    spread = T.repeat_interleave(T.arange(counts.shape[0]), counts)
    return (spread, x._plain) if x.layout in BY_ROWS else (x._plain, spread)


def coo_of(x: SparseTensor) -> CooTensor:
    """Any sparse tensor with an index for every value."""
    if isinstance(x, CooTensor):
        return x
    assert isinstance(x, CompressedTensor)
    if x.layout in IN_BLOCKS:
        return coo_of_dense(dense_of(x))
    if x._compressed.dim() != 1:
        raise NotImplementedError("batches of compressed sparse tensors are not supported")
    return coo(T.stack(_both(x)).to(int64), x._stored, x.shape, x.layout in BY_ROWS)


def compressed_of(x: CooTensor, kind: layout, block: Sequence[int] | None = None) -> CompressedTensor:
    """A matrix in a compressed layout."""
    if x._places.shape[0] != 2:
        raise RuntimeError(f"{kind} is a layout of matrices, got a tensor of {x.dim()} dimensions")
    if kind in IN_BLOCKS:
        return _blocks(dense_of(x), kind, block)
    x = coalesce(x)
    rows, columns = x._places
    values = x._stored
    if kind is sparse_csc:
        order = T.argsort(columns * x.shape[0] + rows)
        rows, columns, values = columns[order], rows[order], values[order]
    return compressed(_begins(rows, x.shape[0 if kind is sparse_csr else 1]), columns, values, x.shape, kind)


def _begins(sorted_rows: Tensor, count: int) -> Tensor:
    """The start of each row."""
    return T.searchsorted(sorted_rows.contiguous(), T.arange(count + 1))


def _blocks(x: Tensor, kind: layout, block: Sequence[int] | None) -> CompressedTensor:
    if block is None:
        raise RuntimeError(f"to_sparse: a blocksize is needed for {kind}")
    height, width = block
    if x.shape[0] % height or x.shape[1] % width:
        raise RuntimeError(f"tensor sparse size {tuple(x.shape)} is not divisible by blocksize {tuple(block)}")
    parts = x.reshape(x.shape[0] // height, height, x.shape[1] // width, width).permute(0, 2, 1, 3)
    order = parts if kind is sparse_bsr else parts.permute(1, 0, 2, 3)
    outer, inner = T.nonzero((order.detach() != 0).flatten(2).any(-1)).t()
    return compressed(_begins(outer, order.shape[0]), inner, order[outer, inner], x.shape, kind)


def place_of(x: SparseTensor) -> device:
    """The device of the values."""
    found: device = x._stored.device
    return found
