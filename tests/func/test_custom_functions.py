"""Users' autograd Functions inside and outside of transforms, against PyTorch's eager mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tracecomp


def functions(t: Any) -> dict[str, Any]:
    """Functions whose derivatives are recognizably not those of ``forward``."""
    base: Any = t.autograd.Function

    class Generated(base):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, factor: float = 2.0) -> Any:
            return x.sin() * factor

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.shape, ctx.factor = tuple(inputs[0].shape), inputs[1]
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            assert tuple(x.shape) == ctx.shape
            return grad * x * 100 * ctx.factor, None

        @staticmethod
        def jvp(ctx: Any, tangent: Any, _: Any) -> Any:
            return tangent * ctx.saved_tensors[0] * 1000

    class ByNumpy(base):
        """``forward`` leaves the graph."""

        @staticmethod
        def forward(x: Any) -> Any:
            return t.as_tensor(np.sin(x.detach().numpy()))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0] * 100

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent * ctx.saved_tensors[0] * 1000

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            assert info.batch_size == 3 and info.randomness == "error"
            return ByNumpy.apply(x) + 7, in_dims[0]

    class Sum(base):
        """Several outputs, a saved result and an intermediate, no gradient for one output."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * 3, x > 0, x.sum().reshape(1)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_non_differentiable(output[1])
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*inputs, None, output[2])
            ctx.save_for_forward(*inputs, None, output[2])

        @staticmethod
        def backward(ctx: Any, grad: Any, _: Any, total: Any) -> Any:
            x, nothing, s = ctx.saved_tensors
            assert nothing is None and _ is None
            return (0 * x if grad is None else grad * 7) + (0 * x if total is None else total * s)

    class InPlace(base):
        @staticmethod
        def forward(x: Any) -> Any:
            return x.mul_(2)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_dirty(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 10

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return InPlace.apply(x), in_dims[0]

    class NoRule(base):
        @staticmethod
        def forward(x: Any) -> Any:
            return x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 100

    class TwoRules(NoRule):
        generate_vmap_rule = True

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x, in_dims[0]

    class BadRule(NoRule):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x

    class WithCtx(base):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 100

    def written(x: Any) -> Any:
        y = x * 1
        before = y + 1
        InPlace.apply(y)
        return y + before

    return {
        "generated": Generated.apply, "numpy": ByNumpy.apply, "in place": written, "no rule": NoRule.apply,
        "two rules": TwoRules.apply, "bad rule": BadRule.apply, "ctx": WithCtx.apply,
        "several outputs": lambda x: Sum.apply(x)[0] + Sum.apply(x)[2], "total": lambda x: Sum.apply(x)[2],
        "nested": lambda x: Generated.apply(Sum.apply(x)[0]), "without": lambda x: _without(t, Generated, x),
        "ready argument": lambda x: Generated.apply(x.detach() * 0 + t.ones(2)) * x,
    }  # fmt: skip


def _without(t: Any, function: Any, x: Any) -> Any:
    with t.no_grad():
        y = function.apply(x)
    return y * x


TRANSFORMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap": lambda f, c, x: f.vmap(c)(x),
    "other axis": lambda f, c, x: f.vmap(c, in_dims=1, out_dims=1)(x.T.contiguous()),
    "vmap of grad": lambda f, c, x: f.vmap(f.grad(lambda v: c(v).sum()))(x),
    "grad of vmap": lambda f, c, x: f.grad(lambda v: f.vmap(c)(v).sum())(x),
    "grad of what all share": lambda f, c, x: f.grad(lambda w: f.vmap(lambda v: c(w + v))(x).sum())(x[0]),
    "grad of grad": lambda f, c, x: f.grad(lambda v: f.vmap(f.grad(lambda u: c(u).sum()))(v).sum())(x),
    "jvp of vmap": lambda f, c, x: f.jvp(f.vmap(c), (x,), (x + 1,)),
    "vmap of jvp": lambda f, c, x: f.vmap(lambda v: f.jvp(c, (v,), (v + 1,)))(x),
    "vmap twice": lambda f, c, x: f.vmap(f.vmap(c))(x.reshape(3, 1, 2).expand(3, 3, 2).clone()),
    "grad of vmap twice": lambda f, c, x: f.grad(
        lambda v: f.vmap(f.vmap(c))(v.reshape(3, 1, 2).expand(3, 3, 2) * 1).sum()
    )(x),
    "backward": lambda f, c, x: _backward(f, c, x),
}


def _backward(f: Any, c: Any, x: Any) -> Any:
    x = x.clone().requires_grad_()
    f.vmap(c)(x).sum().backward()
    return x.grad


def outcome(fn: Callable[[], Any]) -> Any:
    try:
        found = fn()
    except (RuntimeError, NotImplementedError) as error:
        return type(error).__name__, str(error)[:40]
    return [t.detach().numpy() for t in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("name", [k for k in functions(tracecomp) if k not in ("numpy",)])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_functions_keep_their_derivatives_in_transforms(name: str, compiled: bool) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = functions(tracecomp)[name], functions(torch)[name]
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2) - 2
    for key, transform in TRANSFORMS.items():
        if (name, key) == ("without", "grad of grad"):
            continue  # no_grad holds for the inner derivative only in PyTorch, for both here
        wanted = outcome(partial(transform, torch.func, theirs, torch.tensor(x)))
        run: Any = partial(transform, tracecomp.func, ours)
        run = tracecomp.compile(run) if compiled else run
        for _ in range(3 if compiled else 1):
            same(outcome(partial(run, tracecomp.tensor(x))), wanted)


def test_functions_outside_the_graph_run_once_on_all_examples() -> None:
    torch = pytest.importorskip("torch")
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    for name, transform in TRANSFORMS.items():
        wanted = outcome(partial(transform, torch.func, functions(torch)["numpy"], torch.tensor(x)))
        got = outcome(partial(transform, tracecomp.func, functions(tracecomp)["numpy"], tracecomp.tensor(x)))
        same(got, wanted, name)


def same(got: Any, wanted: Any, name: str = "") -> None:
    if isinstance(wanted, tuple):
        assert isinstance(got, tuple) and got[0] == wanted[0], (name, got, wanted)
        return
    assert isinstance(got, list), (name, got, wanted)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=name)


def test_defaults_are_arguments() -> None:
    x = tracecomp.tensor([1.0, 2.0], requires_grad=True)
    functions(tracecomp)["generated"](x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [200.0, 400.0]


def test_vjp_is_another_name_of_backward() -> None:
    class Square(tracecomp.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vjp(ctx: Any, grad: Any) -> Any:
            return grad * 3 * ctx.saved_tensors[0]

    x = tracecomp.tensor([1.0, 2.0])
    assert tracecomp.func.grad(lambda v: Square.apply(v).sum())(x).tolist() == [3.0, 6.0]
    assert tracecomp.func.grad(lambda v: tracecomp.func.vmap(Square.apply)(v).sum())(x).tolist() == [3.0, 6.0]


@pytest.mark.parametrize("compiled", [False, True])
def test_writes_to_mapped_arguments_reach_the_caller(compiled: bool) -> None:
    def run(x: Any, y: Any) -> Any:
        tracecomp.func.vmap(lambda v: v.mul_(2), in_dims=1)(x)
        tracecomp.func.vmap(lambda v: v.add_(1), chunk_size=2)(x)
        tracecomp.func.vmap(lambda v, w: (v.copy_(w), w)[1])(y, x)
        return x * 1

    fn = tracecomp.compile(run) if compiled else run
    for _ in range(3):
        x, y = tracecomp.arange(6.0).reshape(3, 2).clone(), tracecomp.zeros(3, 2)
        out = fn(x, y)
        for t in (x, y, out):
            assert t.tolist() == [[1.0, 3.0], [5.0, 7.0], [9.0, 11.0]]


def test_custom_operators_keep_their_formulas_under_vmap() -> None:
    @tracecomp.library.custom_op("kinds::by_numpy", mutates_args=())
    def by_numpy(x: tracecomp.Tensor, k: int) -> tracecomp.Tensor:
        return tracecomp.from_numpy(np.sin(x.detach().numpy()) * k)

    by_numpy.register_autograd(
        lambda ctx, grad: (grad * 100 * ctx.k, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]),
    )
    x = tracecomp.arange(6.0).reshape(3, 2)
    mapped = tracecomp.func.vmap(lambda v: by_numpy(v, 2))
    np.testing.assert_array_equal(mapped(x).numpy(), by_numpy(x, 2).numpy())
    assert tracecomp.func.grad(lambda v: mapped(v).sum())(x).tolist() == [[200.0] * 2] * 3
    assert tracecomp.func.vmap(tracecomp.func.grad(lambda v: by_numpy(v, 2).sum()))(x).tolist() == [[200.0] * 2] * 3
    by_numpy.register_vmap(lambda info, dims, x, k: (by_numpy(x, k) + info.batch_size, dims[0]))
    np.testing.assert_array_equal(mapped(x).numpy(), (by_numpy(x, 2) + 3).numpy())
    assert tracecomp.func.grad(lambda v: mapped(v).sum())(x).tolist() == [[200.0] * 2] * 3
