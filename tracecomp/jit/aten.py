"""The functions of TorchScript: PyTorch's native names and orders of arguments, in terms of the public ones."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tracecomp.eager.device import (
    MemoryFormat,
    channels_last,
    channels_last_3d,
    contiguous_format,
    device,
    preserve_format,
)
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir import types
from tracecomp.ir.types import DType
from tracecomp.jit.guard import Namespace, namespaces, safe_format
from tracecomp.nn import functional as F
from tracecomp.nn import rnn

DTYPES = (
    types.uint8, types.int8, types.int16, types.int32, types.int64, types.float16, types.float32, types.float64,
    types.complex32, types.complex64, types.complex128, types.bool_,
)  # fmt: skip
"""Types by the numbers that TorchScript has for them, up to bool; bfloat16 is 15."""
_BFLOAT16 = 15
"""PyTorch's number of this type in files; those below it are numbered without gaps."""

_IN_PLACE = (
    "celu", "dropout", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu6", "selu", "silu",
    "threshold",
)  # fmt: skip

_REDUCTIONS = ("none", "mean", "sum")


def dtype_of(value: object) -> Any:
    """A type, from its number."""
    if type(value) is not int:
        return value
    return types.bfloat16 if value == _BFLOAT16 else DTYPES[value]


def number_of(value: object) -> Any:
    """The number of a type; other values are returned unchanged."""
    if not isinstance(value, DType):
        return value
    return _BFLOAT16 if value is types.bfloat16 else DTYPES.index(value)


class Aten(Namespace):
    """The namespace ``torch`` of TorchScript's code."""

    def __init__(self) -> None:
        super().__init__("torch", _Functions())


class _Functions(dict[str, Callable[..., Any]]):
    """Functions by name, looked up when they are first used."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        found = SPECIAL.get(name) or _general(name)
        if found is None:
            raise AttributeError(f"TorchScript's torch.{name} is not supported")
        self[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        try:
            self[str(name)]
        except AttributeError:
            return False
        return True


def _general(name: str) -> Callable[..., Any] | None:
    """The public function with the arguments of a native one: types are numbers, and there are settings of memory."""
    fn = _public(name)
    on_numbers = _ON_NUMBERS.get(name)
    if fn is None and on_numbers is None:
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        if on_numbers is not None and not any(isinstance(a, Tensor) for a in args):
            return on_numbers(*map(number_of, args))
        assert fn is not None
        return fn(*args, **_options(kwargs))

    return call


def format_of(x: Any) -> MemoryFormat:
    """A memory format, which files write as a number."""
    return _FORMATS[x] if isinstance(x, int) else x


_FORMATS = (contiguous_format, preserve_format, channels_last, channels_last_3d)


def _options(kwargs: Mapping[str, object]) -> dict[str, Any]:
    found = {k: v for k, v in kwargs.items() if k not in ("layout", "pin_memory", "implicit")}
    if "memory_format" in found:
        found["memory_format"] = format_of(found["memory_format"])
    if "dtype" in found:
        found["dtype"] = dtype_of(found["dtype"])
    return found


def _public(name: str) -> Callable[..., Any] | None:
    for prefix in ("linalg", "fft", "special"):
        if name.startswith(prefix + "_"):
            return namespaces()[f"torch.{prefix}"].members.get(name.removeprefix(prefix + "_"))
    if name.endswith("_") and not name.endswith("__") and hasattr(Tensor, name):
        return getattr(Tensor, name)  # type: ignore[no-any-return]
    for space in ("torch", "torch.nn.functional"):
        found = namespaces()[space].members.get(name)
        if callable(found):
            return found  # type: ignore[no-any-return]
    method = getattr(Tensor, name, None) if not name.startswith("_") else None
    return method if callable(method) else None


# ---- functions with another order of arguments, and non-operators


def _slice(x: Any, dim: Any = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if not isinstance(x, Tensor):  # a list or a text: (x, start, end, step)
        return x[dim:start:end]
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


def _size(x: Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


def _to(x: object, *args: Any, **kwargs: Any) -> Any:
    """All of ``aten::to``: by type, by device and type, by another tensor; flags of copies come last."""
    asked = kwargs.get("memory_format")
    # The overloads differ in the first arguments, and end alike: non_blocking, copy, memory_format. A last argument
    # after flags that is not a flag is the format.
    if any(isinstance(a, bool) for a in args[:-1]) and not isinstance(args[-1], bool):
        args, asked = args[:-1], args[-1]
    given = [dtype_of(a) for a in args if not isinstance(a, bool)]
    kinds = [a for a in given if isinstance(a, DType | Tensor)]
    kinds += [v for v in _options(kwargs).values() if isinstance(v, DType)]
    if not isinstance(x, Tensor):
        return x
    made = x
    for kind in kinds:
        made = made.to(kind.dtype if isinstance(kind, Tensor) else kind)
    copies = [a for a in args if isinstance(a, bool)][1:2] == [True] or kwargs.get("copy")
    made = made.clone() if copies and made is x else made
    return made if asked is None else made.to(memory_format=format_of(asked))


def _convolution(
    x: Tensor, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, out: Any,
    groups: int, *_: Any,
) -> Any:  # fmt: skip
    n = weight.dim() - 2
    if transposed:
        made = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[n - 1]
        return made(x, weight, bias, stride, padding, out, groups, dilation)
    return (F.conv1d, F.conv2d, F.conv3d)[n - 1](x, weight, bias, stride, padding, dilation, groups)


def _recurrent(kind: str) -> Callable[..., Any]:
    """``aten::lstm`` and its like, for padded and for packed sequences."""
    cells = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}

    def run(x: Tensor, hidden: Any, weights: Any, has_biases: Any, layers: Any, *rest: Any) -> Any:
        if isinstance(has_biases, Sequence):
            raise RuntimeError(f"TorchScript's {kind} of packed sequences is not supported")
        dropout, training, both, batch_first = rest
        options = {"nonlinearity": kind.removeprefix("rnn_")} if kind.startswith("rnn_") else {}
        if len(weights) % (layers * (1 + both) * (2 + 2 * has_biases)):
            options["proj_size"] = hidden[0].shape[-1]
        size = (hidden[1] if kind == "lstm" else hidden).shape[-1]
        made: Any = getattr(rnn, cells[kind])(
            x.shape[-1], size, layers, has_biases, batch_first, dropout, both, device="cpu", **options
        )
        made.train(training)
        for name, weight in zip(list(made._parameters), weights, strict=True):
            made._parameters[name] = weight
        state = (hidden[0], hidden[1]) if kind == "lstm" else hidden
        found, last = made(x, state)
        return (found, *last) if kind == "lstm" else (found, last)

    return run


def _upsample(mode: str) -> Callable[..., Any]:
    def run(x: Tensor, size: Any, *rest: Any) -> Any:
        corners = rest[0] if mode != "nearest" and mode != "nearest-exact" else None
        scales = [s for r in rest for s in (r if isinstance(r, Sequence) else [r])]
        factors = [float(s) for s in scales if isinstance(s, float)]
        if size is None:
            return F.interpolate(x, scale_factor=factors, mode=mode, align_corners=corners)
        return F.interpolate(x, size=list(size), mode=mode, align_corners=corners)

    return run


def _index(x: Tensor, indices: Sequence[object]) -> Any:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(x: Tensor, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    if all(i is not None for i in indices):
        return x.index_put_(tuple(indices), values, accumulate)
    x[tuple(slice(None) if i is None else i for i in indices)] = values
    return x


def _append(items: list[object], value: object) -> list[Any]:
    items.append(value)
    return items


def _set_item(items: Any, key: Any, value: Any) -> Any:
    items[key] = value
    return items


def _delete(items: Any, key: Any) -> None:
    del items[key]


def _arange(*args: Any, **kwargs: Any) -> Any:
    return T.arange(*args[:3], **_options(kwargs))


def _expand(x: Tensor, sizes: Any, **_: Any) -> Any:
    return x.expand(list(sizes))


def _losses(fn: Callable[..., object]) -> Callable[..., Any]:
    """A loss of two tensors, whose reduction is a number."""

    def run(x: Tensor, target: Tensor, reduction: int = 1, *rest: Any) -> Any:
        return fn(x, target, *rest, reduction=_REDUCTIONS[reduction])

    return run


def _cross_entropy(
    x: Tensor, y: Tensor, weight: Any = None, reduction: int = 1, ignored: int = -100, smoothing: float = 0.0
) -> Any:  # fmt: skip
    return F.cross_entropy(x, y, weight, ignore_index=ignored, reduction=_REDUCTIONS[reduction],
                           label_smoothing=smoothing)  # fmt: skip


def _nll(x: Tensor, y: Tensor, weight: Any = None, reduction: int = 1, ignored: int = -100) -> Any:
    return F.nll_loss(x, y, weight, ignore_index=ignored, reduction=_REDUCTIONS[reduction])


def _elu(x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    return scale * F.elu(x * input_scale, alpha)


def _floordiv(a: Tensor | int, b: Tensor | int) -> Any:
    return a // b


def _contains(items: Any, value: Any) -> bool:
    return number_of(value) in [number_of(i) for i in items]


def _raise(message: str, kind: str = "builtins.RuntimeError") -> None:
    if message.startswith("AssertionError: "):
        raise AssertionError(message.removeprefix("AssertionError: "))
    found = getattr(builtins, kind.removeprefix("builtins."), RuntimeError)
    raise (found if isinstance(found, type) and issubclass(found, Exception) else RuntimeError)(message)


SPECIAL: dict[str, Callable[..., Any]] = {
    "slice": _slice, "size": _size, "to": _to, "_convolution": _convolution, "index": _index,
    "index_put_": _index_put, "append": _append,
    "_set_item": _set_item, "Delete": _delete, "arange": _arange, "expand": _expand, "elu": _elu,
    "elu_": lambda x, *a: x.copy_(_elu(x.clone(), *a)),
    "cross_entropy_loss": _cross_entropy, "nll_loss": _nll, "nll_loss_nd": _nll,
    "softmax": lambda x, dim, dtype=None: T.softmax(x, dim, dtype=dtype_of(dtype)),
    "log_softmax": lambda x, dim, dtype=None: T.log_softmax(x, dim, dtype=dtype_of(dtype)),
    "einsum": lambda equation, tensors, path=None: T.einsum(equation, *tensors),
    "contiguous": lambda x, memory_format=None: x.contiguous(memory_format=format_of(memory_format)),
    "clone": lambda x, memory_format=None: x.clone(memory_format=format_of(memory_format)),
    "tensor": lambda data, dtype=None, device=None, requires_grad=False: T.tensor(
        data, dtype=dtype_of(dtype), requires_grad=requires_grad
    ),
    "feature_dropout": F.dropout2d,
    **{f"{kind}_": partial(getattr(F, kind), inplace=True) for kind in _IN_PLACE},
    **{kind: _recurrent(kind) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"upsample_{mode}{n}d": _upsample(mode) for mode in ("nearest", "bilinear", "bicubic") for n in (1, 2, 3)},
    "upsample_linear1d": _upsample("linear"), "upsample_trilinear3d": _upsample("trilinear"),
    "mse_loss": _losses(F.mse_loss), "l1_loss": _losses(F.l1_loss),
    "binary_cross_entropy_with_logits": lambda x, y, weight=None, positive=None, reduction=1:
        F.binary_cross_entropy_with_logits(x, y, weight, reduction=_REDUCTIONS[reduction], pos_weight=positive),
    "binary_cross_entropy": lambda x, y, weight=None, reduction=1:
        F.binary_cross_entropy(x, y, weight, reduction=_REDUCTIONS[reduction]),
    "smooth_l1_loss": lambda x, y, reduction=1, beta=1.0:
        F.smooth_l1_loss(x, y, reduction=_REDUCTIONS[reduction], beta=beta),
    "op_isnot__": lambda a, b: a is not b, "op_is__": lambda a, b: a is b, "op_not__": lambda a: not a,
    "op_contains__": _contains, "op_getitem__": lambda items, key: items[key], "op_and__": operator.and_,
    "op_or__": operator.or_, "op_xor__": operator.xor, "op_range_length": lambda a, b, s: len(range(a, b, s)),
    "op_derive_index": lambda k, start, step: start + k * step, "op_round_to_zero_floordiv": lambda a, b: int(a / b),
    "len": len, "list": list, "dict": dict, "keys": lambda d: list(d), "values": lambda d: list(d.values()),
    "items": lambda d: list(d.items()), "extend": lambda a, b: a.extend(b), "insert": lambda a, i, x: a.insert(i, x),
    "pop": lambda a, *i: a.pop(*i), "copy": lambda a: a.copy(), "clear": lambda a: a.clear(),
    "reverse": lambda a: a.reverse(), "format": lambda text, *a: safe_format(text)(*a), "percentFormat": lambda t, *a:
        t % a, "join": lambda t, a: t.join(a), "str": str, "upper": str.upper, "lower": str.lower, "strip": str.strip,
    "startswith": str.startswith, "endswith": str.endswith, "ord": ord, "chr": chr, "warn": lambda *a: None,
    "Int": int, "Float": float, "Bool": bool, "IntImplicit": int, "FloatImplicit": float,
    "ScalarImplicit": lambda x: x.item(), "_unwrap_optional": lambda x: x, "item": lambda x: x.item(),
    "dim": lambda x: x.dim(), "numel": lambda x: x.numel(), "is_floating_point": lambda x: x.is_floating_point(),
    "device": device, "mathremainder": math.remainder, "floordiv": _floordiv, "stride": lambda x, *d: x.stride(*d),
    "detach": lambda x: x.detach(), "is_grad_enabled": T.is_grad_enabled if hasattr(T, "is_grad_enabled") else bool,
    "view": lambda x, shape: x.view(dtype_of(shape)), "repeat": lambda x, sizes: x.repeat(list(sizes)),
}  # fmt: skip
"""Operators that differ from the public function of the same name."""

_ON_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "neg": operator.neg,
    "remainder": operator.mod, "pow": operator.pow, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "gt": operator.gt, "ge": operator.ge, "abs": abs, "floor": math.floor, "ceil": math.ceil,
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "round": round, "sum": sum, "sort": lambda a, reverse=False: a.sort(reverse=reverse), "fmod": math.fmod,
    "max": max, "min": min, "any": any, "all": all, "bitwise_and": operator.and_, "add_": operator.iadd,
}  # fmt: skip
"""Meanings of operators for numbers, texts and lists."""

PRIM = Namespace("ops.prim", {
    "RaiseException": _raise, "dtype": lambda x: x.dtype, "device": lambda x: x.device, "data": lambda x: x.detach(),
    "layout": lambda x: 0, "is_cuda": lambda x: False, "is_quantized": lambda x: False, "is_sparse": lambda x: False,
    
    "is_mkldnn": lambda x: False, "is_nested": lambda x: False, "is_mps": lambda x: False, "is_xla": lambda x: False,
    "is_meta": lambda x: x.is_meta,
    "requires_grad": lambda x: x.requires_grad, "grad": lambda x: x.grad, "shape": lambda x: list(x.shape),
    "NumToTensor": lambda x: x, "ImplicitTensorToNum": lambda x: x.item() if isinstance(x, Tensor) else x,
    "unchecked_unwrap_optional": lambda x: x, "min": lambda *a: min(*a), "max": lambda *a: max(*a), "abs": abs,
    "TupleIndex": lambda a, i: a[i], "TupleUnpack": lambda a: a, "type": lambda d: d.type, "index": lambda d: d.index,
    "itemsize": lambda x: x.itemsize, "name": lambda x: None, "rangelist": lambda n: list(range(n)), "Print": print,
})  # fmt: skip
"""Operations of TorchScript's own language."""
