"""Autocast: one table of functions with their casts, read where functions are published.

The lists are those of PyTorch's autocast for the CPU (docs of torch.amp, "CPU Op-Specific Behavior").
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor
from tracecomp.functional.primitives import prim
from tracecomp.ir.types import DType, float32, float64

Function = TypeVar("Function", bound=Callable[..., Any])

LOWER, FULL, WIDEST = "lower", "float32", "widest"

_LISTS = {
    LOWER: (
        "convolution transposed bmm mm vecdot baddbmm addmm addbmm linear matmul einsum tensordot multi_dot "
        "chain_matmul prelu scaled_dot_product_attention"
    ),
    FULL: (
        "avg_pool3d binary_cross_entropy grid_sample prod quantile nanquantile cdist trace cholesky "
        "cholesky_inverse cholesky_solve inverse lu_solve geqrf ormqr pinverse qr svd lstsq triangular_solve "
        "mse_loss cosine_embedding_loss nll_loss hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy "
        "l1_loss huber_loss margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss ctc_loss kl_div "
        "multilabel_margin_loss binary_cross_entropy_with_logits cond matrix_rank solve cholesky_ex svdvals eigh "
        "eigvalsh inv inv_ex tensorinv tensorsolve eigvals householder_product max_pool3d max_unpool1d max_unpool2d "
        "max_unpool3d adaptive_avg_pool3d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d polar stft "
        "view_as_complex fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft"
    ),
    WIDEST: "stack cat concat concatenate index_copy bilinear",
}
RULES: dict[str, str] = {name: rule for rule, names in _LISTS.items() for name in names.split()}


def casts(fn: Function, rule: str | None = None) -> Function:
    """``fn`` with its floating-point arguments cast by the table, or by ``rule``, while autocast is enabled."""
    rule = rule or RULES.get(fn.__name__)
    if rule is None:
        return fn

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        low = modes.autocast
        if low is None:
            return fn(*args, **kwargs)
        to = low if rule == LOWER else float32 if rule == FULL else _widest((args, tuple(kwargs.values())), low)
        modes.autocast = None
        try:
            return fn(*[_cast(x, to) for x in args], **{k: _cast(v, to) for k, v in kwargs.items()})
        finally:
            modes.autocast = low

    return cast("Function", run)


def _cast(x: Any, to: DType) -> Any:
    if isinstance(x, Tensor):
        kind = x.dtype
        return prim.cast(x, dtype=to) if kind.is_floating_point and kind is not float64 and kind is not to else x
    if type(x) in (tuple, list):
        return type(x)(_cast(item, to) for item in x)
    return x


def _widest(value: object, low: DType) -> DType:
    if isinstance(value, Tensor):
        return value.dtype if value.dtype.is_floating_point else low
    kinds = [_widest(v, low) for v in value] if isinstance(value, tuple | list) else []
    return max(kinds, key=lambda kind: (kind.itemsize, kind is low), default=low)
