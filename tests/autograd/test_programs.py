"""Programs that differentiate, in-place writes and views included: the same program under PyTorch must agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tracecomp

PROGRAMS: list[Callable[[Any], Any]] = []
FAILING: list[Callable[[Any], Any]] = []


def agrees(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS.append(program)
    return program


def fails(program: Callable[[Any], Any]) -> Callable[[Any], Any]:
    FAILING.append(program)
    return program


def leaf(torch: Any, *shape: int, seed: int = 0, grad: bool = True) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.tensor(values, requires_grad=grad)


@agrees
def accumulation(torch):
    x = leaf(torch, 3)
    (x * x).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    return x.grad, first, first is x.grad


@agrees
def retained_graph_twice(torch):
    x = leaf(torch, 3)
    y = (x.exp() * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


@agrees
def gradient_argument_and_broadcast(torch):
    x, b = leaf(torch, 3, 4), leaf(torch, 4, seed=1)
    y = x * b + b
    y.backward(leaf(torch, 3, 4, seed=2, grad=False))
    return x.grad, b.grad


@agrees
def second_derivative(torch):
    x = leaf(torch, 3)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g * g).sum(), x)
    return g, h


@agrees
def third_derivative(torch):
    x = leaf(torch, 4)
    y = (x.sin() * x).sum()
    for _ in range(3):
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        y = g.sum()
    return g


@agrees
def grad_through_matmul_twice(torch):
    a, b = leaf(torch, 3, 4), leaf(torch, 4, 2, seed=1)
    (ga,) = torch.autograd.grad((a @ b).tanh().sum(), a, create_graph=True)
    (ga**2).sum().backward()
    return a.grad, b.grad


@agrees
def allow_unused(torch):
    x, y = leaf(torch, 3), leaf(torch, 3, seed=1)
    g = torch.autograd.grad(x.sum(), [x, y], allow_unused=True)
    return g[0], g[1] is None


@agrees
def materialize(torch):
    x, y = leaf(torch, 3), leaf(torch, 3, seed=1)
    return torch.autograd.grad(x.sum(), [x, y], materialize_grads=True)


@agrees
def batched_gradients(torch):
    x = leaf(torch, 3)
    y = x * x
    return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)


@agrees
def inputs_argument(torch):
    x, w = leaf(torch, 3), leaf(torch, 3, seed=1)
    h = x * w
    (h * h).sum().backward(inputs=[w, h])
    return x.grad is None, w.grad, h.grad


@agrees
def retain_grad_and_hooks(torch):
    x = leaf(torch, 3)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    handle = x.register_hook(lambda g: g * 100)
    handle.remove()
    (y * y).sum().backward()
    return x.grad, y.grad


@agrees
def post_accumulate_hook(torch):
    x = leaf(torch, 3)
    seen = []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))
    (x * x).sum().backward()
    return torch.tensor(seen)


@agrees
def node_hooks(torch):
    x = leaf(torch, 3)
    y = x * 2
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
    y.grad_fn.register_hook(lambda ins, outs: tuple(None if g is None else g * 5 for g in ins))
    y.sum().backward()
    return x.grad


@agrees
def in_place_on_result(torch):
    x = leaf(torch, 3)
    y = x * 2
    y.add_(x)
    y.mul_(3.0)
    y.sum().backward()
    return y, x.grad, y._version


@agrees
def in_place_saved_output(torch):
    x = leaf(torch, 3)
    y = (x * 2).exp_()
    y.sum().backward()
    return x.grad


@agrees
def augmented_assignment_saves_what_it_overwrites(torch):
    x = leaf(torch, 3)
    quotient, product, power = x * 1, x * 1, x * 1
    quotient /= quotient.sum()
    product *= product.sum()
    power **= 3
    (quotient * quotient + product + power).sum().backward()
    return quotient, product, power, x.grad


@agrees
def view_then_write_base(torch):
    x = leaf(torch, 2, 3)
    y = x * 1
    v = y[0]
    y.mul_(2)
    (v * v).sum().backward()
    return v, x.grad


@agrees
def write_view_then_use_base(torch):
    x = leaf(torch, 2, 3)
    y = x * 1
    y[:, 1] += 1
    y[0].mul_(5)
    (y * y).sum().backward()
    return y, x.grad


@agrees
def view_of_view(torch):
    x = leaf(torch, 4, 5)
    y = x * 1
    a = y[1:3]
    b = a[:, 2:4]
    c = b.t()
    c.mul_(a.sum())
    (y * y).sum().backward()
    return y, a, b, c, x.grad


@agrees
def overlapping_slices(torch):
    x = leaf(torch, 6)
    y = x * 1
    y[:4].mul_(2)
    y[2:].mul_(3)
    (y**2).sum().backward()
    return y, x.grad


@agrees
def write_makes_base_require_grad(torch):
    w = leaf(torch, 3)
    buffer = torch.zeros(2, 3)
    other = buffer[1]
    buffer[0] = w * 2
    out = buffer.sum() + other.sum()
    out.backward()
    return buffer.requires_grad, other.requires_grad, w.grad


@agrees
def zero_in_place(torch):
    x = leaf(torch, 3)
    y = x * 2
    y.zero_()
    y.sum().backward()
    return y.requires_grad, x.grad


@agrees
def masked_assignment(torch):
    x = leaf(torch, 3, 4)
    y = x * 2
    y[x > 0] = 1.5
    y.sum().backward()
    return y, x.grad


@agrees
def masked_assignment_of_tensor(torch):
    x = leaf(torch, 3, 4)
    y = x * 2
    mask = x > 0
    y[mask] = (x * 7)[mask]
    (y * y).sum().backward()
    return y, x.grad


@agrees
def copy_in_place(torch):
    x, w = leaf(torch, 3), leaf(torch, 3, seed=1)
    y = x * 2
    y.copy_(w)
    (y * y).sum().backward()
    return y, w.grad


@agrees
def fill_view(torch):
    x = leaf(torch, 3, 3)
    y = x * 2
    y.diagonal().fill_(0)
    (y * y).sum().backward()
    return y, x.grad


@agrees
def no_grad_update(torch):
    x = leaf(torch, 3)
    with torch.no_grad():
        x.sub_(0.5)
        x[0] = 2.0
    (x * x).sum().backward()
    return x, x.grad, x.is_leaf, x._version


@agrees
def data_writes_do_not_count(torch):
    x = leaf(torch, 3)
    y = x.exp()
    x.data.mul_(2)
    y.sum().backward()
    return x, x.grad, x._version


@agrees
def data_replaced(torch):
    x = leaf(torch, 3)
    x.data = torch.ones(3)
    (x * x).sum().backward()
    return x, x.grad, x.requires_grad, x.is_leaf


@agrees
def detach_shares_memory(torch):
    x = leaf(torch, 3)
    y = x * 2
    d = y.detach()
    with torch.no_grad():
        d[0] = 100.0
    return y, d.requires_grad, y._version


@agrees
def detached_part(torch):
    x = leaf(torch, 3)
    (x * x.detach()).sum().backward()
    return x.grad


@agrees
def modes(torch):
    x = leaf(torch, 3)
    found = []
    with torch.no_grad():
        found.append((x * 2).requires_grad)
        with torch.enable_grad():
            found.append((x * 2).requires_grad)
    with torch.set_grad_enabled(False):
        found.append((x * 2).requires_grad)
    torch.set_grad_enabled(False)
    found.append((x * 2).requires_grad)
    torch.set_grad_enabled(True)
    found.append((x * 2).requires_grad)

    @torch.no_grad()
    def inner():
        return x * 2

    found.append(inner().requires_grad)
    with torch.inference_mode():
        t = x * 2
        found += [t.requires_grad, t.is_inference()]
    return torch.tensor(found)


@agrees
def leaves_and_flags(torch):
    x = leaf(torch, 3)
    y = x * 2
    return x.is_leaf, y.is_leaf, y.requires_grad, y.detach().is_leaf, torch.ones(2).is_leaf, x.argmax().requires_grad


@agrees
def custom_function(torch):
    class Square(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx, x, power):
            ctx.save_for_backward(x)
            ctx.power = power
            return x**power

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.power * x ** (ctx.power - 1), None

    x = leaf(torch, 3)
    y = Square.apply(x, 3)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    return y, g, h, type(y.grad_fn).__name__


@agrees
def custom_function_two_outputs(torch):
    class Both(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx, x):
            y, i = x * 2, x.argmax()
            ctx.mark_non_differentiable(i)
            return y, i, x * 3

        @staticmethod
        def backward(ctx, g, _, h):
            return g * 2 + h * 3

    x = leaf(torch, 3)
    y, i, z = Both.apply(x)
    y.sum().backward()
    return x.grad, i, z.requires_grad, i.requires_grad


@agrees
def custom_function_new_style(torch):
    class Double(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(x, k):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, g):
            (out,) = ctx.saved_tensors
            return g * ctx.k + out * 0, None

    x = leaf(torch, 3)
    Double.apply(x, 2.0).sum().backward()
    return x.grad


@agrees
def custom_function_dirty(torch):
    class AddOne(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx, x):
            x.add_(1)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 4

    x = leaf(torch, 3)
    y = x * 2
    z = AddOne.apply(y)
    z.sum().backward()
    return z is y, y, x.grad, y._version


@agrees
def needs_input_grad(torch):
    found = []

    class Mul(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx, a, b, c):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            found.extend(ctx.needs_input_grad)
            a, b = ctx.saved_tensors
            return g * b, g * a, None

    x = leaf(torch, 3)
    Mul.apply(x, torch.ones(3), 5).sum().backward()
    return torch.tensor(found), x.grad


@agrees
def straight_through(torch):
    x = leaf(torch, 5)
    y = x + (x.round() - x).detach()
    (y * y).sum().backward()
    return y, x.grad


@agrees
def jacobian_and_hessian(torch):
    f = torch.autograd.functional
    x = leaf(torch, 3, grad=False)
    v = leaf(torch, 3, seed=4, grad=False)
    jac = f.jacobian(lambda t: t**2 * t.sum(), x)
    hess = f.hessian(lambda t: (t**3).sum() * t.sum(), x)
    return jac, hess, *f.vjp(lambda t: t**2, x, v), *f.jvp(lambda t: t**2 * t.sum(), x, v), *f.hvp(
        lambda t: (t**3).sum(), x, v
    ), *f.vhp(lambda t: (t**3).sum(), x, v)  # fmt: skip


@agrees
def jacobian_of_several(torch):
    f = torch.autograd.functional
    x, y = leaf(torch, 2, grad=False), leaf(torch, 3, seed=1, grad=False)
    rows = f.jacobian(lambda a, b: (a.sum() * b, a * 2), (x, y))
    h = f.hessian(lambda a, b: (a.sum() * b * b).sum(), (x, y))
    return *rows[0], *rows[1], *h[0], *h[1]


@agrees
def checkpointed(torch):
    x, w = leaf(torch, 3), leaf(torch, 3, seed=1)
    checkpoint = (
        torch.utils.checkpoint.checkpoint
        if torch.__name__ == "torch"
        else __import__("tracecomp.autograd.checkpoint", fromlist=["x"]).checkpoint
    )
    y = checkpoint(lambda t: (t * w).sin().exp(), x * 2, use_reentrant=False)
    (y * y).sum().backward()
    return x.grad, w.grad


@agrees
def saved_tensor_hooks(torch):
    x = leaf(torch, 3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        y = x * x
    y.sum().backward()
    return x.grad


@agrees
def sort_gradient(torch):
    x = leaf(torch, 4, 5)
    values, indices = x.sort(dim=1)
    (values * torch.arange(5.0)).sum().backward()
    return values, indices, x.grad


@agrees
def gather_scatter_gradient(torch):
    x = leaf(torch, 4, 5)
    i = torch.tensor([[0, 2], [1, 1], [4, 0], [3, 3]])
    y = torch.zeros(4, 5).scatter_add(1, i, x.gather(1, i) * 2)
    (y * y).sum().backward()
    return y, x.grad


@agrees
def expanded_gradient(torch):
    x = leaf(torch, 3, 1)
    (x.expand(3, 4) * torch.arange(4.0)).sum().backward()
    return x.grad


@agrees
def unbound_rows(torch):
    x = leaf(torch, 3, 2)
    total = torch.zeros(())
    for row in x:
        total = total + (row * row).sum()
    total.backward()
    return x.grad


@agrees
def deep_copy_and_clone(torch):
    import copy

    x = leaf(torch, 3)
    y = copy.deepcopy(x)
    c = x.clone()
    c.sum().backward()
    return y, y.requires_grad, y.is_leaf, x.grad, c.is_leaf


@agrees
def long_chain(torch):
    x = leaf(torch, 2)
    y = x
    for _ in range(3000):
        y = y * 1.0001
    y.sum().backward()
    return x.grad


@agrees
def several_views_without_history(torch):
    x = torch.zeros(4, 2)
    a, b = x.chunk(2)
    a.add_(1)
    for row in b:
        row.add_(2)
    with torch.no_grad():
        w = leaf(torch, 4)
        w.split(2)[0].zero_()
    return x, w


@agrees
def diamond(torch):
    x = leaf(torch, 3)
    a, b = x * 2, x * 3
    c = a * b
    (c + a).sum().backward()
    return x.grad


@agrees
def half_and_double(torch):
    x = leaf(torch, 3)
    y = x.double() * 2
    z = (y.float() * x).sum()
    z.backward()
    return x.grad, y


@agrees
def out_argument(torch):
    out = torch.zeros(3)
    view = out[1:]
    torch.add(torch.ones(3), 2, out=out)
    return out, view, out._version


@agrees
def in_place_on_detached_view(torch):
    x = leaf(torch, 4)
    y = x * 1
    d = y.detach()[1:]
    d.zero_()
    return y, d


@agrees
def rnn_with_preallocated_outputs(torch):
    w, x = leaf(torch, 3, 3), leaf(torch, 5, 3, seed=1, grad=False)
    outs = torch.zeros(5, 3)
    h = torch.zeros(3)
    for t in range(5):
        h = torch.tanh(x[t] + h @ w)
        outs[t] = h
    (outs**2).sum().backward()
    return outs, w.grad


# ---- errors


@fails
def backward_twice(torch):
    y = (leaf(torch, 3) ** 2).sum()
    y.backward()
    y.backward()


@fails
def leaf_in_place(torch):
    leaf(torch, 3).mul_(2)


@fails
def view_of_leaf_in_place(torch):
    leaf(torch, 3)[0].mul_(2)


@fails
def modified_by_in_place(torch):
    x = leaf(torch, 3)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


@fails
def modified_operand(torch):
    x, y = leaf(torch, 3), leaf(torch, 3, seed=1)
    a = x * 1
    b = a * y
    a.add_(1)
    b.sum().backward()


@fails
def not_scalar(torch):
    (leaf(torch, 3) * 2).backward()


@fails
def no_graph(torch):
    torch.ones(3).sum().backward()


@fails
def unused_input(torch):
    torch.autograd.grad(leaf(torch, 3).sum(), leaf(torch, 2))


@fails
def input_without_grad(torch):
    torch.autograd.grad(leaf(torch, 3).sum(), torch.ones(2))


@fails
def integers_require_grad(torch):
    torch.arange(3).requires_grad_()


@fails
def flag_of_result(torch):
    (leaf(torch, 3) * 2).requires_grad_(False)


@fails
def numpy_of_leaf(torch):
    leaf(torch, 3).numpy()


@fails
def wrong_gradient_shape(torch):
    (leaf(torch, 3) * 2).backward(torch.ones(4))


@fails
def write_to_expanded(torch):
    torch.zeros(3, 1).expand(3, 4).add_(1)


@fails
def no_grad_view_written(torch):
    x = leaf(torch, 3) * 1
    with torch.no_grad():
        v = x[:2]
    v.mul_(leaf(torch, 2))


@fails
def one_of_several_views_written(torch):
    a, _ = (leaf(torch, 2, 3) * 1).unbind(0)
    a.mul_(2)


@fails
def piece_written(torch):
    (leaf(torch, 4) * 1).chunk(2)[1].mul_(2)


@fails
def row_of_iteration_written(torch):
    for row in leaf(torch, 2, 3) * 1:
        row.mul_(2)


@fails
def inference_in_place(torch):
    with torch.inference_mode():
        t = torch.ones(3)
    t.add_(1)


@fails
def inference_saved(torch):
    with torch.inference_mode():
        t = torch.ones(3)
    t * leaf(torch, 3)


@fails
def twice_once_differentiable(torch):
    class Cube(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    x = leaf(torch, 3)
    (g,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    g.sum().backward()


@fails
def wrong_number_of_gradients(torch):
    class Bad(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    Bad.apply(leaf(torch, 3), leaf(torch, 3)).sum().backward()


@fails
def assigned_gradient_shape(torch):
    leaf(torch, 3).grad = torch.ones(4)


@fails
def item_of_many(torch):
    torch.ones(3).item()


@fails
def truth_of_many(torch):
    bool(torch.ones(3))


@fails
def length_of_scalar(torch):
    len(torch.tensor(1.0))


@fails
def deep_copy_of_result(torch):
    import copy

    copy.deepcopy(leaf(torch, 3) * 2)


@fails
def hook_without_grad(torch):
    torch.ones(3).register_hook(lambda g: g)


@fails
def in_place_wrong_shape(torch):
    torch.ones(3).add_(torch.ones(2, 3))


@fails
def anomaly(torch):
    x = torch.zeros(1, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        (x.sqrt() * 0).sum().backward()


def plain(value: Any) -> Any:
    return value.detach().numpy() if hasattr(value, "detach") else value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program_agrees_with_torch(program: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    got, want = program(tracecomp), program(torch)
    got, want = (v if isinstance(v, tuple | list) else (v,) for v in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        a, b = plain(a), plain(b)
        if isinstance(b, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        else:
            assert a == b


def words(message: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", message.lower()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", FAILING, ids=lambda p: p.__name__)
def test_error_agrees_with_torch(program: Callable[[Any], Any]) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception) as want:
        program(torch)
    with pytest.raises(Exception) as got:
        program(tracecomp)
    assert isinstance(got.value, type(want.value)), (got.value, want.value)
    ours, theirs = words(str(got.value)), words(str(want.value))
    assert len(ours & theirs) >= 0.5 * len(theirs), (str(got.value), str(want.value))


@pytest.mark.parametrize("compiled", [False, True])
def test_checkpoints_run_in_the_contexts_they_are_given(compiled: bool) -> None:
    torch = tracecomp
    seen: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        seen.append(name)
        yield

    def contexts() -> tuple[Any, Any]:
        return noted("forward"), noted("again")

    def step(x: Any) -> Any:
        y = torch.utils.checkpoint.checkpoint(torch.sin, x * x, use_reentrant=False, context_fn=contexts)
        return torch.autograd.grad(y.sum(), x)[0]

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    found = (torch.compile(step) if compiled else step)(x)
    np.testing.assert_allclose(found.numpy(), 2 * x.detach().numpy() * np.cos(x.detach().numpy() ** 2), rtol=1e-6)
    assert seen == ["forward", "again"]
    with pytest.raises(ValueError, match="use_reentrant=False"):
        torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True, context_fn=contexts)
