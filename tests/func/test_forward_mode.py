"""Forward mode against PyTorch's: over reverse mode, in place, nested, through custom functions and transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.ops.samples import samples_of
from tracecomp import Tensor
from tracecomp.autograd.forward_ad import dual
from tracecomp.eager.tangents import Level, tangent
from tracecomp.ir.op import OPS
from tracecomp.utils.checkpoint import checkpoint


def given_dual(t: Any) -> Any:
    return t.autograd.forward_ad.make_dual(t.tensor([0.5, 1.5, -1.0]), t.tensor([1.0, -2.0, 0.5]))


def gradient_of_dual(t: Any) -> Any:
    x = t.autograd.forward_ad.make_dual(t.tensor([0.5, 1.5], requires_grad=True), t.tensor([1.0, -2.0]))
    return t.autograd.grad((x.exp() * x.sin()).sum(), x)[0]


def gradient_through_saved_results(t: Any) -> Any:
    x = t.autograd.forward_ad.make_dual(t.tensor([0.5, 1.5], requires_grad=True), t.tensor([1.0, -2.0]))
    y = x * 1
    y.exp_()
    return t.autograd.grad(y.tanh().prod(), x)[0]


def written_through_a_view(t: Any) -> Any:
    base = t.zeros(2, 3)
    base[1].copy_(given_dual(t))
    base[:, 0] *= 3
    return base.t() * base.sum()


def overwritten(t: Any) -> Any:
    x = given_dual(t)
    x[1:] = 2
    return x * x


def view_made_before(t: Any) -> Any:
    base = t.ones(3)
    view = base[1:]
    base.mul_(given_dual(t))
    return view.sin()


def shape_changed_in_place(t: Any) -> Any:
    x = given_dual(t) * 2
    y = x[:2]
    x.unsqueeze_(0)
    x.mul_(3)
    return y.sum() * x


def without_gradients(t: Any) -> Any:
    with t.no_grad():
        return given_dual(t).exp() * 2


def detached(t: Any) -> Any:
    x = given_dual(t)
    return x.detach() * x


def steps(t: Any) -> Any:
    return given_dual(t).floor() * given_dual(t)


def sorted_and_indexed(t: Any) -> Any:
    return given_dual(t).sort()[0][t.tensor([2, 0, 0])].cumsum(0)


FORWARD = [
    gradient_of_dual, gradient_through_saved_results, written_through_a_view, overwritten,
    view_made_before, shape_changed_in_place, without_gradients, detached, steps, sorted_and_indexed,
]  # fmt: skip


@pytest.mark.parametrize("fn", FORWARD, ids=lambda f: f.__name__)
def test_primal_and_tangent(fn: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for t in (tracecomp, torch):
        with t.autograd.forward_ad.dual_level():
            pair = t.autograd.forward_ad.unpack_dual(fn(t))
            found.append([pair.primal.detach().numpy(), pair.tangent.detach().numpy()])
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-6)


def test_gradients_that_leaves_accumulate_are_dual() -> None:
    ad = tracecomp.autograd.forward_ad
    with ad.dual_level():
        x = tracecomp.tensor([0.5, 1.5], requires_grad=True)
        w = ad.make_dual(tracecomp.tensor([2.0, 3.0]), tracecomp.tensor([1.0, -1.0]))
        for n in (1, 2):
            (x * w * w).sum().backward()
            assert x.grad is not None
            assert ad.unpack_dual(x.grad).tangent.tolist() == [4 * n, -6 * n]
    assert ad.unpack_dual(x).tangent is None


# Eigenvectors have a phase, which these sums depend on.
LINEAR = [op for op in OPS.values() if op.vjp is not None and op.kind != "random" and op.name != "eig"]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", LINEAR, ids=lambda op: op.name)
def test_rules_are_transposes_on_the_samples_of_every_primitive(op: Any) -> None:
    """``v . (J t)`` of forward mode is ``(v J) . t`` of reverse mode."""
    rng = np.random.default_rng(0)
    for case in samples_of(op):
        if not all(isinstance(a, np.ndarray) and a.dtype.kind in "fbiu" for a in case.arrays):
            continue
        ins = [Tensor._wrap(a.copy()) for a in case.arrays]
        floats = [k for k, t in enumerate(ins) if t.is_floating_point()]
        tangents = {k: Tensor._wrap(rng.standard_normal(ins[k].shape).astype(ins[k]._data.dtype)) for k in floats}
        with np.errstate(all="ignore"), Level() as level:
            given = [dual(t.requires_grad_(), tangents[k], level) if k in floats else t for k, t in enumerate(ins)]
            outs = Tensor.__tracecomp_apply__(op, tuple(given), case.attrs)
            outs = [t for t in (outs if isinstance(outs, tuple) else (outs,)) if t.requires_grad]
            if not outs:
                continue
            forward = [tangent(t, level) for t in outs]
        seeds = [Tensor._wrap(rng.standard_normal(t.shape).astype(t._data.dtype)) for t in outs]
        reverse = tracecomp.autograd.grad(outs, [ins[k] for k in floats], seeds, allow_unused=True)
        pairs = [(g.double(), tangents[k]) for k, g in zip(floats, reverse, strict=True) if g is not None]
        a = sum((v.double() * t.double()).sum().item() for v, t in zip(seeds, forward, strict=True) if t is not None)
        b, size = sum((g * t).sum().item() for g, t in pairs), sum(abs(g * t).sum().item() for g, t in pairs)
        if np.isfinite(size):
            assert abs(a - b) <= 1e-2 * size + 1e-3, (op.name, case.attrs, a, b)


def f(x: Any) -> Any:
    return (x.sin() * x.exp()).sum() * x.prod()


def hessian_vector(t: Any, x: Any, v: Any) -> Any:
    return t.func.jvp(t.func.grad(f), (x,), (v,))


def gradient_of_product(t: Any, x: Any, v: Any) -> Any:
    return t.func.grad(lambda x: t.func.jvp(f, (x,), (v,))[1])(x)


def twice(t: Any, x: Any, v: Any) -> Any:
    return t.func.jvp(lambda x: t.func.jvp(f, (x,), (v,))[1], (x,), (v * v,))


def of_a_closure(t: Any, x: Any, v: Any) -> Any:
    return t.func.jvp(lambda x: t.func.jvp(lambda y: (y * x).exp(), (v,), (x,))[1], (x,), (v,))


def through_autograd(t: Any, x: Any, v: Any) -> Any:
    x = x.clone().requires_grad_()
    y = x**3
    return t.func.jvp(lambda v: t.autograd.grad(y, x, v, retain_graph=True)[0], (v,), (v,))


def of_a_map(t: Any, x: Any, v: Any) -> Any:
    return t.func.jvp(t.func.vmap(t.func.grad(lambda a: a.sin() * a)), (x,), (v,))


def of_a_map_with_a_closure(t: Any, x: Any, v: Any) -> Any:
    return t.func.jvp(lambda x: t.func.vmap(lambda a: (a * x).sum().exp())(v), (x,), (v,))


def map_of_products(t: Any, x: Any, v: Any) -> Any:
    return t.func.vmap(lambda v: t.func.jvp(t.func.grad(f), (x,), (v,))[1])(t.stack([v, v * 2]))


def jacobians(t: Any, x: Any, v: Any) -> Any:
    return t.func.jacfwd(t.func.jacfwd(f))(x), t.func.jacrev(t.func.jacfwd(f))(x), t.func.hessian(f)(x)


def linear(t: Any, x: Any, v: Any) -> Any:
    value, push = t.func.linearize(t.func.grad(f), x)
    return value, push(v), push(v * 2)


TRANSFORMS = [
    hessian_vector, gradient_of_product, twice, of_a_closure, through_autograd, of_a_map, of_a_map_with_a_closure,
    map_of_products, jacobians, linear,
]  # fmt: skip


def transformed(fn: Callable[..., Any], t: Any, compiled: bool = False) -> list[Any]:
    x, v = t.tensor([0.5, 1.5, -1.0]), t.tensor([1.0, -2.0, 0.5])
    found = (tracecomp.compile(lambda x, v: fn(t, x, v)) if compiled else lambda x, v: fn(t, x, v))(x, v)
    return [y.detach().numpy() for y in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("fn", TRANSFORMS, ids=lambda f: f.__name__)
def test_transforms(fn: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    want = transformed(fn, torch)
    for compiled in (False, True):
        for a, b in zip(transformed(fn, tracecomp, compiled), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def functions(t: Any) -> dict[str, Any]:
    class Product(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, n: int) -> Any:
            ctx.save_for_backward(x)
            ctx.save_for_forward(x, y)
            return x * y, x + n

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g, g, None

        @staticmethod
        def jvp(ctx: Any, a: Any, b: Any, n: None) -> Any:
            x, y = ctx.saved_tensors
            return 5 * a * y + x * b, a

    class Unmaterialized(Product):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, n: int) -> Any:
            ctx.set_materialize_grads(False)
            return x * y, x + n

        @staticmethod
        def jvp(ctx: Any, a: Any, b: Any, n: None) -> Any:
            return a * (7 if b is None else 1), a

    class TooFew(Product):
        @staticmethod
        def jvp(ctx: Any, a: Any, b: Any, n: None) -> Any:
            return a

    class Narrow(Product):
        @staticmethod
        def jvp(ctx: Any, a: Any, b: Any, n: None) -> Any:
            return a[:1], a

    class Without(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, n: int) -> Any:
            return x * 2, y

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            return g * 7, h, None

    return {c.__name__: c for c in (Product, Unmaterialized, TooFew, Narrow, Without)}


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("name", list(functions(tracecomp)))
def test_functions_have_their_own_rule(name: str, history: bool) -> None:
    torch = pytest.importorskip("torch")

    def run(t: Any) -> Any:
        ad = t.autograd.forward_ad
        with ad.dual_level():
            x = ad.make_dual(t.arange(3.0).requires_grad_(history), t.ones(3))
            try:
                outs = functions(t)[name].apply(x, t.ones(3) * 2, 3)
            except Exception as error:
                return type(error), str(error)
            return [ad.unpack_dual(o).tangent.tolist() for o in outs], [o.requires_grad for o in outs]

    assert run(tracecomp) == run(torch)


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("transform", ["jvp", "jacfwd", "grad"])
def test_the_gradient_mode_that_a_function_sets_remains_as_in_pytorch(
    transform: str, inner: bool, outer: bool
) -> None:  # fmt: skip
    torch = pytest.importorskip("torch")

    def after(lib: Any, compiled: bool = False) -> list[bool]:
        def fn(x: Any) -> Any:
            lib.set_grad_enabled(inner)
            return (x * x).sum()

        x = lib.ones(2)

        def run() -> Any:
            if transform == "jvp":
                return lib.func.jvp(fn, (x,), (x,))[1]
            return getattr(lib.func, transform)(fn)(x)

        run, seen = lib.compile(run) if compiled else run, []
        for _ in range(4 if compiled else 1):
            with lib.set_grad_enabled(outer):
                run()
                seen.append(lib.is_grad_enabled())
        return seen

    wanted = after(torch)
    assert after(tracecomp) == wanted and after(tracecomp, compiled=True) == wanted * 4


ABOUT: dict[str, Callable[[Any, Any], Any]] = {
    "jvp of grad": lambda f, x: f.jvp(f.grad(lambda v: v.sin().sum()), (x,), (x,)),
    "jvp of vjp": lambda f, x: f.jvp(lambda w: f.vjp(lambda v: v * v * v, w)[1](x)[0], (x,), (x,)),
    "jvp of a value": lambda f, x: f.jvp(f.grad_and_value(lambda v: v.exp().sum()), (x,), (x,)),
    "jvp of jvp of grad": lambda f, x: f.jvp(lambda u: f.jvp(f.grad(lambda v: v.exp().sum()), (u,), (x,)), (x,), (x,)),
    "jvp of grad of jvp": lambda f, x: f.jvp(
        f.grad(lambda u: f.jvp(f.grad(lambda v: v.exp().sum()), (u,), (x,))[1].sum()), (x,), (x,)
    ),
}  # fmt: skip


def leaves(value: Any) -> list[Any]:
    return [t for part in value for t in leaves(part)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", ABOUT)
@pytest.mark.parametrize("history", [False, True])
def test_a_tangent_has_a_history_if_its_tangent_argument_has_one(name: str, history: bool) -> None:
    """The history inside ``grad`` ends with it."""
    torch = pytest.importorskip("torch")

    def seen(lib: Any) -> list[Any]:
        found = leaves(ABOUT[name](lib.func, lib.ones(3, requires_grad=history)))
        return [(t.requires_grad, np.round(t.tolist(), 4).tolist()) for t in found]

    assert seen(tracecomp) == seen(torch)


@pytest.mark.parametrize("name", ["jvp of grad", "hessian", "grad of jvp", "dual numbers"])
def test_checkpoints_in_forward_mode_keep_their_values(name: str) -> None:
    f, x = tracecomp.func, tracecomp.tensor([0.5, 1.0, 2.0])

    def run(inner: Callable[[Any], Any]) -> Any:
        if name == "jvp of grad":
            return f.jvp(f.grad(inner), (x,), (x,))[1]
        if name == "hessian":
            return f.hessian(inner)(x)
        if name == "grad of jvp":
            return f.grad(lambda w: f.jvp(inner, (w,), (x,))[1])(x)
        leaf = x.clone().requires_grad_()
        with tracecomp.autograd.forward_ad.dual_level():
            value = inner(tracecomp.autograd.forward_ad.make_dual(leaf, x))
            along = tracecomp.autograd.forward_ad.unpack_dual(value).tangent
        assert along is not None
        return tracecomp.autograd.grad(along, leaf)[0]

    plain = run(lambda v: v.sin().exp().sum())
    assert run(lambda v: checkpoint(lambda u: u.sin().exp().sum(), v, use_reentrant=False)).tolist() == plain.tolist()
