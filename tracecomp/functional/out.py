"""Rules of ``out=``: which functions take it, of which types and memory, and how results are written to it.

PyTorch has two rules, and some functions with special ones. If operands are promoted, ``out`` may have any type to
which the result can be cast without losing its category. Otherwise it has the type of the result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tracecomp.eager.memory_formats import preserved
from tracecomp.eager.meta import in_order
from tracecomp.eager.modes import grad_enabled, no_grad
from tracecomp.eager.tensor import Tensor, assign_
from tracecomp.functional.promotion import can_cast, not_implemented, result_dtype
from tracecomp.ir.types import DType, type_word

_CASTABLE = """
acos acosh add addcdiv addcmul addr angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or
bitwise_right_shift bitwise_xor cat cholesky cholesky_inverse cholesky_solve clamp clamp_max clamp_min column_stack
copysign cos cosh deg2rad digamma div dstack eq erf erfc erfinv exp exp2 expm1 floor_divide fmax fmin fmod gcd ge
geqrf gt hstack hypot i0 igamma igammac kron lcm ldexp le lerp lgamma log log10 log1p log2 logaddexp logaddexp2
logical_and logical_not logical_or logical_xor logit logsumexp lt matrix_power maximum mean minimum mul mvlgamma ne
nextafter outer polygamma pow rad2deg reciprocal remainder rsqrt sigmoid sin sinc sinh sqrt square stack std sub tan
tanh true_divide var vstack xlogy multigammaln fft.fft fft.fft2 fft.fftn fft.ifft fft.ifft2 fft.ifftn fft.ihfft2
fft.ihfftn fft.rfft fft.rfft2 fft.rfftn fft.fftfreq fft.rfftfreq linalg.cond linalg.eig linalg.eigvals
linalg.householder_product linalg.lstsq linalg.matrix_power linalg.matrix_rank linalg.pinv linalg.tensorinv
linalg.tensorsolve special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
special.chebyshev_polynomial_w special.entr special.erfcx special.hermite_polynomial_h special.hermite_polynomial_he
special.i0e special.i1 special.i1e special.laguerre_polynomial_l special.legendre_polynomial_p special.log_ndtr
special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1
special.ndtr special.ndtri special.polygamma special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0 special.xlog1py special.zeta
"""
_SAME = """
abs addbmm addmm addmv alias_copy amax amin aminmax arange argmax argmin as_strided_copy baddbmm bitwise_not bmm
bucketize ceil chain_matmul complex conj_physical cross cummax cummin diag diagonal_copy diff dot empty expand_copy
eye fft.ihfft float_power floor frac frexp full gather heaviside histc histogram index_add index_copy index_reduce
index_select inner inverse isin isneginf isposinf kthvalue linspace log_softmax logcumsumexp logspace lu_solve
lu_unpack masked_select matmul median mm mode msort multinomial mv nan_to_num nanmedian nanquantile narrow_copy neg
nonzero nonzero_static norm ones ormqr permute_copy polar qr quantile rand randint randn randperm range renorm round
scatter scatter_add scatter_reduce searchsorted sgn sign signbit slice_scatter slogdet softmax sort
split_with_sizes_copy squeeze_copy svd t_copy take take_along_dim tensordot topk transpose_copy triangular_solve tril
triu trunc unbind_copy unfold_copy unsqueeze_copy vdot view_copy where zeros linalg.cholesky linalg.cholesky_ex
linalg.cross linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex
linalg.ldl_solve linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matmul linalg.matrix_norm
linalg.multi_dot linalg.norm linalg.qr linalg.slogdet linalg.solve linalg.solve_ex linalg.solve_triangular linalg.svd
linalg.svdvals linalg.vecdot linalg.vector_norm nn.functional.gelu nn.functional.hardshrink nn.functional.linear
nn.functional.logsigmoid nn.functional.softplus nn.functional.softshrink
"""


def _same(result: DType, out: DType) -> bool:
    return out is result


def _floating(result: DType, out: DType) -> bool:
    return out.is_floating_point or not result.is_floating_point


def _truth(result: DType, out: DType) -> bool:
    return out.name in ("bool", "uint8")


def _any(result: DType, out: DType) -> bool:
    return True


_RULES: dict[str, Callable[[DType, DType], bool]] = {
    **dict.fromkeys(_CASTABLE.split(), can_cast),
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(("all", "any"), _truth),
    **dict.fromkeys(
        ("fft.hfft", "fft.hfft2", "fft.hfftn", "fft.irfft", "fft.irfft2", "fft.irfftn", "nanmean", "nansum"), _floating
    ),
    **dict.fromkeys(("max", "min", "normal"), can_cast),
    "bernoulli": lambda result, out: not out.is_complex,
    **dict.fromkeys(("lu", "cumprod", "cumsum", "prod", "sum"), _any),
}
"""Per function that takes ``out``: whether a result of one type may go into an ``out`` of another."""

_COMPUTED_IN_OUT = frozenset({"cumprod", "cumsum", "prod", "sum"})
"""Functions that compute in the type of ``out``."""

_LIMITS = frozenset({"clamp", "clamp_max", "clamp_min", "clip"})
"""Functions whose ``out`` has the type of the result if the operands are numbers, which are not promoted."""

_NOT_INTO: dict[str, tuple[str, ...]] = {
    "arange": ("bool", "complex"), "range": ("bool", "complex"), "linspace": ("bool",), "logspace": ("bool",),
}  # fmt: skip
"""Kinds of ``out`` without a PyTorch kernel."""

_APART = frozenset({"cat", "gather", "index_select", "kthvalue", "masked_select", "stack", "take", "topk"})
"""Functions that read an operand after they have begun to write ``out``, which must therefore not be the operand."""


_IN_ANY_SHAPE = frozenset({"arange", "linspace", "logspace", "range"})
"""Functions that fill an ``out`` with the same number of elements in its own shape."""

_FACTORIES = frozenset({"empty", "eye", "full", "ones", "rand", "randint", "randn", "randperm", "zeros"})
"""Functions that resize ``out`` silently."""

_JOINING = frozenset({"cat", "column_stack", "dstack", "hstack", "stack", "vstack"})
"""Functions that raise TypeError, not RuntimeError, for a type that cannot hold the result's."""


class Out:
    """The handling of one function's ``out``."""

    def __init__(self, name: str, space: str) -> None:
        self.name, self.space = name, space
        self.key = name if space == "torch" else f"{space}.{name}"
        self.rule = _RULES.get(self.key)

    def prepare(self, out: object, args: Iterable[object], kwargs: dict[str, Any], kinds: Mapping[str, object]) -> None:
        """Reject an invalid ``out``, and set its type in ``kwargs``."""
        if self.rule is None:
            raise TypeError(f"{self.name}() got an unexpected keyword argument 'out'")
        for target in out if isinstance(out, tuple | list) else (out,):
            check_apart(target, (*args, *kwargs.values()), self.name)
        if isinstance(out, Tensor) and out.dtype.kind in _NOT_INTO.get(self.key, ()):
            raise not_implemented(f"{self.name}_cpu", out.dtype)
        if isinstance(out, Tensor) and self.name in _LIMITS:
            _check_limits(out, [*args, *[kwargs[k] for k in ("min", "max") if k in kwargs]])
        if isinstance(out, Tensor) and ("layout" in kinds or self.key in _COMPUTED_IN_OUT):
            if self.key in ("cumsum", "cumprod") and out.dtype.kind == "bool":
                raise not_implemented(f"{self.name}_out_cpu", out.dtype)
            if "dtype" in kinds:
                self._compute_in(out.dtype, kwargs)

    def _compute_in(self, dtype: DType, kwargs: dict[str, Any]) -> None:
        """Let the function compute in the type of ``out``; RuntimeError if another type is requested."""
        made = kwargs.get("dtype") or dtype
        if made is not dtype:
            raise RuntimeError(
                f"{self.name}(): dtype {type_word(made)} does not match dtype of out parameter ({type_word(dtype)})"
            )
        kwargs["dtype"] = made

    def store(self, out: Any, result: Any) -> Any:
        """Write ``result`` into ``out`` (a tensor, or as many as there are results) and return ``out``."""
        if not isinstance(result, tuple | list):
            self._check(out, result, self.rule)
            if self.key in _IN_ANY_SHAPE and out.numel() == result.numel():
                result = result.reshape(out.shape)
            return _write(out, result, self.key not in _FACTORIES)
        if not isinstance(out, tuple | list) or len(out) != len(result):
            raise TypeError(f"{self.name}(): argument 'out' must be tuple of {len(result)} Tensors")
        rule = _same if self.key in ("max", "min") else self.rule
        for target, value in zip(out, result, strict=True):
            self._check(target, value, rule)
        for target, value in zip(out, result, strict=True):
            _write(target, value)
        return type(result)(*out) if hasattr(result, "_fields") else tuple(out)

    def _check(self, out: object, result: Tensor, rule: Callable[[DType, DType], bool] | None) -> None:
        if not isinstance(out, Tensor):
            raise TypeError(f"{self.name}(): argument 'out' must be Tensor, not {type(out).__name__}")
        if grad_enabled() and (out.requires_grad or result.requires_grad):
            raise RuntimeError(
                f"{self.name}(): functions with out=... arguments don't support automatic differentiation, "
                "but one of the arguments requires grad."
            )
        if self.key in ("nanmean", "nansum") and not out.dtype.differentiable:
            raise not_implemented("nansum_cpu", out.dtype)
        if rule is can_cast:
            check_castable(result, out, TypeError if self.key in _JOINING else RuntimeError)
        elif rule is not None and not rule(result.dtype, out.dtype):
            raise RuntimeError(
                f"{self.name}(): Expected out tensor to have dtype {type_word(result.dtype).lower()}, but got "
                f"{type_word(out.dtype).lower()} instead"
            )


def _write(out: Tensor, result: Tensor, warn: bool = True) -> Tensor:
    with no_grad():
        if out.shape != result.shape:
            if warn and out.numel():
                warnings.warn(
                    f"out of shape {list(out.shape)} was resized to {list(result.shape)}, which PyTorch deprecates for "
                    "tensors that have elements. out.resize_(0) before the call has it resized silently.",
                    stacklevel=2,
                )
            out.resize_(result.shape)
            out._data = in_order(out._data, preserved(result._data.shape, [result._data]))
        assign_(out, result)
    return out


def _check_limits(out: Tensor, given: Sequence[Any]) -> None:
    """RuntimeError for an ``out`` of another type than the result of limiting a tensor by numbers."""
    if not any(isinstance(bound, Tensor) for bound in given[1:]):
        dtype = result_dtype(*[x for x in given if x is not None])
        if out.dtype is not dtype:
            raise RuntimeError(f"Found dtype {type_word(out.dtype)} but expected {type_word(dtype)}")


def check_apart(out: object, given: Iterable[object], name: str) -> None:
    """RuntimeError when ``out`` overlaps with operands, other than element by element."""
    for x in given:
        if isinstance(x, tuple | list):
            check_apart(out, x, name)
        elif isinstance(x, Tensor) and isinstance(out, Tensor) and np.may_share_memory(x._data, out._data):
            a, b = x._data, out._data
            same = (a.shape, a.strides, x._address()) == (b.shape, b.strides, out._address())
            if (name in _APART or (a.shape == b.shape and not same)) and np.shares_memory(a, b):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                    "single memory location. Please clone() the tensor before performing the operation."
                )


def check_castable(result: Tensor, target: Tensor, error: type[Exception] = RuntimeError) -> None:
    """Raise ``error`` if the target cannot hold the result's type."""
    if not can_cast(result.dtype, target.dtype):
        raise error(
            f"result type {type_word(result.dtype)} can't be cast to the desired output type {type_word(target.dtype)}"
        )
