"""Matrix products and functions composed of them, by one primitive, ``contract``."""

from __future__ import annotations

import string
import typing
from collections.abc import Callable, Sequence
from functools import lru_cache

from tracecomp.base.errors import refuse_long
from tracecomp.eager.modes import modes
from tracecomp.eager.tensor import Tensor, create
from tracecomp.functional.dims import Shape, wrap_dims
from tracecomp.functional.dtype_support import ALL, COMPLEX, NUMBERS
from tracecomp.functional.elementwise.arithmetic import install_operators, mul
from tracecomp.functional.plain_arguments import need_tensor
from tracecomp.functional.primitives import prim
from tracecomp.functional.promotion import Number, cast, is_half, result_dtype, scalar, with_zero_gradient
from tracecomp.functional.publish import function
from tracecomp.functional.shape.shaping import listed, to_shape
from tracecomp.ir.types import bool_, broadcast_shapes, float32, int64, uint8

_WORDS = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long",
    "int32": "int", "int16": "short", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip


def same_dtype(name: str, *tensors: Tensor) -> None:
    """RuntimeError unless all have one dtype: products do not promote."""
    first = tensors[0].dtype
    for x in tensors[1:]:
        if x.dtype is not first:
            raise RuntimeError(
                f"expected m1 and m2 to have the same dtype, but got: {_WORDS[first.name]} != {_WORDS[x.dtype.name]} "
                f"(in {name})"
            )


def contract(a: Tensor, b: Tensor, spec: str) -> Tensor:
    """The primitive, with bools multiplied as bytes."""
    if a.dtype is bool_:
        return prim.ne(prim.contract(cast(a, uint8), cast(b, uint8), spec=spec), 0)
    return prim.contract(a, b, spec=spec)


def _mismatch(a: Sequence[int], b: Sequence[int]) -> RuntimeError:
    left, right = ("x".join(map(str, s)) for s in (a, b))
    return RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({left} and {right})")


@function(takes=NUMBERS + COMPLEX)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices, without broadcasting."""
    for argument, x in (("self", input), ("mat2", mat2)):
        if x.ndim != 2:
            raise RuntimeError(f"mm: expected {argument} to be a matrix, but got a {x.ndim}D tensor")
    if input.shape[1] != mat2.shape[0]:
        raise _mismatch(input.shape, mat2.shape)
    same_dtype("mm", input, mat2)
    return contract(input, mat2, "mk,kn->mn")


@function(takes=NUMBERS + COMPLEX)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of two batches of matrices, without broadcasting."""
    if input.ndim != 3 or mat2.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor" if input.ndim != 3 else "batch2 must be a 3D tensor")
    b, _, k = input.shape
    if mat2.shape[0] != b or mat2.shape[1] != k:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: "
            f"[{mat2.shape[0]}, {mat2.shape[1]}]."
        )
    same_dtype("bmm", input, mat2)
    return contract(input, mat2, "bmk,bkn->bmn")


@function(takes=NUMBERS + COMPLEX)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Product of a matrix and a vector."""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {input.ndim}, {vec.ndim}")
    if input.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got input ({input.shape[0]}), mat ({input.shape[0]}x{input.shape[1]}), "
            f"vec ({vec.shape[0]})"
        )
    same_dtype("mv", input, vec)
    return contract(input, vec, "mk,k->m")


@function(takes=NUMBERS + COMPLEX)
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """:func:`dot` with the conjugate of the first vector."""
    return dot(input.conj(), other)


@function(takes=NUMBERS + COMPLEX)
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Inner product of two vectors of one size."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    if input.shape != tensor.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{input.shape[0]}] and src [{tensor.shape[0]}] to have the "
            f"same number of elements, but got {input.shape[0]} and {tensor.shape[0]} elements respectively"
        )
    if input.dtype is not tensor.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {input.dtype.name} and {tensor.dtype.name}"
        )
    return contract(input, tensor, "k,k->")


@function(takes=NUMBERS + COMPLEX, composite=True)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Matrix product: vectors, matrices, and batches of matrices with broadcast batch dimensions."""
    need_tensor("matmul", other, "other", 2)
    if input.ndim == 0 or other.ndim == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {input.ndim}D and {other.ndim}D"
        )
    pair = (input.ndim, other.ndim)
    if pair == (2, 2):
        return mm(input, other)
    if pair == (1, 1):
        return dot(input, other)
    if pair == (2, 1):
        return mv(input, other)
    if pair == (1, 2) and input.shape[0] == other.shape[0] and input.dtype is other.dtype:
        # A single row is summed in the same order as several rows.
        return to_shape(mm(to_shape(input, (1, input.shape[0])), other), other.shape[1:])
    return _batched(input, other)


def _batched(a: Tensor, b: Tensor) -> Tensor:
    same_dtype("matmul", a, b)
    plan = _plain_batch if modes.recorder is None else _batch  # dynamic sizes cannot be cache keys
    shape_a, shape_b, spec, shape = plan(tuple(a.shape), tuple(b.shape))
    return to_shape(contract(to_shape(a, shape_a), to_shape(b, shape_b), spec), shape)


def _batch(a: Shape, b: Shape) -> tuple[Shape, Shape, str, Shape]:
    """The shapes that the operands take for one product of all matrices, its spec, and the shape of the result."""
    if a[-1] != (b[-2] if len(b) > 1 else b[0]):
        raise _mismatch(a, b)
    labels = iter(string.ascii_lowercase[:10] + string.ascii_uppercase)
    left, right = "m" * (len(a) > 1) + "k", "k" + "n" * (len(b) > 1)
    batch = broadcast_shapes(a[:-2], b[:-2])
    names = [next(labels) for _ in batch]
    spec_a, shape_a = _named(a, batch, names, len(left))
    spec_b, shape_b = _named(b, batch, names, len(right))
    out = "".join(c for c in names if c in spec_a + spec_b) + left[:-1] + right[1:]
    shape = (*batch, *(a[-2:-1] if len(left) == 2 else ()), *(b[-1:] if len(right) == 2 else ()))
    return shape_a, shape_b, f"{spec_a}{left},{spec_b}{right}->{out}", shape


_plain_batch = lru_cache(4096)(_batch)


def _named(x: Shape, batch: Sequence[int], names: list[str], inner: int) -> tuple[str, Shape]:
    """Labels of the batch dimensions of ``x``; those of size 1 are dropped, because they broadcast."""
    lead = len(x) - inner
    own = list(range(len(batch) - lead, len(batch)))
    kept = [i for i in own if x[i - len(batch) + lead] != 1]
    return "".join(names[i] for i in kept), (*[x[i - len(batch) + lead] for i in kept], *x[lead:])


install_operators({"matmul": matmul})


def _of_halves(alpha: Number, beta: Number, *tensors: Tensor) -> bool:
    """Whether these products are computed in float32 and rounded once, like BLAS."""
    return is_half(*tensors) and (alpha != 1 or beta != 0)


def _in_float32(fn: Callable[..., Tensor], *tensors: Tensor, **scales: Number) -> Tensor:
    return cast(fn(*[cast(x, float32) for x in tensors], **scales), tensors[0].dtype)


def _plus(name: str, input: Tensor, product: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta * input + alpha * product; ``input`` is not read when beta is 0."""
    same_dtype(name, input, product)
    if product.dtype.kind == "int":
        alpha, beta = int(alpha), int(beta)
    try:
        prim.expand(input, shape=tuple(product.shape))
    except RuntimeError:
        raise RuntimeError(
            f"The expanded size of the tensor ({list(product.shape)}) must match the existing size "
            f"({list(input.shape)}) in {name}"
        ) from None
    if product.dtype is bool_:
        return prim.bitwise_or(product, input) if beta else product
    scaled = product if alpha == 1 else prim.mul(product, scalar(alpha, product.dtype))
    if beta == 0:
        return scaled
    return prim.add(input if beta == 1 else prim.mul(input, scalar(beta, input.dtype)), scaled)


@function(takes=NUMBERS + COMPLEX, inplace=True, composite=True)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2)."""
    if _of_halves(alpha, beta, input, mat1, mat2):
        return _in_float32(addmm, input, mat1, mat2, beta=beta, alpha=alpha)
    return _plus("addmm", input, mm(mat1, mat2), beta, alpha)


@function(takes=NUMBERS + COMPLEX, inplace=True, composite=True)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec)."""
    if _of_halves(alpha, beta, input, mat, vec):
        return _in_float32(addmv, input, mat, vec, beta=beta, alpha=alpha)
    return _plus("addmv", input, mv(mat, vec), beta, alpha)


@function(takes=NUMBERS + COMPLEX, inplace=True, composite=True)
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2)."""
    if _of_halves(alpha, beta, input, batch1, batch2):
        return _in_float32(baddbmm, input, batch1, batch2, beta=beta, alpha=alpha)
    return _plus("baddbmm", input, bmm(batch1, batch2), beta, alpha)


@function(takes=NUMBERS + COMPLEX, inplace=True, composite=True)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (the sum of the products of the batch)."""
    if _of_halves(alpha, beta, input, batch1, batch2):
        return _in_float32(addbmm, input, batch1, batch2, beta=beta, alpha=alpha)
    if batch1.ndim != 3 or batch2.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor" if batch1.ndim != 3 else "batch2 must be a 3D tensor")
    if batch1.shape[0] != batch2.shape[0] or batch1.shape[2] != batch2.shape[1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for bmm ({batch1.shape[1]}x{batch1.shape[2]} and "
            f"{batch2.shape[1]}x{batch2.shape[2]})"
        )
    same_dtype("addbmm", batch1, batch2)
    return _plus("addbmm", input, contract(batch1, batch2, "bmk,bkn->mn"), beta, alpha)


@function(takes=ALL, inplace=True, composite=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2)."""
    for x, name in ((vec1, "vec1"), (vec2, "vec2")):
        if x.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {x.ndim}-D")
    product = outer(vec1, vec2)
    dtype = result_dtype(input, product)
    return _plus("addr", cast(input, dtype), cast(product, dtype), beta, alpha)


@function("ger", takes=ALL)
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an element of each vector."""
    for x, name in ((input, "self"), (vec2, "vec2")):
        if x.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {x.ndim}-D")
    return mul(prim.reshape(input, shape=(input.numel(), 1)), vec2)


@function(takes=NUMBERS + COMPLEX, composite=True)
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sum of products over the last dimension of both."""
    if input.ndim == 0 or other.ndim == 0:
        return mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(input.shape)} and "
            f"{list(other.shape)}"
        )
    return tensordot(input, other, dims=([-1], [-1]))


@function(to="torch", takes=NUMBERS + COMPLEX, composite=True)
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int] | int] | Tensor = 2) -> Tensor:
    """Sum of products over ``dims``: a number of last and first dimensions, or two lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = typing.cast("list[list[int]]", dims.tolist())
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(
                f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims} for {a.ndim} and {b.ndim} dimensions"
            )
        dims = (list(range(a.ndim - dims, a.ndim)), list(range(dims)))
    dims_a, dims_b = (wrap_dims([d] if isinstance(d, int) else d, x.ndim) for d, x in zip(dims, (a, b), strict=True))
    if len(dims_a) != len(dims_b):
        raise RuntimeError("both dimension lists should have same length")
    same_dtype("tensordot", a, b)
    names = iter(string.ascii_letters)
    label_a = [next(names) for _ in range(a.ndim)]
    label_b = [next(names) for _ in range(b.ndim)]
    for i, j in zip(dims_a, dims_b, strict=True):
        # As in PyTorch, a single element pairs with all of the other side: these are summed first.
        if a.shape[i] == 1 != b.shape[j]:
            b = b.sum(j, keepdim=True)
        elif b.shape[j] == 1 != a.shape[i]:
            a = a.sum(i, keepdim=True)
        if a.shape[i] != b.shape[j]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and second has "
                f"size {b.shape[j]} in dim {j}"
            )
        label_b[j] = label_a[i]
    out = [c for i, c in enumerate(label_a) if i not in dims_a] + [c for j, c in enumerate(label_b) if j not in dims_b]
    return contract(a, b, f"{''.join(label_a)},{''.join(label_b)}->{''.join(out)}")


@function(takes=ALL, composite=True)
def kron(input: Tensor, other: Tensor) -> Tensor:
    """Kronecker product."""
    ndim = max(input.ndim, other.ndim)
    a, b = ((1,) * (ndim - x.ndim) + tuple(x.shape) for x in (input, other))
    left = prim.reshape(input, shape=tuple(n for s in a for n in (s, 1)))
    right = prim.reshape(other, shape=tuple(n for s in b for n in (1, s)))
    return to_shape(mul(left, right), tuple(n * m for n, m in zip(a, b, strict=True)))


@function(to="torch", takes=ALL, composite=True)
def chain_matmul(*matrices: Tensor | Sequence[Tensor]) -> Tensor:
    """Product of several matrices in the cheapest order."""
    given = list(listed(matrices))
    if not given:
        raise RuntimeError("chain_matmul(): expected one or more matrices")
    for matrix in given:
        need_tensor("chain_matmul", matrix, "matrices")
        if matrix.ndim != 2:
            raise RuntimeError(f"chain_matmul(): expected tensors of 2 dimensions, but got {matrix.ndim}")
    return multi_dot(given)


def multi_dot(matrices: list[Tensor]) -> Tensor:
    """Product of matrices, parenthesised for the fewest multiplications (dynamic programming)."""
    if len(matrices) == 1:
        return matrices[0]
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    count = len(matrices)
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(count)}
    for span in range(1, count):
        for i in range(count - span):
            j = i + span
            best[i, j] = min(
                (best[i, s][0] + best[s + 1, j][0] + sizes[i] * sizes[s + 1] * sizes[j + 1], s) for s in range(i, j)
            )

    def product(i: int, j: int) -> Tensor:
        if i == j:
            return matrices[i]
        s = best[i, j][1]
        return mm(product(i, s), product(s + 1, j))

    return product(0, count - 1)


@function("linalg.matrix_power", takes=NUMBERS + COMPLEX, composite=True)
def matrix_power(input: Tensor, n: int) -> Tensor:
    """``input`` multiplied ``n`` times with itself (n >= 0), by squaring."""
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_power: A must be batches of square matrices, but they are "
            f"{'x'.join(map(str, input.shape))} matrices"
        )
    refuse_long(n)
    if n < 0:
        return matrix_power(input.inverse(), -n)
    if n == 0:
        return with_zero_gradient(identity(input), input)
    result: Tensor | None = None
    power = input
    while n:
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        power = matmul(power, power) if n else power
    assert result is not None
    return result if result is not input else input.clone()


def identity(like: Tensor) -> Tensor:
    """Identity matrices of the shape and dtype of ``like``."""
    shape = tuple(like.shape)
    row = create("iota", shape=shape, axis=len(shape) - 2, dtype=int64)
    column = create("iota", shape=shape, axis=len(shape) - 1, dtype=int64)
    return cast(prim.eq(row, column), like.dtype)


@function(takes=NUMBERS + COMPLEX, composite=True)
def trace(input: Tensor) -> Tensor:
    """Sum of the diagonal of a matrix."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return input.diagonal().sum()
