"""Sparse tensors: a pattern of places and the elements that lie there.

A sparse tensor is made of plain tensors (places, and values), so gradients and recordings follow the values by
themselves. It is no tensor of the dense kind: every function asks it through ``__torch_function__`` and finds what it
means in ``HANDLERS``; a function that is not there raises NotImplementedError, and never sees zeros for elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np

from tracecomp.eager.device import layout
from tracecomp.eager.meta import MetaArray, new_array
from tracecomp.eager.modes import modes
from tracecomp.eager.overrides import DisableTorchFunctionSubclass
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor
from tracecomp.eager.tensor_base import blank
from tracecomp.ir.types import DType
from tracecomp.sparse.printing import sparse_text

Fn = Callable[..., Any]
F = TypeVar("F", bound=Fn)
HANDLERS: dict[str, Fn] = {}
"""Name of a function -> what it gives where an argument is sparse."""


def handles(*names: str) -> Callable[[F], F]:
    """A decorator: the function is what those of these names mean for sparse tensors."""

    def decorate(fn: F) -> F:
        for name in names:
            HANDLERS[name] = fn
        return fn

    return decorate


class SparseArray(MetaArray):
    """What stands for the elements of a sparse tensor where dense ones have an array: shape and type, nothing else."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("a sparse tensor has no dense memory; to_dense() gives a tensor that has")

    __array_function__ = __array_ufunc__ = item = tolist = tobytes = astype = copy = take = _refuse


class SparseTensor(Tensor):
    """Base of the sparse layouts. ``parts()`` are its tensors, the values last; ``like(values)`` has other values."""

    _held: Tensor
    _kind: layout
    _recorded = False  # a recording may hold the parts, which then stay these objects

    @classmethod
    def _made(cls, size: tuple[int, ...], values: Tensor) -> Any:
        """An object with the fields that tensors have."""
        found = blank(cls)
        array = new_array(size, values._data.dtype, place=values.device).view(SparseArray)
        array.place = values.device
        found._data = array
        found._values_ = values
        return found

    @property
    def _values_(self) -> Tensor:
        """The values, with their history."""
        if modes.recorder is not None:
            self._recorded = True
        return self._held

    @_values_.setter
    def _values_(self, values: Tensor) -> None:
        self._held = values

    def parts(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def like(self, values: Tensor) -> Any:
        """The same places with other values."""
        raise NotImplementedError

    def coo(self) -> Any:
        """The same tensor as coordinates."""
        raise NotImplementedError

    def from_coo(self, coo: Any) -> Any:
        """A tensor of coordinates in this layout."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(
        cls, func: Fn, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":  # of a property that dense tensors have, too
            with DisableTorchFunctionSubclass():
                return func(*args)
        handler = HANDLERS.get(name)
        if handler is None:
            kind = next((x._kind for x in _sparse_in(args, kwargs or {})), "")
            raise NotImplementedError(
                f"Could not run '{name}' with arguments of layout {kind!r}: sparse tensors have no such function; "
                "to_dense() gives a tensor that all functions take"
            )
        return handler(*args, **(kwargs or {}))

    # ---- what every tensor answers

    @property
    def shape(self) -> Size:
        return Size(self._data.shape)

    @property
    def dtype(self) -> DType:
        return self._values_.dtype

    @property
    def layout(self) -> layout:
        return self._kind

    @property
    def is_sparse(self) -> bool:
        return repr(self._kind) == "torch.sparse_coo"

    @property
    def is_sparse_csr(self) -> bool:
        return repr(self._kind) == "torch.sparse_csr"

    @property
    def requires_grad(self) -> bool:
        return self._values_.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._values_.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self._values_.requires_grad_(requires_grad)
        return self

    @property
    def grad_fn(self) -> Any:
        return self._values_.grad_fn

    @property
    def is_leaf(self) -> bool:
        return self._values_.is_leaf

    @property
    def grad(self) -> Any:
        """The gradient of the values, at the same places."""
        found = self._values_.grad
        return None if found is None else self.like(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._values_.grad = None if value is None else value._values_

    @property
    def T(self) -> Any:
        return HANDLERS["t"](self)

    mT = T

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        raise NotImplementedError("the data of a sparse tensor cannot be replaced")

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        self._values_.backward(gradient._values_ if isinstance(gradient, SparseTensor) else gradient, *args, **kwargs)

    def register_hook(self, hook: Fn) -> Any:
        return self._values_.register_hook(lambda grad: _value(hook(self.like(grad))))

    def retain_grad(self) -> None:
        self._values_.retain_grad()

    def detach(self) -> Any:
        return self.like(self._values_.detach())

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return sparse_text(self)

    def __radd__(self, other: Any) -> Any:
        return HANDLERS["add"](other, self)

    def __rsub__(self, other: Any) -> Any:
        return HANDLERS["sub"](other, self)

    def __rmatmul__(self, other: Any) -> Any:
        return HANDLERS["matmul"](other, self)

    def __hash__(self) -> int:
        return id(self)

    def __len__(self) -> int:
        return int(self._data.shape[0])

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol"
            )
        return self.like(self._values_.detach().clone().requires_grad_(self.requires_grad))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuild, (type(self), tuple(self._data.shape), self.parts(), self._state(), self.requires_grad)

    def _state(self) -> Any:
        return None

    def __tracecomp_parts__(self) -> tuple[Any, dict[str, Tensor]]:
        """What a recording takes this tensor apart into: what is no tensor, and its tensors by name."""
        names = ("indices", "values") if self.is_sparse else ("compressed_indices", "plain_indices", "values")
        return (tuple(self._data.shape), self._state()), dict(zip(names, self.parts(), strict=True))

    @classmethod
    def __tracecomp_joined__(cls, told: Any, parts: Any) -> Any:
        """The tensor of these parts."""
        return cls.of(told[0], parts, told[1])

    @classmethod
    def of(cls, size: Any, parts: Any, state: Any = None) -> Any:
        """The tensor of ``size`` made of these parts."""
        raise NotImplementedError

    def element_size(self) -> int:
        return self._values_.element_size()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def tolist(self) -> Any:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def item(self) -> Any:
        if self._data.size != 1:
            raise RuntimeError(f"a Tensor with {self._data.size} elements cannot be converted to Scalar")
        return HANDLERS["to_dense"](self).item()

    def __bool__(self) -> bool:
        if self._data.size != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def storage(self) -> NoReturn:
        raise NotImplementedError("Cannot access storage of a sparse tensor")

    untyped_storage = storage


def taken(values: Tensor, requires_grad: bool) -> Tensor:
    """Values given by the user as those of a new tensor: the same memory, and history if they have one."""
    if requires_grad or not values.requires_grad:
        return values.detach().requires_grad_(requires_grad)
    return values.view(tuple(values.shape))


def _value(x: Any) -> Any:
    return x._values_ if isinstance(x, SparseTensor) else x


def _sparse_in(args: Any, kwargs: Any) -> list[Any]:
    found: list[Any] = []
    for x in (*args, *kwargs.values()):
        if isinstance(x, SparseTensor):
            found.append(x)
        elif isinstance(x, list | tuple):
            found += _sparse_in(x, {})
    return found


def rebuild(cls: Any, size: tuple[int, ...], parts: Any, state: Any, requires_grad: bool) -> Any:
    """A sparse tensor from what a pickle holds."""
    return cls.of(size, parts, state).requires_grad_(requires_grad)


def numbers(t: Tensor, how: str) -> np.ndarray[Any, Any]:
    """The places that a tensor holds, for working out a pattern."""
    if modes.recorder is not None:
        return t.numpy()
    return t._read(how)
