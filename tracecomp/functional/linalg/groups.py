"""Products of groups of rows with a matrix each, for layers of experts."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional.dtype_support import FLOATS
from tracecomp.functional.linalg.matmul import bmm, same_dtype
from tracecomp.functional.primitives import prim
from tracecomp.functional.publish import function
from tracecomp.ir.types import DType, int32


@function(to="nn.functional", takes=FLOATS)
def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:  # fmt: skip
    """Products of adjacent groups of rows of ``mat_a`` (S, K) with a matrix of ``mat_b`` (G, K, N) each: (S, N).

    ``offs`` (G) has the ends of the groups as int32. Results after the last group are zeros; in PyTorch they are not
    defined. Groups may also be columns of ``mat_b``: (G, M, K), (K, S) -> (M, S), or summed: (M, S), (S, N) -> (G, M,
    N). Without ``offs`` both operands are batches of matrices. RuntimeError for other shapes, for a ``bias``, and for
    an ``out_dtype`` that is not the operands'.
    """
    return _grouped(mat_a, mat_b, offs, bias, out_dtype)


@function(to="torch", takes=FLOATS)
def _grouped_mm(
    input: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: DType | None = None
) -> Tensor:
    """:func:`torch.nn.functional.grouped_mm`."""
    return _grouped(input, mat2, offs, bias, out_dtype)


def _grouped(a: Tensor, b: Tensor, ends: Tensor | None, bias: Tensor | None, out_dtype: DType | None) -> Tensor:
    for name, x in (("mat_a", a), ("mat_b", b)):
        if x.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    same_dtype("grouped_mm", a, b)
    if a.shape[-1] != b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    batched = a.ndim == b.ndim == 3
    if batched == (ends is not None):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype not in (None, a.dtype):
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    if ends is None:
        if a.shape[0] != b.shape[0]:
            raise RuntimeError("batched dimension has to match")
        return bmm(a, b)
    if ends.dtype is not int32:
        raise RuntimeError("Offsets have to be int32")
    if ends.ndim != 1:
        raise RuntimeError("offs has to be 1D")
    if any(x.ndim == 3 and x.shape[0] != ends.shape[0] for x in (a, b)):
        raise RuntimeError("matrix batch sizes have to match")
    if a.ndim == 3:  # groups of columns: the transposed product has groups of rows
        return prim.grouped_mm(b.t(), a.transpose(1, 2), ends).t().contiguous()
    return prim.grouped_mm(a, b, ends)
