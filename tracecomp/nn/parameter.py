"""Parameters and buffers: tensors that register themselves with the module they are assigned to."""

from __future__ import annotations

from typing import Any

from tracecomp.base.errors import type_name
from tracecomp.eager import dispatch
from tracecomp.eager.device import Device
from tracecomp.eager.modes import no_grad
from tracecomp.eager.overrides import disabled
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType


class _ParameterMeta(type):
    """Tensor subclasses with ``__torch_function__`` keep their class, and are parameters too."""

    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or (
            cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)
        )


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a ``Module`` counts among its parameters; shares memory with ``data``."""

    __torch_function__ = disabled  # type: ignore[assignment]  # functions take it for a plain tensor

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = T.empty(0)
        if cls is Parameter and hasattr(data, "as_parameter"):  # rows of a sharded tensor
            found: Parameter = data.as_parameter(requires_grad)
            return found
        if cls is Parameter and type(data) in dispatch.CLASSES:
            data = data.detach().requires_grad_(requires_grad)
            data._is_param = True
            return data
        return as_kind(cls, data, requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)
        copied: Parameter = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self), (self.detach(), self.requires_grad)


class Buffer(Tensor):
    """A tensor that a ``Module`` counts among its buffers when it is assigned to an attribute."""

    persistent: bool
    __torch_function__ = disabled  # type: ignore[assignment]

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        self: Buffer = as_kind(cls, T.empty(0) if data is None else data, False)
        self.persistent = persistent
        return self


_WITHOUT_ELEMENTS = {
    "__get__", "__set__", "__hash__", "__deepcopy__", "__reduce_ex__", "__repr__", "size", "copy_", "is_complex",
    "is_floating_point", "half", "float", "double", "bfloat16", "char", "short", "int", "long", "cuda", "cpu", "to",
    "get_device", "requires_grad_", "detach",
}  # fmt: skip
"""Attributes and functions that tensors without a shape support."""


class UninitializedTensorMixin:
    """A parameter or buffer without a shape; ``materialize`` gives it one in place."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[object, ...] = (), kwargs: Any = None) -> Any:
        """ValueError for functions that need elements."""
        if getattr(func, "__name__", "") in _WITHOUT_ELEMENTS:
            return disabled(func, types, args, kwargs or {})
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
            "`LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. When using "
            "LazyModules call `forward` with a dummy batch to initialize the parameters before calling torch functions"
        )

    def materialize(self, shape: int | tuple[int, ...], device: Device = None, dtype: DType | None = None) -> None:
        """Become an ordinary tensor of ``shape`` with unspecified contents."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        made = T.empty(sizes, dtype=dtype or self.dtype)  # type: ignore[attr-defined]
        with no_grad():
            self.data = made
        plain: type[Tensor] = Parameter if issubclass(type(self), Parameter) else Tensor
        self.__class__ = plain  # type: ignore[assignment]

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape is unknown."""

    def __new__(cls, requires_grad: bool = True, device: Device = None, dtype: DType | None = None) -> Any:
        return as_kind(cls, T.empty(0, dtype=dtype), requires_grad)

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, None, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return type(self), (self.requires_grad, None, self.dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is unknown."""

    __torch_function__ = disabled  # type: ignore[assignment]

    def __new__(cls, requires_grad: bool = False, device: Device = None, dtype: DType | None = None) -> Any:
        return as_kind(cls, T.empty(0, dtype=dtype), requires_grad)


def is_lazy(value: object) -> bool:
    """Whether ``value`` has no shape yet."""
    return isinstance(value, UninitializedTensorMixin)


def as_kind(cls: type[Any], data: Tensor, requires_grad: bool) -> Any:
    """A leaf of class ``cls`` that shares the memory of ``data``."""
    if not isinstance(data, Tensor):
        raise TypeError(f"{cls.__name__}(): argument 'data' must be Tensor, not {type_name(data)}")
    result = data.detach()
    result.__class__ = cls
    return result.requires_grad_(requires_grad)
