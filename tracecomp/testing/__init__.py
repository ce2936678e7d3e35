"""Comparing and making tensors in tests, under the names of ``torch.testing``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp.base.errors import type_name
from tracecomp.eager.device import Device, MemoryFormat
from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.ir.types import DType, bool_, int64

# Relative and absolute tolerance, PyTorch's table; integers and bools have to be equal.
_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (0.016, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}

Message = str | Callable[[str], str] | None


class _Options:
    """Tolerances of a comparison."""

    def __init__(
        self, rtol: float | None, atol: float | None, equal_nan: bool, check_dtype: bool, check_stride: bool
    ) -> None:
        if (rtol is None) != (atol is None):
            missing = "rtol" if rtol is None else "atol"
            raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
        self.rtol, self.atol = rtol, atol
        self.equal_nan, self.check_dtype, self.check_stride = equal_nan, check_dtype, check_stride

    def tolerances(self, *dtypes: str) -> tuple[float, float]:
        """The given ones, or the loosest of those of the element types."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        pairs = [_TOLERANCES.get(name, (0.0, 0.0)) for name in dtypes]
        return max(r for r, _ in pairs), max(a for _, a in pairs)


def assert_close(
    actual: object, expected: object, *, allow_subclasses: bool = True, rtol: float | None = None,
    atol: float | None = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
    check_layout: bool = True, check_stride: bool = False, msg: Message = None,
) -> None:  # fmt: skip
    """AssertionError unless ``abs(actual - expected) <= atol + rtol * abs(expected)`` everywhere.

    Compares tensors, arrays, numbers, None, and sequences and mappings of these; shapes and (unless ``check_dtype`` is
    off) dtypes have to agree. TypeError for other values, ValueError for one tolerance without the other. ``msg``
    replaces the message, or makes one of it.
    """
    options = _Options(rtol, atol, equal_nan, check_dtype, check_stride)
    text = _difference(actual, expected, options, "")
    if text is not None:
        raise AssertionError(text if msg is None else msg(text) if callable(msg) else msg)


def _difference(actual: Any, expected: Any, options: _Options, place: str) -> str | None:
    """Describe the difference; None if there is none."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return _mapping(actual, expected, options, place)
    if _is_sequence(actual) and _is_sequence(expected):
        return _sequence(actual, expected, options, place)
    text = _leaf(actual, expected, options)
    return text if text is None or not place else f"{text}\n\nThe failure occurred for item {place}"


def _is_sequence(x: object) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str | bytes)


def _first(differences: Any) -> str | None:
    return next((text for text in differences if text is not None), None)


def _sequence(actual: Sequence[object], expected: Sequence[object], options: _Options, place: str) -> str | None:
    if len(actual) != len(expected):
        return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
    pairs = enumerate(zip(actual, expected, strict=True))
    return _first(_difference(a, b, options, f"{place}[{i}]") for i, (a, b) in pairs)


def _mapping(
    actual: Mapping[object, object], expected: Mapping[object, object], options: _Options, place: str
) -> str | None:
    missing, extra = expected.keys() - actual.keys(), actual.keys() - expected.keys()
    if missing or extra:
        return (
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(missing, key=str)}\n"
            f"Additional keys in the actual mapping: {sorted(extra, key=str)}"
        )
    return _first(_difference(actual[k], expected[k], options, f"{place}[{k!r}]") for k in actual)


def _leaf(actual: object, expected: object, options: _Options) -> str | None:
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual!r} is not {expected!r}"
    if isinstance(actual, bool) and isinstance(expected, bool):
        return None if actual is expected else f"Booleans mismatch: {actual} is not {expected}"
    if isinstance(actual, int | float) and isinstance(expected, int | float):
        return _numbers(actual, expected, options)
    a, b = (_array(x) for x in (actual, expected))
    if a is None or b is None:
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type_name(actual)} and {type_name(expected)}."
        )
    return _attributes(actual, expected, options) or _arrays(a, b, options)


def _array(x: object) -> np.ndarray[Any, Any] | None:
    if isinstance(x, Tensor):
        return x.detach().numpy()
    return np.asarray(x) if isinstance(x, np.ndarray | np.generic) else None


def _numbers(actual: float, expected: float, options: _Options) -> str | None:
    if options.check_dtype and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    both_integers = isinstance(actual, int) and isinstance(expected, int)
    a, b = (np.asarray(x, np.int64 if both_integers else np.float64) for x in (actual, expected))
    return _arrays(a, b, options)


def _attributes(actual: Any, expected: Any, options: _Options) -> str | None:
    if tuple(actual.shape) != tuple(expected.shape):
        return f"The values for attribute 'shape' do not match: {actual.shape} != {expected.shape}."
    if options.check_dtype and actual.dtype != expected.dtype:
        return f"The values for attribute 'dtype' do not match: {actual.dtype} != {expected.dtype}."
    if options.check_stride and actual.stride() != expected.stride():
        return f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}."
    return None


def _arrays(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], options: _Options) -> str | None:
    rtol, atol = options.tolerances(a.dtype.name, b.dtype.name)
    exact = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    kind: Any = np.int64 if exact or {a.dtype.kind, b.dtype.kind} == {"b"} else np.float64
    x, y = a.astype(kind), b.astype(kind)
    with np.errstate(all="ignore"):
        if rtol == 0 and atol == 0:
            close = x == y
            if options.equal_nan:
                close = close | (np.isnan(x) & np.isnan(y))
        else:
            close = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=options.equal_nan)
        if np.all(close):
            return None
        absolute = np.abs(x - y)
        relative = absolute / np.abs(y)
    allowed = ("", "") if rtol == 0 and atol == 0 else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    word = "close" if allowed[0] else "equal"
    if not a.ndim:
        return (
            f"Scalars are not {word}!\n\nExpected {b.item()} but got {a.item()}.\n"
            f"Absolute difference: {absolute.item()}{allowed[0]}\nRelative difference: {relative.item()}{allowed[1]}"
        )
    wrong = int(np.size(close) - np.sum(close))
    return (
        f"Tensor-likes are not {word}!\n\n"
        f"Mismatched elements: {wrong} / {a.size} ({wrong / a.size:.1%})\n"
        f"Greatest absolute difference: {_greatest(absolute, close)}{allowed[0]}\n"
        f"Greatest relative difference: {_greatest(relative, close)}{allowed[1]}"
    )


def _greatest(difference: np.ndarray[Any, Any], close: np.ndarray[Any, Any]) -> str:
    """The greatest difference among those that are not close, and its place."""
    masked = np.where(close, 0, difference)
    place = np.unravel_index(int(np.argmax(masked)), masked.shape)
    return f"{masked[place].item()} at index ({', '.join(map(str, place))}{',' if len(place) == 1 else ''})"


def make_tensor(
    *shape: Any, dtype: DType, device: Device = "cpu", low: float | None = None, high: float | None = None,
    requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
    memory_format: MemoryFormat = None,
) -> Tensor:  # fmt: skip
    """A tensor of random numbers in [low, high), by default [-9, 10) for integers and [-9, 9) for others.

    Real and imaginary parts of complex numbers are such numbers.

    ValueError for an empty interval, NaN, or integers that require grad.
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else tuple(shape)
    if requires_grad and not dtype.differentiable:
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    start, stop = _interval(low, high, dtype)
    split = noncontiguous and math.prod(sizes) > 1
    drawn = (*sizes[:-1], 2 * sizes[-1]) if split else sizes
    if dtype.is_complex:
        result: Tensor = T.view_as_complex(T.empty((*drawn, 2), dtype=dtype.to_real()).uniform_(start, stop))
    elif dtype.is_floating_point:
        result = T.empty(drawn, dtype=dtype).uniform_(start, stop)
    else:
        result = T.randint(math.ceil(start), math.ceil(stop), drawn, dtype=dtype)
    if exclude_zero:
        result = result.masked_fill(result == 0, T.finfo(dtype).tiny if dtype.differentiable else 1)
    if split:
        result = result[..., ::2]
    if memory_format is not None:
        result = result.clone(memory_format=memory_format)
    return result.requires_grad_(requires_grad) if requires_grad else result


def _interval(low: float | None, high: float | None, dtype: DType) -> tuple[float, float]:
    if not isinstance(dtype, DType):
        raise TypeError(f"make_tensor(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    if dtype is bool_:
        least: float = 0
        most: float = 2
        default = (0, 2)
    elif dtype.differentiable:
        least, most, default = T.finfo(dtype).min, T.finfo(dtype).max, (-9, 9)
    else:
        info = T.iinfo(dtype)
        least, most, default = info.min, info.max + (dtype is not int64), (-9, 10)
    start, stop = default[0] if low is None else low, default[1] if high is None else high
    if math.isnan(start) or math.isnan(stop):
        raise ValueError(f"`low` and `high` cannot be NaN, but got low={start} and high={stop}")
    if start > stop or (start == stop and not dtype.differentiable):
        raise ValueError(f"`low` must be less than `high`, but got {start} >= {stop}")
    if stop < least or start >= most:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{start}, {stop}), but {dtype} only supports "
            f"[{least}, {most})"
        )
    return min(max(start, least), most), min(max(stop, least), most)
