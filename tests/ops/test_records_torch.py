"""Every record that PyTorch has a counterpart for: values and gradients, special values included."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.ops.samples import Case, samples_of
from tests.ops.test_vjp import gradient_graph, random_like
from tracecomp.ir.op import OPS, Op

torch = pytest.importorskip("torch")


def _dtype(d: Any) -> Any:
    return getattr(torch, d.name)


def _conv(transposed: bool, weight: bool) -> Callable[..., Any]:
    """The padded convolution, or one of its adjoints as the gradient that autograd computes."""

    def run(
        a: Any, b: Any, *, stride: Any, padding: Any, dilation: Any, groups: int, size: Any = (), kernel: Any = ()
    ) -> Any:
        rank = a.ndim - 2
        conv = getattr(torch.nn.functional, f"conv{rank}d")
        pad = [p for pair in reversed(padding) for p in pair]

        def forward(x: Any, w: Any) -> Any:
            return conv(torch.nn.functional.pad(x, pad), w, None, stride, 0, dilation, groups)

        if transposed:
            x = torch.zeros((a.shape[0], b.shape[1] * groups, *size), dtype=a.dtype, requires_grad=True)
            return torch.autograd.grad(forward(x, b), x, a, create_graph=True)[0]
        if weight:
            w = torch.zeros((b.shape[1], a.shape[1] // groups, *kernel), dtype=a.dtype, requires_grad=True)
            return torch.autograd.grad(forward(a, w), w, b, create_graph=True)[0]
        return forward(a, b)

    return run


def _reduce(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, axes: f(x, axes) if axes else x.clone()


def _flat_arg(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, *, axes: Any) -> Any:
        if x.ndim == 0:
            return f(x)
        rest = [i for i in range(x.ndim) if i not in axes]
        flat = x.permute(*rest, *axes).flatten(len(rest))
        return f(flat, -1)

    return run


def _prod(x: Any, axes: Any) -> Any:
    for axis in reversed(axes):
        x = x.prod(axis, dtype=x.dtype)
    return x


def _put(base: Any, index: Any, src: Any, *, axis: int, mode: str) -> Any:
    flat = index.reshape(-1)
    source = src.reshape([*base.shape[:axis], flat.numel(), *base.shape[axis + 1 :]])
    shape = [1] * base.ndim
    shape[axis] = -1
    whole = flat.reshape(shape).expand(source.shape)
    return _scatter(base, whole, source, axis=axis, mode=mode)


def _scatter(base: Any, index: Any, src: Any, *, axis: int, mode: str) -> Any:
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    if mode == "set":
        return base.scatter(axis, index, src)
    return base.scatter_reduce(axis, index, src, names[mode])


def _take(x: Any, index: Any, *, axis: int) -> Any:
    shape = [*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]
    return x.index_select(axis, index.reshape(-1)).reshape(shape)


def _windows(x: Any, *, sizes: Any, strides: Any, dilations: Any) -> Any:
    lead = x.ndim - len(sizes)
    for i, (k, s, d) in enumerate(zip(sizes, strides, dilations, strict=True)):
        x = x.unfold(lead + i, d * (k - 1) + 1, s)[..., ::d]
    return x


def _recurrence(a: Any, b: Any, *, axis: int) -> Any:
    found = [torch.zeros_like(a.select(axis, 0))] if a.shape[axis] else []
    for factor, term in zip(a.unbind(axis), b.unbind(axis), strict=True):
        found.append(factor * found[-1] + term)
    return torch.stack(found[1:], axis) if found else a + b


def _grouped(x: Any, y: Any, ends: Any) -> Any:
    """A product for each group: PyTorch's ``grouped_mm`` refuses most sizes, and leaves rows of no group undefined."""
    spans = [*pairwise([0, *ends.tolist()])]
    if y.ndim == 2:
        return torch.stack([x[:, start:end] @ y[start:end] for start, end in spans])
    parts = [x[start:end] @ matrix for (start, end), matrix in zip(spans, y, strict=True)]
    return torch.cat([*parts, x.new_zeros(len(x) - spans[-1][1], y.shape[2])])


COUNTERPARTS: dict[str, Callable[..., Any]] = {
    **{op.name: getattr(torch, op.name) for op in OPS.values() if op.kind == "elementwise" and hasattr(torch, op.name)},
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "cast": lambda x, *, dtype: (x.real if x.is_complex() and dtype.kind in ("int", "float") else x).to(_dtype(dtype)),
    "bitcast": lambda x, *, dtype: x.view(_dtype(dtype)),
    "reinterpret": lambda x, *, dtype: x.view(_dtype(dtype)),
    "sum": _reduce(lambda x, axes: x.sum(axes, dtype=x.dtype)),
    "prod": _reduce(_prod),
    "max": _reduce(torch.amax),
    "min": _reduce(torch.amin),
    "any": _reduce(lambda x, axes: x.any(axes)),
    "all": _reduce(lambda x, axes: x.all(axes)),
    "argmax": _flat_arg(torch.argmax),
    "argmin": _flat_arg(torch.argmin),
    "reshape": lambda x, *, shape: x.reshape(shape),
    "permute": lambda x, *, dims: x.permute(dims),
    "expand": lambda x, *, shape: x.expand(shape),
    "slice": lambda x, *, starts, stops, steps: x[(*map(slice, starts, stops, steps), ...)],
    "flip": lambda x, *, axes: x.flip(axes),
    "windows": _windows,
    "diagonal": lambda x: x.diagonal(0, -2, -1),
    "concat": lambda *xs, axis: torch.cat(xs, axis),
    "contract": lambda x, y, *, spec: torch.einsum(spec, x, y),
    "conv": _conv(False, False),
    "conv_transpose": _conv(True, False),
    "conv_weight": _conv(False, True),
    "grouped_mm": _grouped,
    "take": _take,
    "gather": lambda x, index, *, axis: x.gather(axis, index),
    "scatter": _scatter,
    "put": _put,
    "cumsum": lambda x, *, axis: x.cumsum(axis, dtype=x.dtype),
    "cumprod": lambda x, *, axis: x.cumprod(axis, dtype=x.dtype),
    "recurrence": _recurrence,
    "cummax": lambda x, *, axis: tuple(torch.cummax(x, axis)),
    "cummin": lambda x, *, axis: tuple(torch.cummin(x, axis)),
    "searchsorted": lambda s, v, *, right: torch.searchsorted(s, v, right=right),
    "sort": lambda x, *, axis, descending: tuple(torch.sort(x, dim=axis, descending=descending, stable=True)),
    "topk": lambda x, *, axis, count, descending: tuple(
        r.narrow(axis, 0, count) for r in torch.sort(x, dim=axis, descending=descending, stable=True)
    ),
    "cholesky": lambda x, strict, above: tuple(torch.linalg.cholesky_ex(x, upper=above, check_errors=strict)),
    "matrix_solve": torch.linalg.solve,
    "matrix_inverse": torch.linalg.inv,
    "pinv": lambda x, *, rtol, hermitian: torch.linalg.pinv(x, rtol=rtol, hermitian=hermitian),
    "det": torch.linalg.det,
    "slogdet": lambda x: tuple(torch.linalg.slogdet(x)),
    "geqrf": lambda x: tuple(torch.geqrf(x)),
    "reflections": lambda x: tuple(torch.geqrf(x)),
    "reflect": lambda a, tau, x, turn: torch.ormqr(a[..., : tau.shape[-1]], tau, x, transpose=turn),
    "lu_factor": lambda x, fails: tuple(torch.linalg.lu_factor(x)),
    "ldl_factor": lambda x, hermitian: tuple(torch.linalg.ldl_factor_ex(x, hermitian=hermitian)),
    "ldl_solve": lambda ld, b, pivots, hermitian: torch.linalg.ldl_solve(ld, pivots, b, hermitian=hermitian),
    "triangular_solve": lambda a, b, above, ones, turn: torch.linalg.solve_triangular(
        a.mT if turn else a, b, upper=above != turn, unitriangular=ones
    ),
    "svdvals": torch.linalg.svdvals,
    "eigvalsh": lambda x, uplo: torch.linalg.eigvalsh(x, UPLO=uplo),
    "eigvals": torch.linalg.eigvals,
    "complex": torch.complex,
    "conj": torch.conj,
    "real": torch.real,
    "imag": torch.imag,
    "view_as_real": torch.view_as_real,
    "view_as_complex": torch.view_as_complex,
    "fft_c2c": lambda x, *, axes, forward, norm: (torch.fft.fftn if forward else torch.fft.ifftn)(
        x, dim=axes, norm=norm
    ),
    "fft_r2c": lambda x, *, axes, norm: torch.fft.rfftn(x, dim=axes, norm=norm),
    "fft_c2r": lambda x, *, axes, size, norm: torch.fft.irfftn(
        x, [*(x.shape[a] for a in axes[:-1]), size], axes, norm=norm
    ),
    "full": lambda *, value, shape, dtype: torch.full(shape, value, dtype=_dtype(dtype)),
}  # fmt: skip

# No counterpart of the same meaning: checked by numpy (tests below), by their adjoint, or by their own tests.
# Eigenvectors, singular vectors and Q are unique up to signs, which LAPACK implementations choose differently.
WITHOUT = {"pad", "slice_update", "fold", "iota", "random_bits", "scan", "cond", "while_loop", "pivot_order"}
WITHOUT |= {"qr", "eigh", "svd", "dft", "hosted", "opaque", "eig", "phase_free"}
# Operators of several processes: tests/distributed compares them with gloo.
WITHOUT |= {"all_gather", "all_reduce", "all_to_all", "broadcast_from", "reduce_scatter"}

TOLERANCE = {"float16": (2e-3, 2e-3), "float32": (2e-6, 2e-6), "float64": (1e-13, 1e-13)}
TOLERANCE |= {"complex64": TOLERANCE["float32"], "complex128": TOLERANCE["float64"]}

PAIRED = [pytest.param(op, id=op.name) for op in OPS.values() if op.name in COUNTERPARTS]


def test_every_record_has_a_counterpart_or_a_reason() -> None:
    assert set(OPS) == set(COUNTERPARTS) | WITHOUT


def torch_results(case: Case, tensors: list[Any]) -> tuple[Any, ...] | None:
    """Return PyTorch's results; None if it lacks the element type, or rounds float16 sums after every term."""
    if case.op.kind == "convolution" and case.types[0].dtype.name in ("float16", "int64"):
        return None
    try:
        found = COUNTERPARTS[case.op.name](*tensors, **case.attrs)
    except (RuntimeError, NotImplementedError) as error:
        if any(words in str(error) for words in ("not implemented", "not supported", "does not support", "MKL FFT")):
            return None
        raise
    return found if isinstance(found, tuple) else (found,)


def tensor(a: Any) -> Any:
    """A copy with row-major strides, which ``torch.tensor`` does not give to arrays without elements."""
    given = torch.from_numpy(a)
    return torch.empty(a.shape, dtype=given.dtype).copy_(given)


def compare(mine: Any, theirs: Any, what: str, scale: float = 1.0) -> None:
    theirs = theirs.detach().resolve_conj().numpy()
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, what
    if mine.dtype.kind not in "fc":
        np.testing.assert_array_equal(mine, theirs, err_msg=what)
        return
    rtol, atol = TOLERANCE[mine.dtype.name]
    np.testing.assert_allclose(mine, theirs, rtol=rtol * scale, atol=atol * scale, err_msg=what)


def singular(case: Case) -> bool:
    """Gradients at poles and through infinite factors, where PyTorch's own forms disagree with each other."""
    special = any(not np.isfinite(a).all() for a in case.arrays if a.dtype.kind == "f")
    return special and case.op.name in ("digamma", "cumprod", "prod")


def undefined_in_c(case: Case) -> bool:
    """Casts of NaN or infinity to integers have no defined value."""
    return case.op.name == "cast" and case.attrs["dtype"].kind == "int" and not np.isfinite(case.arrays[0]).all()


@pytest.mark.parametrize("op", PAIRED)
def test_values_are_pytorchs(op: Op) -> None:
    for case in samples_of(op):
        theirs = torch_results(case, [tensor(a) for a in case.arrays])
        if theirs is None or undefined_in_c(case):
            continue
        with np.errstate(all="ignore"):
            mine = op.impl(*case.arrays, **case.attrs)
        for a, b in zip(mine if isinstance(mine, tuple) else (mine,), theirs, strict=True):
            compare(np.asarray(a), b, str(case), scale=4.0)


@pytest.mark.parametrize("op", [p for p in PAIRED if p.values[0].vjp is not None])
def test_gradients_are_pytorchs(op: Op) -> None:
    for case in samples_of(op):
        if not any(a.dtype.kind in "fc" and a.dtype != np.float16 for a in case.arrays) or singular(case):
            continue
        tensors = [tensor(a).requires_grad_(a.dtype.kind in "fc") for a in case.arrays]
        theirs = torch_results(case, tensors)
        if theirs is None:
            continue
        outs = [t for t in theirs if t.requires_grad]
        if not outs:
            continue
        rng = np.random.default_rng(3)
        values = [t.detach().resolve_conj().numpy() for t in outs]
        cotangents = [random_like(rng, a).astype(a.dtype) for a in values]
        given = [t for t in tensors if t.requires_grad]
        wanted = torch.autograd.grad(outs, given, [tensor(c) for c in cotangents], allow_unused=True)
        graph, wrt = gradient_graph(case)
        mine = dict(zip(wrt, graph.interpret(*case.arrays, *cotangents), strict=True))
        for i, w in zip([i for i, t in enumerate(tensors) if t.requires_grad], wanted, strict=True):
            if w is not None:
                # PyTorch's trigamma has about nine digits
                scale = 1e6 if op.name == "digamma" else 100.0 if op.run_by_host(case.types) else 20.0
                compare(mine[i], w, f"gradient {i} of {case}", scale)
