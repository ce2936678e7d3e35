"""Operators of ``torch.ops.aten`` without a function in tracecomp of that name and arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracecomp.eager.device import Device, MemoryFormat
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.functional.dims import Dim
from tracecomp.ir.types import DType
from tracecomp.library import known_operator
from tracecomp.nn import functional as F

Kernel = Callable[..., Any]


def _to_copy(
    input: Tensor, *, dtype: DType | None = None, layout: object = None, device: Device = None,
    pin_memory: bool | None = None, non_blocking: bool = False, memory_format: MemoryFormat = None,
) -> Tensor:  # fmt: skip
    return input.to(device=device, dtype=dtype or input.dtype, copy=True, memory_format=memory_format)


def alias(input: Tensor) -> Tensor:
    return input.view(input.shape)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    return F.pad(input, pad, value=value)


def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: object, padding: object, dilation: object,
    transposed: bool, output_padding: object, groups: int,
) -> Tensor:  # fmt: skip
    n = weight.ndim - 2
    if transposed:
        name = f"conv_transpose{n}d"
        return getattr(F, name)(input, weight, bias, stride, padding, output_padding, groups, dilation)  # type: ignore[no-any-return]
    return getattr(F, f"conv{n}d")(input, weight, bias, stride, padding, dilation, groups)  # type: ignore[no-any-return]


def _local_scalar_dense(input: Tensor) -> Any:
    return input.item()


def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    return F.embedding(indices, weight, padding_idx if padding_idx >= 0 else None)


def sym_size(input: Tensor, dim: int) -> Any:
    return input.shape[dim]


def _softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return T.softmax(input, dim)


def _log_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return T.log_softmax(input, dim)


def _unsafe_view(input: Tensor, size: Sequence[int]) -> Tensor:
    return input.reshape(size)


def lift_fresh(input: Tensor) -> Tensor:
    return input


def detach(input: Tensor) -> Tensor:
    return input.detach()


def index(input: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return input[tuple(slice(None) if i is None else i for i in indices)]


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(input.ndim - len(normalized_shape), input.ndim))
    mean = input.mean(dims, keepdim=True)
    variance = input.var(dims, correction=0, keepdim=True)
    return F.layer_norm(input, normalized_shape, weight, bias, eps), mean, (variance + eps).rsqrt()


def sum(input: Tensor, dim: Dim = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    return T.sum(input, dim, keepdim, dtype=dtype)


KERNELS: tuple[Kernel, ...] = (
    _to_copy, alias, constant_pad_nd, convolution, _local_scalar_dense, embedding, sym_size, _softmax, _log_softmax,
    _unsafe_view, lift_fresh, detach, index, native_layer_norm, sum,
)  # fmt: skip
for _fn in KERNELS:
    known_operator(f"aten::{_fn.__name__}").kernels["Autograd"] = _fn
known_operator("aten::_conj").kernels["Autograd"] = T.conj
known_operator("aten::lift_fresh_copy").kernels["Autograd"] = T.clone
