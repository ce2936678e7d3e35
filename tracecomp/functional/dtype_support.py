"""Which element types functions refuse, as PyTorch does that has no kernels for them: tables, looked at when published.

A function of it raises NotImplementedError when none of its tensors is of a type that it takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.promotion import not_implemented

_ONLY_FLOATS = """
    batch_norm binary_cross_entropy binary_cross_entropy_with_logits cdist celu cholesky_solve ctc_loss dist elu gelu
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d gaussian_nll_loss glu grid_sample hardshrink hardsigmoid hardswish histc histogram histogramdd
    huber_loss hypot kl_div leaky_relu lerp logcumsumexp logsigmoid lu_solve max_pool1d max_unpool1d max_unpool2d
    max_unpool3d mish multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nextafter nll_loss ormqr
    pdist poisson prelu renorm rms_norm rrelu selu silu smooth_l1_loss softplus softshrink
    vecdot
"""
_NO_BOOLS = """
    addbmm addcmul addmm addmv avg_pool1d avg_pool2d avg_pool3d baddbmm bilinear bmm bucketize conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d corrcoef cov dot hardtanh inner isin kthvalue
    linear local_response_norm matmul matrix_power median mm multi_dot mv mvlgamma nanmedian relu6 tensordot threshold
    topk trace vander vdot
"""
# The functions that take complex tensors. All others refuse them, lest they compute something without a meaning.
_COMPLEX = """
    abs add addbmm addcdiv addcmul addmm addmv addr adjoint alias_copy all allclose angle any argwhere as_strided
    as_strided_copy as_strided_scatter as_tensor atleast_1d atleast_2d atleast_3d baddbmm bfloat16 block_diag bmm
    bool broadcast_tensors broadcast_to byte cartesian_prod cat cdouble cfloat chain_matmul char chunk clone
    column_stack combinations complex conj conj_physical contiguous copy_ cos cosh count_nonzero cpu cuda cumsum
    detach detach_copy diag diag_embed diagflat diagonal diagonal_copy diagonal_scatter diff div dot double dsplit
    dstack einsum empty_like eq equal exp exp2 expand expand_as expand_copy fft fft2 fftn fftshift fill fill_
    fill_diagonal flatten flip fliplr flipud float float_power full_like gather get_device gradient half hfft hfft2
    hfftn hsplit hstack ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn index_add index_copy index_fill index_put
    index_put_ index_select inner int irfft irfft2 irfftn is_complex is_conj is_floating_point is_neg is_nonzero
    is_pinned is_same_size is_set_to is_shared is_signed is_storage is_tensor isclose isfinite isinf isnan isreal
    istft kron linear log log10 log2 logical_and logical_not logical_or logical_xor long masked_fill masked_scatter
    masked_select matmul matrix_power mean meshgrid mm movedim mul multi_dot mv narrow narrow_copy ne neg new
    new_empty new_empty_strided new_full new_ones new_tensor new_zeros nonzero nonzero_static norm numel ones_like
    outer pad permute permute_copy pin_memory polar positive pow put rand_like randn_like ravel reciprocal repeat
    repeat_interleave reshape reshape_as resize_ resize_as_ resolve_conj result_type rfft rfft2 rfftn roll rot90
    rsqrt rsub scatter scatter_add select select_copy select_scatter set_ sgn share_memory_ short sigmoid sin sinh
    slice slice_copy slice_scatter split split_copy split_with_sizes split_with_sizes_copy sqrt square squeeze
    squeeze_copy stack stft sub sum sum_to_size t t_copy take take_along_dim tan tanh tensor tensor_split tensordot
    tile to to_dense trace transpose transpose_copy tril triu true_divide type type_as unbind unbind_copy unflatten
    unfold unfold_copy unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy vdot vecdot
    vector_norm view view_as view_as_complex view_as_real view_copy vsplit vstack where zero_ zeros_like
"""

_TAKE_COMPLEX = frozenset(_COMPLEX.split())
_REFUSED = dict.fromkeys(_ONLY_FLOATS.split(), ("int", "bool")) | dict.fromkeys(_NO_BOOLS.split(), ("bool",))


def takes_complex(name: str) -> bool:
    """Whether the function called ``name`` has a meaning for complex tensors."""
    return name in _TAKE_COMPLEX


def refuse_complex(name: str, values: Iterable[Any]) -> None:
    """NotImplementedError when a complex tensor is among ``values``."""
    for x in values:
        if isinstance(x, Tensor) and x._data.dtype.kind == "c":
            raise not_implemented(f"{name}_cpu", x.dtype)


def accepting(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``fn``, refusing what the table says of ``name``."""
    refused = _REFUSED.get(name)
    if refused is None:
        return fn

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        kinds = [x.dtype for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        if kinds and all(dtype.kind in refused for dtype in kinds):
            raise not_implemented(f"{name}_cpu", kinds[0])
        return fn(*args, **kwargs)

    return call
