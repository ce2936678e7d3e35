"""Products of matrices."""

from __future__ import annotations

from tracecomp.eager.tensor import Tensor
from tracecomp.functional import names as T
from tracecomp.onnx.registry import Call, rule


@rule("MatMul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return T.matmul(a, b)


@rule("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    alpha, beta = call.attr("alpha", 1.0), call.attr("beta", 1.0)
    product = T.matmul(a.t() if call.attr("transA", 0) else a, b.t() if call.attr("transB", 0) else b)
    product = product if alpha == 1 else (product * alpha).to(a.dtype)
    if c is None or beta == 0:  # a term times 0 must not give NaN
        return product
    return product + (c if beta == 1 else (c * beta).to(a.dtype))


@rule("Einsum")
def einsum(call: Call, *xs: Tensor) -> Tensor:
    return T.einsum(call.attr("equation"), *xs)


@rule("Det")
def det(call: Call, x: Tensor) -> Tensor:
    return T.det(x)


def _less(x: Tensor, zero: Tensor | None, rows: bool) -> Tensor:
    """Integers less their zero point, exactly, in float64; a zero point for each row (or column) is a vector."""
    if zero is None:
        return x.double()
    return x.double() - (_of_rows(zero) if rows else zero.double())


def _of_rows(value: Tensor) -> Tensor:
    """A number for each row, or one for all."""
    return value.double().unsqueeze(-1) if value.dim() == 1 else value.double()


@rule("MatMulInteger")
def matmul_integer(
    call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return T.matmul(_less(a, a_zero, True), _less(b, b_zero, False)).to(T.tensor(0).int().dtype)


@rule("QLinearMatMul")
def qlinear_matmul(
    call: Call, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:  # fmt: skip
    product = T.matmul(_less(a, a_zero, True), _less(b, b_zero, False))
    scale = _of_rows(a_scale) * b_scale.double() / _of_rows(y_scale)
    info = T.iinfo(y_zero.dtype)
    return T.clamp(T.round(product * scale) + _of_rows(y_zero), info.min, info.max).to(y_zero.dtype)
