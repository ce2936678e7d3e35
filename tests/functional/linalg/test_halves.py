"""Scaled sums and products of float16 and bfloat16 are rounded once, from float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tracecomp as tc
import tracecomp.nn.functional as F

SHAPES = {
    "addmm": ((3, 4), (3, 5), (5, 4)), "addmv": ((3,), (3, 5), (5,)), "baddbmm": ((2, 3, 4), (2, 3, 5), (2, 5, 4)),
    "addbmm": ((3, 4), (2, 3, 5), (2, 5, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [tc.float16, tc.bfloat16])
def test_rounded_once(name: str, dtype: tc.dtype) -> None:
    tc.manual_seed(0)
    given = [tc.randn(shape).to(dtype) for shape in SHAPES[name]]
    fn = getattr(tc, name)
    expected = fn(*[x.float() for x in given], beta=-4.775, alpha=2.0315).to(dtype)
    assert tc.equal(fn(*given, beta=-4.775, alpha=2.0315), expected)
    compiled = tc.compile(lambda *xs: fn(*xs, beta=-4.775, alpha=2.0315))
    assert tc.equal(compiled(*given), expected)
    with tc.autocast("cpu", dtype=tc.bfloat16):  # which has no rule for addmv
        assert name == "addmv" or fn(*[x.float() for x in given], beta=-4.775, alpha=2.0315).dtype is tc.bfloat16


SUMS: dict[str, tuple[Callable[..., tc.Tensor], tuple[tuple[int, ...], ...]]] = {
    "addmm": (tc.addmm, ((6,), (3, 5), (5, 6))),
    "addmv": (tc.addmv, ((3,), (3, 5), (5,))),
    "baddbmm": (tc.baddbmm, ((2, 3, 4), (2, 3, 5), (2, 5, 4))),
    "linear": (F.linear, ((7, 5), (6, 5), (6,))),
    "conv2d": (F.conv2d, ((2, 3, 6, 6), (4, 3, 3, 3), (4,))),
    "conv_transpose1d": (F.conv_transpose1d, ((2, 3, 6), (3, 4, 3), (4,))),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), ((2, 3, 6, 6),)),
    "bicubic": (lambda x: F.interpolate(x, size=(4, 9), mode="bicubic"), ((2, 3, 6, 6),)),
    "antialias": (lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True), ((2, 3, 8, 8),)),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", [tc.float16, tc.bfloat16])
def test_a_product_and_what_is_added_to_it_are_rounded_once(name: str, dtype: tc.dtype) -> None:
    tc.manual_seed(0)
    fn, shapes = SUMS[name]
    given = [tc.randn(shape).to(dtype).requires_grad_() for shape in shapes]
    wide = [x.detach().float().requires_grad_() for x in given]
    expected = fn(*wide)
    for f in (fn, tc.compile(fn)):
        found = f(*given)
        assert found.dtype is dtype
        assert tc.equal(found, expected.to(dtype))
        grads = tc.autograd.grad(found.sum(), given, retain_graph=True)
        for g, e in zip(grads, tc.autograd.grad(expected.sum(), wide, retain_graph=True), strict=True):
            assert tc.equal(g, e.to(dtype))


def test_autocast_leaves_bilinear_maps_in_the_widest_type() -> None:
    x, w = tc.randn(3, 4), tc.randn(2, 4, 4)
    with tc.autocast("cpu"):
        assert F.bilinear(x, x, w).dtype is tc.float32
        assert F.bilinear(x @ x.t() @ x, x, w).dtype is tc.float32


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_pool_to_one_element_is_the_mean(n: int) -> None:
    x = tc.rand(2, 3, *[7] * n)
    pooled = getattr(tc.nn.functional, f"adaptive_avg_pool{n}d")(x, 1)
    assert tc.equal(pooled, x.mean(tuple(range(2, 2 + n)), keepdim=True))
