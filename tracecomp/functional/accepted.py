"""Which element types functions refuse, because PyTorch has no kernels for them: one table, looked at when published.

A function of it raises NotImplementedError when none of its tensors is of a type that it takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tracecomp.functional.promotion import not_implemented
from tracecomp.tensor import Tensor

_ONLY_FLOATS = """
    batch_norm binary_cross_entropy binary_cross_entropy_with_logits cdist celu cholesky_solve ctc_loss dist elu gelu
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d gaussian_nll_loss glu grid_sample hardshrink hardsigmoid hardswish histc histogram histogramdd
    huber_loss hypot kl_div leaky_relu lerp logcumsumexp logsigmoid lu_solve max_pool1d max_unpool1d max_unpool2d
    max_unpool3d mish multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nextafter nll_loss ormqr
    pdist poisson prelu renorm rrelu selu silu smooth_l1_loss softplus softshrink vecdot
"""
_NO_BOOLS = """
    addbmm addcmul addmm addmv avg_pool1d avg_pool2d avg_pool3d baddbmm bilinear bmm bucketize conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d corrcoef cov dot hardtanh inner isin kthvalue
    linear local_response_norm matmul matrix_power median mm multi_dot mv mvlgamma nanmedian relu6 tensordot threshold
    topk trace vander vdot
"""
_REFUSED = dict.fromkeys(_ONLY_FLOATS.split(), ("int", "bool")) | dict.fromkeys(_NO_BOOLS.split(), ("bool",))


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
