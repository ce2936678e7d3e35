"""The part of ``Tensor`` that speaks of sizes and memory, and that leaves the tensor world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tracecomp.eager.aliasing import Storage, owner
from tracecomp.eager.modes import modes

if TYPE_CHECKING:
    from tracecomp.eager.size import Size
    from tracecomp.eager.tensor import Tensor

Array = np.ndarray[Any, Any]


class TensorInterface:
    """What needs no more of a tensor than its array."""

    _data: Array
    _base: Tensor | None
    _source: Any
    if TYPE_CHECKING:

        @property
        def requires_grad(self) -> bool: ...

        @property
        def shape(self) -> Size: ...

        def _shared_storage(self) -> Storage: ...

        # what tracecomp.functional attaches
        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __eq__(self, other: Any) -> Any: ...
        def __ne__(self, other: Any) -> Any: ...

    # ---- sizes

    def numel(self) -> int:
        return self._data.size if modes.recorder is None else self.shape.numel()

    nelement = numel

    def dim(self) -> int:
        return self._data.ndim

    ndimension = dim

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its entry ``dim``; IndexError when out of range."""
        if dim is None:
            return self.shape
        ndim = self._data.ndim
        low, high = (-ndim, ndim - 1) if ndim else (-1, 0)
        if not low <= dim <= high or ndim == 0:
            raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
        return self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements."""
        strides = tuple(s // self._data.itemsize for s in self._data.strides)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        return (self._address() - owner(cast("Tensor", self))[0]._address()) // self._data.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        self._shared_storage().share()
        return self._address()

    def _address(self) -> int:
        return int(self._data.__array_interface__["data"][0])

    def element_size(self) -> int:
        return self._data.itemsize

    @property
    def itemsize(self) -> int:
        return self._data.itemsize

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    def is_contiguous(self) -> bool:
        """Whether the elements lie densely in row-major order."""
        return self._data.flags.c_contiguous

    # ---- leaving the tensor world

    def numpy(self, *, force: bool = False) -> Array:
        """The array that shares this tensor's memory; RuntimeError when it requires grad, unless ``force``."""
        if self.requires_grad and not force:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
            )
        self._shared_storage().share()
        return self._read("numpy()")

    def _read(self, how: str) -> Array:
        """The elements, for the library to read because of ``how``."""
        if modes.recorder is not None:
            modes.recorder.leave(cast("Tensor", self), how)
        return self._data

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def item(self) -> Any:
        """The one element as a Python number; RuntimeError when there is not exactly one."""
        if self._data.size != 1:
            raise RuntimeError(f"a Tensor with {self._data.size} elements cannot be converted to Scalar")
        value = self._data.item()
        return value if modes.recorder is None else modes.recorder.item(self, value)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        return _observe(self, self._data.tolist())

    def __bool__(self) -> bool:
        if self._data.size != 1:
            many = "more than one value" if self._data.size else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        value = bool(self._data.item())
        if modes.recorder is not None:
            truth = self if self._data.dtype.kind == "b" else self != 0
            modes.recorder.observe(truth, value)
        return value

    def __float__(self) -> float:
        return float(_real(self._single()))

    def __int__(self) -> int:
        return int(_real(self._single()))

    def __complex__(self) -> complex:
        return complex(self._single())

    def _single(self) -> Any:
        if self._data.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __index__(self) -> int:
        if self._data.dtype.kind not in "biu" or self._data.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self) -> int:
        if self._data.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])


def _real(value: Any) -> Any:
    """A number that ``float`` and ``int`` take; RuntimeError for one with an imaginary part."""
    if not isinstance(value, complex):
        return value
    if value.imag:
        raise RuntimeError("value cannot be converted to type double without overflow")
    return value.real


def _observe(t: TensorInterface, value: Any) -> Any:
    if modes.recorder is not None:
        modes.recorder.observe(t, value)
    return value
