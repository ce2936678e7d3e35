"""Type promotion: the dtype of an operation, and conversion of its operands.

Rules: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc. Python scalars are weaker than
0-d tensors, which are weaker than other tensors, unless the weaker one is of a higher category (bool < int < float).
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from tracecomp.base.errors import type_name
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.default_dtype import default_dtype
from tracecomp.functional.primitives import prim
from tracecomp.ir.types import (
    DType,
    bfloat16,
    bool_,
    complex128,
    compute_dtype,
    float16,
    float32,
    float64,
    int64,
    promote,
    type_word,
)

Number: TypeAlias = bool | int | float
Operand: TypeAlias = Tensor | bool | int | float | complex

_CATEGORY = {"bool": 0, "int": 1, "float": 2, "complex": 3}


def not_implemented(kernel: str, dtype: DType) -> NotImplementedError:
    """PyTorch's error of an operator that has no kernel for an element type."""
    return NotImplementedError(f"\"{kernel}\" not implemented for '{type_word(dtype)}'")


_OPERANDS = (Tensor, bool, int, float, complex)  # isinstance is slower with a union


def operand(value: object, name: str, argument: str = "other") -> Operand:
    """``value`` as a tensor or Python number; TypeError naming the function otherwise."""
    if isinstance(value, _OPERANDS):
        return value
    if isinstance(value, np.generic):
        number: Operand = value.item()
        return number
    if hasattr(value, "__index__") and not (isinstance(value, np.ndarray) and value.ndim):
        return int(value)
    raise TypeError(f"{name}(): argument '{argument}' must be Tensor or Number, not {type_name(value)}")


_PYTHON_TYPES = {bool: bool_, int: int64, float: float64, complex: complex128}


def dtype_argument(value: object, name: str, argument: str = "dtype") -> DType:
    """A dtype, or that of Python's ``bool``, ``int``, ``float`` and ``complex``; TypeError naming the function."""
    if isinstance(value, DType):
        return value
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    raise TypeError(f"{name}(): argument '{argument}' must be torch.dtype, not {type_name(value)}")


def scalar_dtype(value: Number | complex) -> DType:
    """The dtype of a single Python scalar."""
    if isinstance(value, bool):
        return bool_
    if isinstance(value, complex):
        return default_dtype().to_complex()
    return int64 if isinstance(value, int) else default_dtype()


def _stronger(high: DType | None, low: DType | None) -> DType | None:
    """Combine a stronger with a weaker class of operands."""
    if high is None or low is None:
        return low if high is None else high
    if low.is_complex and high.is_floating_point:
        return high.to_complex()
    return promote(high, low) if _CATEGORY[low.kind] > _CATEGORY[high.kind] else high


def result_dtype(*operands: Operand) -> DType:
    """The dtype of arithmetic on ``operands``."""
    dims: DType | None = None
    zeros: DType | None = None
    scalars: DType | None = None
    for x in operands:
        if isinstance(x, Tensor):
            if x.ndim:
                dims = x.dtype if dims is None else promote(dims, x.dtype)
            else:
                zeros = x.dtype if zeros is None else promote(zeros, x.dtype)
        else:
            t = scalar_dtype(x)
            scalars = t if scalars is None else promote(scalars, t)
    result = _stronger(dims, _stronger(zeros, scalars))
    assert result is not None
    return result


def cast(x: Tensor, dtype: DType) -> Tensor:
    """``x`` in ``dtype``; unchanged if it already is."""
    return x if x.dtype is dtype else prim.cast(x, dtype=dtype)


def wide(x: Tensor) -> Tensor:
    """``x`` for a formula of several operators: half types in float32, rounded once by `rounded`, as in PyTorch."""
    return cast(x, compute_dtype(x.dtype))


def is_half(*tensors: Tensor | None) -> bool:
    """Whether all are of one type of 16 bits: formulas with their products are rounded once."""
    first = tensors[0]
    return (
        first is not None
        and first.dtype in (float16, bfloat16)
        and all(x is not None and x.dtype is first.dtype for x in tensors)
    )


def rounded(result: Tensor, like: Tensor) -> Tensor:
    """The result of a formula of ``wide(like)`` in the type of ``like``; others, as floats of integers, unchanged."""
    return cast(result, like.dtype) if result.dtype is compute_dtype(like.dtype) else result


_LARGEST = 1 << 63
"""The bound of signed integers of 64 bits."""


def scalar(value: Number | complex, dtype: DType) -> Any:
    """A Python scalar as a constant of ``dtype``; integers wrap around. RuntimeError for NaN or inf as an integer."""
    if dtype.is_complex:
        return complex(value)
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {_c_name(dtype)} without overflow")
        value = value.real
    if dtype.kind == "float":
        return float(value)
    if dtype.kind == "bool":
        return bool(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _overflow(dtype)
    number = int(value)
    if isinstance(value, int) and not -_LARGEST <= number < 2 * _LARGEST:
        raise OverflowError(f"the int {number} has more than 64 bits")
    bits = dtype.itemsize * 8
    low = -(1 << (bits - 1)) if dtype.signed else 0
    return (number - low) % (1 << bits) + low


def exact_scalar(value: Number | complex, dtype: DType) -> Any:
    """A Python scalar as an element of ``dtype``; RuntimeError when it is out of the type's range.

    Negative numbers wrap around in unsigned types, as in PyTorch.
    """
    if isinstance(value, complex):
        return scalar(value, dtype)
    if math.isfinite(value):
        if dtype.kind == "int" and not _least(dtype) <= int(value) <= _greatest(dtype):
            raise _overflow(dtype)
        if dtype is float32 and abs(value) > _FLOAT32_MAX:
            raise _overflow(dtype)
    return scalar(value, dtype)


_FLOAT32_MAX = float(np.finfo(np.float32).max)


def _greatest(dtype: DType) -> int:
    return (1 << (dtype.itemsize * 8 - dtype.signed)) - 1


def _least(dtype: DType) -> int:
    return -_greatest(dtype) - dtype.signed


def check_range(array: np.ndarray[Any, Any], dtype: DType) -> None:
    """RuntimeError unless all numbers of ``array`` are valid for integers of ``dtype`` by the rules of
    ``exact_scalar``."""
    if dtype.kind != "int" or array.dtype.kind not in "if" or not array.size:
        return
    low, high = array.min(), array.max()
    if not (math.isfinite(low) and math.isfinite(high) and _least(dtype) <= int(low) and int(high) <= _greatest(dtype)):
        raise _overflow(dtype)


def _c_name(dtype: DType) -> str:
    return {"float32": "float", "float64": "double", "int32": "int", "bool": "bool"}.get(dtype.name, f"{dtype.name}_t")


def _overflow(dtype: DType) -> RuntimeError:
    return RuntimeError(f"value cannot be converted to type {_c_name(dtype)} without overflow")


def bring(x: Operand, dtype: DType) -> Operand:
    """An operand in ``dtype``: tensors are cast, scalars stay Python scalars unless they are dynamic."""
    if isinstance(x, Tensor):
        return cast(x, dtype)
    tensor = followed_tensor(x)
    return scalar(x, dtype) if tensor is None else cast(tensor, dtype)


def followed_tensor(x: object) -> Tensor | None:
    """Return the tensor of ``x`` if it is a dynamic number of the current recording."""
    follow = getattr(x, "__tracecomp_tensor__", None)
    return None if follow is None else follow()


def bring_exact(x: Operand, dtype: DType) -> Operand:
    """``bring`` for scalars that are stored, not computed with; RuntimeError when ``dtype`` cannot hold one."""
    if isinstance(x, Tensor):
        return cast(x, dtype)
    tensor = followed_tensor(x)
    if tensor is not None and (dtype.is_floating_point or dtype is tensor.dtype):
        return cast(tensor, dtype)
    number: Operand = exact_scalar(x, dtype)
    return number


def common(*operands: Operand) -> tuple[Any, ...]:
    """Convert the operands to their promoted dtype."""
    if _agree(operands):
        return operands
    dtype = result_dtype(*operands)
    return tuple(bring(x, dtype) for x in operands)


def _agree(operands: tuple[Operand, ...]) -> bool:
    """Whether two operands obviously need no promotion: of one dtype, or floating or complex with a Python float."""
    if len(operands) != 2:
        return False
    a, b = operands
    if not isinstance(a, Tensor):
        return False
    if isinstance(b, Tensor):
        return a._data.dtype is b._data.dtype
    return type(b) is float and a._data.dtype.kind in "fc"


def float_dtype(dtype: DType) -> DType:
    """``dtype`` if floating or complex, else the default dtype: the result type of division and transcendental
    functions."""
    return dtype if dtype.differentiable else default_dtype()


def common_float(*operands: Operand) -> tuple[Any, ...]:
    """The operands in their promoted dtype, integers becoming the default float."""
    first = operands[0]
    if _agree(operands) and isinstance(first, Tensor) and first._data.dtype.kind in "fc":
        return operands
    dtype = float_dtype(result_dtype(*operands))
    return tuple(bring(x, dtype) for x in operands)


def as_float(x: Tensor) -> Tensor:
    """``x``, integers and bools becoming the default float."""
    return x if x.dtype.differentiable else prim.cast(x, dtype=default_dtype())


def with_zero_gradient(result: Tensor, *inputs: Operand) -> Tensor:
    """``result`` as a function of ``inputs`` whose derivative is zero."""
    for x in inputs:
        if isinstance(x, Tensor) and x.requires_grad and modes.grad:
            part = prim.real(x) if x.dtype.is_complex else x
            result = prim.add(result, prim.mul(cast(prim.sign(part), result.dtype), 0.0))
    return result


def choose(condition: Tensor, a: Number, b: Number, dtype: DType) -> Tensor:
    """Choose the constant ``a`` where ``condition`` is true, ``b`` elsewhere, in ``dtype``."""
    return prim.where(condition, create("full", value=scalar(a, dtype), shape=(), dtype=dtype), scalar(b, dtype))


def can_cast(source: DType, target: DType) -> bool:
    """Whether a value of ``source`` may be stored in ``target`` without losing its category."""
    return _CATEGORY[source.kind] <= _CATEGORY[target.kind]


def same_scalar_type(first: Tensor, second: Tensor) -> None:
    """RuntimeError unless both tensors have one dtype, for functions that do not promote."""
    if first.dtype is not second.dtype:
        raise RuntimeError(f"expected scalar type {type_word(first.dtype)} but found {type_word(second.dtype)}")
