"""Names, calls and changes that a file of tensors may use, each with a checking function."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tracecomp.eager.device import device as Device
from tracecomp.eager.device import layout, strided
from tracecomp.eager.meta import MetaArray
from tracecomp.eager.meta import new_array as new_meta_array
from tracecomp.eager.size import Size
from tracecomp.eager.tensor import Tensor, wrap
from tracecomp.ir.types import DTYPES, DType, dtype_named
from tracecomp.nn.parameter import Parameter

STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip
"""PyTorch's names of memory by element type."""


class Memory:
    """Raw memory of an archive, in the byte order of ``swap``."""

    def __init__(self, dtype: DType, data: np.ndarray[Any, Any], swap: bool) -> None:
        self.dtype = dtype
        if data.nbytes % dtype.itemsize:
            raise ValueError(f"{data.nbytes} bytes are not a whole number of {dtype} elements")
        self.array = data.view(dtype.numpy)
        if swap and not isinstance(self.array, MetaArray):
            self.array = self.array.byteswap()


def _ints(values: object, what: str) -> tuple[int, ...]:
    if not isinstance(values, tuple | list) or not all(type(v) is int and 0 <= v < 1 << 63 for v in values):
        raise ValueError(f"{what} {values!r:.80} is not a sequence of sizes")
    return tuple(values)


def _tensor(
    memory: object, offset: object, size: object, stride: object, requires_grad: object = False, hooks: object = None,
    metadata: object = None,
) -> Tensor:  # fmt: skip
    shape, strides = _ints(size, "size"), _ints(stride, "stride")
    if type(memory) is not Memory or type(offset) is not int or len(shape) != len(strides):
        raise TypeError("a tensor needs a storage, an offset, and a size and stride of the same length")
    array, item = memory.array, memory.array.itemsize
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if 0 not in shape else offset - 1
    if offset < 0 or last >= array.size:
        raise ValueError(
            f"a tensor of shape {list(shape)} at offset {offset} does not fit into {array.size} elements of memory"
        )
    if 0 in shape:
        return wrap(np.empty(shape, array.dtype)).requires_grad_(bool(requires_grad))
    if isinstance(array, MetaArray):
        meta = new_meta_array(shape, array.dtype, [s * item for s in strides], array.place)
        return wrap(meta).requires_grad_(bool(requires_grad))
    viewed = np.ndarray(shape, array.dtype, array, offset * item, tuple(s * item for s in strides))
    return wrap(viewed).requires_grad_(bool(requires_grad))


def _without_memory(dtype: object, size: object, stride: object, requires_grad: object) -> Tensor:
    shape, strides = _ints(size, "size"), _ints(stride, "stride")
    if not isinstance(dtype, DType) or len(shape) != len(strides):
        raise TypeError("a tensor needs a dtype, and a size and stride of the same length")
    array = new_meta_array(shape, dtype.numpy, [s * dtype.itemsize for s in strides])
    return wrap(array).requires_grad_(bool(requires_grad))


def _parameter(data: object, requires_grad: object, hooks: object = None, state: object = None) -> Parameter:
    if not isinstance(data, Tensor):
        raise TypeError("a parameter needs a tensor")
    made = Parameter(data, bool(requires_grad))
    if state:
        set_attributes(made, state)
    return made


def _from_type(call: object, kind: object, arguments: object, state: object) -> Tensor:
    if call not in _TENSORS or kind not in (Tensor, Parameter) or type(arguments) is not tuple:
        raise TypeError("only tensors and parameters are rebuilt with their attributes")
    made: Tensor = call(*arguments)
    made = made if kind is Tensor or isinstance(made, Parameter) else Parameter(made, made.requires_grad)
    set_attributes(made, state)
    return made


_TENSORS = (_tensor, _without_memory, _parameter)


def _bytes(text: object, encoding: object = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise TypeError("bytes must be encoded as Latin-1 text")
    return text.encode("latin-1")


def _bytearray(data: object = b"", encoding: object = None) -> bytearray:
    return bytearray(data if type(data) is bytes else _bytes(data, encoding))


def _size(sizes: object = ()) -> Size:
    return Size(_ints(sizes, "size"))


def _device(kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or type(index) not in (int, type(None)):
        raise TypeError("a device needs a name and a number")
    return Device(kind, index)


def _complex(re: Any = 0.0, im: Any = 0.0) -> complex:
    if type(re) not in (int, float) or type(im) not in (int, float):
        raise TypeError("a complex number needs two numbers")
    return complex(re, im)


def _layout(name: object) -> layout:
    if name != "torch.strided":
        raise TypeError("only strided tensors are supported")
    return strided


NAMES: Mapping[str, Any] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_meta_tensor_no_storage": _without_memory,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.Size": Size,
    "torch.device": Device,
    "torch.serialization._get_layout": _layout,
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "_codecs.encode": _bytes,
    **{
        f"{module}.{kind.__name__}": kind
        for kind in (set, complex, bytearray) for module in ("builtins", "__builtin__")
    },
    **{f"torch.{name}": dtype_named(dtype) for name, dtype in STORAGES.items()},
    **{f"torch.{t.name}": t for t in DTYPES},
    "torch.nn.parameter.Parameter": Parameter,
    "torch._tensor.Tensor": Tensor,
    "torch.Tensor": Tensor,
}  # fmt: skip
"""Meanings of names in a file."""


_CALLS: Mapping[Any, Callable[..., Any]] = {
    **{made: made for made in (_tensor, _without_memory, _parameter, _from_type, _bytes, _layout)},
    Size: _size, Device: _device, complex: _complex, bytearray: _bytearray,
    set: set, OrderedDict: OrderedDict, Counter: Counter,
}  # fmt: skip
_CALLS_BY_IDENTITY = {id(named): call for named, call in _CALLS.items()}


def call_of(named: object) -> Callable[..., Any] | None:
    """The function that runs when a file calls ``named``; None if it is not allowed."""
    return _CALLS_BY_IDENTITY.get(id(named))


def state_setter_of(kind: type) -> Callable[[Any, Any], None] | None:
    """The function that sets the state of an instance of ``kind``; None if it is not allowed."""
    return set_attributes if kind in (OrderedDict, Tensor, Parameter) else None


def set_attributes(target: object, state: object) -> None:
    """Set attributes of ``target``, except names that its class defines and protocols.

    numpy, for example, trusts the address in an object's ``__array_interface__``.
    """
    parts = state if type(state) is tuple and len(state) == 2 else (state,)
    for part in parts:
        if part is None:
            continue
        if not isinstance(part, dict) or not all(type(name) is str for name in part):
            raise TypeError("a state must be a dictionary of names")
        for name, value in part.items():
            if name.startswith("__") or hasattr(type(target), name):
                raise TypeError(f"a file may not replace the attribute {name!r} of an object of type "
                                f"{type(target).__name__}")  # fmt: skip
            target.__dict__[name] = value


def set_any_state(target: Any, state: Any) -> None:
    """Set a state like pickle, for instances of classes that the user has allowed."""
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    parts = state if type(state) is tuple and len(state) == 2 else (state,)
    for part in parts:
        for name, value in (part or {}).items():
            setattr(target, name, value)
