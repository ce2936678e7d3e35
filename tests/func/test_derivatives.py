"""grad, vjp, jvp, Jacobians and Hessians against torch.func; eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy

A = np.random.default_rng(1).standard_normal((3, 4))
V = np.random.default_rng(2).standard_normal(4)


def close(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for k in expected:
            close(found[k], expected[k])
    elif isinstance(expected, tuple | list):
        assert type(found) is type(expected) and len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            close(a, b)
    else:
        assert tuple(found.shape) == tuple(expected.shape) and found.requires_grad == expected.requires_grad
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-9)


def f(lib: Any) -> Callable[..., Any]:
    return lambda a, v: (lib.tanh(a @ v) ** 3).sum()


def g(lib: Any) -> Callable[..., Any]:
    return lambda a, v: {"y": lib.sin(a * v).sum(1), "z": v**2}


# Each takes a library, its func namespace, a matrix and a vector.
PROGRAMS: dict[str, Callable[..., Any]] = {
    "grad": lambda lib, F, a, v: F.grad(f(lib))(a, v),
    "grad of both": lambda lib, F, a, v: F.grad(f(lib), argnums=(0, 1))(a, v),
    "grad and value": lambda lib, F, a, v: F.grad_and_value(f(lib), argnums=1)(a, v),
    "aux": lambda lib, F, a, v: F.grad(lambda v: ((v**2).sum(), {"twice": v * 2}), has_aux=True)(v),
    "value and aux": lambda lib, F, a, v: F.grad_and_value(lambda v: ((v**2).sum(), v), has_aux=True)(v),
    "of a dict": lambda lib, F, a, v: F.grad(lambda d: (d["a"] @ d["v"]).sum())({"a": a, "v": v}),
    "unused": lambda lib, F, a, v: F.grad(lambda a, v: v.sum())(a, v),
    "second": lambda lib, F, a, v: F.grad(lambda v: F.grad(f(lib), 1)(a, v).sum())(v),
    "vjp": lambda lib, F, a, v: (lambda o, pull: (o, pull({"y": o["y"], "z": o["z"]})))(*F.vjp(g(lib), a, v)),
    "jvp": lambda lib, F, a, v: F.jvp(g(lib), (a, v), (lib.ones_like(a), v)),
    "jvp of constants": lambda lib, F, a, v: F.jvp(lambda v: v * 0 + 1, (v,), (v,)),
    "jacrev": lambda lib, F, a, v: F.jacrev(g(lib))(a, v),
    "jacrev of both": lambda lib, F, a, v: F.jacrev(lambda a, v: a @ v, argnums=(0, 1))(a, v),
    "jacrev in chunks": lambda lib, F, a, v: F.jacrev(lambda v: a @ v, chunk_size=2)(v),
    "jacfwd": lambda lib, F, a, v: F.jacfwd(lambda v: lib.sin(a @ v))(v),
    "jacfwd of both": lambda lib, F, a, v: F.jacfwd(lambda a, v: lib.sin(a @ v), argnums=(0, 1))(a, v),
    "hessian": lambda lib, F, a, v: F.hessian(f(lib), argnums=1)(a, v),
    "hessian of both": lambda lib, F, a, v: F.hessian(f(lib), argnums=(0, 1))(a, v),
    "mapped": lambda lib, F, a, v: F.vmap(F.grad(lambda row, v: (row * v).sum() ** 2), (0, None))(a, v),
    "mapped jacobian": lambda lib, F, a, v: F.vmap(F.jacrev(lambda row: lib.sin(row) * row.sum()))(a),
    "linearize": lambda lib, F, a, v: F.linearize(lambda v: lib.sin(a @ v), v)[1](v),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    expected = PROGRAMS[name](torch, torch.func, torch.tensor(A), torch.tensor(V))
    close(PROGRAMS[name](tracecomp, tracecomp.func, tracecomp.tensor(A), tracecomp.tensor(V)), expected)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled(name: str) -> None:
    compiled = tracecomp.compile(lambda a, v: PROGRAMS[name](tracecomp, tracecomp.func, a, v))
    a, v = tracecomp.tensor(A), tracecomp.tensor(V)
    for _ in range(2):
        found = compiled(a, v)
    close(found, PROGRAMS[name](tracecomp, tracecomp.func, a, v))


def test_outer_gradients_pass_through() -> None:
    w = tracecomp.tensor(V, requires_grad=True)
    v = tracecomp.tensor(V)
    inner = tracecomp.func.grad(lambda v: (w * v**2).sum())(v)
    (found,) = tracecomp.autograd.grad(inner.sum(), w)
    close(found, 2 * v)
    x = tracecomp.tensor(V, requires_grad=True)
    (found,) = tracecomp.autograd.grad(tracecomp.func.grad(lambda v: (v**3).sum())(x).sum(), x)
    close(found, 6 * v)


def test_descent_keeps_no_history() -> None:
    w = tracecomp.tensor(V)
    for _ in range(5):
        w = w - 0.1 * tracecomp.func.grad(lambda w: (w**2).sum())(w)
        assert not w.requires_grad
    close(w, tracecomp.tensor(V) * 0.8**5)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda F, v: F.grad(lambda v: v)(v), "scalar Tensor"),
        (lambda F, v: F.grad(lambda v: 3)(v), "return a tensor"),
        (lambda F, v: F.grad(lambda v: v.sum(), argnums=2)(v), "Got argnum=2"),
        (lambda F, v: F.jvp(lambda v: v, v, v), "tuple"),
        (lambda F, v: F.jvp(lambda v: v, (v,), (v, v)), "structure"),
    ],
)
def test_errors(call: Any, match: str) -> None:
    with pytest.raises(RuntimeError, match=match):
        call(tracecomp.func, tracecomp.tensor(V))


def test_functional_call() -> None:
    nn, F = tracecomp.nn, tracecomp.func
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    x = tracecomp.tensor(np.random.default_rng(0).standard_normal((5, 4)).astype("float32"))
    zeros = {n: tracecomp.zeros_like(p) for n, p in model.named_parameters()}
    assert float(F.functional_call(model, zeros, (x,)).abs().sum()) == 0 and float(model(x).abs().sum()) > 0
    params = dict(model.named_parameters())

    def loss(params: Any, x: Any) -> Any:
        return F.functional_call(model, params, x).square().mean()

    found = F.grad(loss)(params, x)
    expected = tracecomp.autograd.grad(model(x).square().mean(), list(params.values()))
    for a, b in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="missing keys"):
        F.functional_call(model, {}, (x,), strict=True)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        F.functional_call(model, (params, params), (x,))
    assert dict(model.named_parameters())["0.weight"] is params["0.weight"]


def test_tied_weights_are_replaced_together() -> None:
    nn, F = tracecomp.nn, tracecomp.func
    one = nn.Linear(3, 3, bias=False)
    model = nn.Sequential(one, nn.Linear(3, 3, bias=False))
    model[1].weight = one.weight
    eye = tracecomp.eye(3)
    x = tracecomp.ones(2, 3)
    close(F.functional_call(model, {"0.weight": 2 * eye}, (x,)), 4 * x)


def test_per_sample_gradients() -> None:
    nn, F = tracecomp.nn, tracecomp.func
    model = nn.Linear(4, 3)
    params = {n: p.detach() for n, p in model.named_parameters()}
    x, y = tracecomp.randn(6, 4), tracecomp.randint(0, 3, (6,))

    def loss(params: Any, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(F.functional_call(model, params, x.unsqueeze(0)), y.unsqueeze(0))

    each = F.vmap(F.grad(loss), in_dims=(None, 0, 0))
    found = tracecomp.compile(each)
    for _ in range(2):
        grads = found(params, x, y)
    for i in range(6):
        expected = by_numpy(F.grad(loss))(params, x[i], y[i])
        for name in params:
            np.testing.assert_allclose(grads[name][i].numpy(), expected[name].numpy(), rtol=1e-4, atol=1e-6)


def test_tangents_of_a_linear_map_keep_their_own_history() -> None:
    """However often it is applied: a tangent once had the identity of a leaf of an earlier application."""

    def derivatives(library: Any) -> list[Any]:
        x = library.tensor([0.5, 1.0, -2.0])
        _, push = library.func.linearize(lambda v: v.sin() * v.cos(), x)
        found = []
        for n in range(12):
            t = library.full((3,), n + 1.0, requires_grad=True)
            found.append(library.autograd.grad(push(t).sum(), t, retain_graph=True)[0].numpy())
            del t
        return found

    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(derivatives(tracecomp), derivatives(torch), rtol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "compiled"])
def test_state_that_keeps_its_history_gives_gradients_none(backend: str) -> None:
    """A result of the same call has a history that leads to tensors of an earlier transform; the loss has not."""
    kept = [tracecomp.ones(3)]

    def step(x: Any) -> Any:
        kept[0] = kept[0] + x
        return (x * x).sum()

    run = tracecomp.compile(step) if backend == "compiled" else step
    for i in range(6):
        x = tracecomp.full((3,), float(i))
        g = tracecomp.func.grad(run)(x)
        assert not g.requires_grad and g.equal(2 * x)
        assert kept[0].requires_grad
