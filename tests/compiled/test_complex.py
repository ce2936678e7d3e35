"""Compiled programs with complex tensors and Fourier transforms, against eager, and against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy, numpy_reference
from tracecomp.passes.graph.complex_to_real import split_complex
from tracecomp.passes.steps import Log

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:A window was not provided")
Program = Callable[..., Any]


def drawn(*shape: int, kind: str = "float32") -> Any:
    rng = np.random.default_rng(len(shape) + sum(shape))
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if kind.startswith("c") else x).astype(kind)


def mixing(T: Any, x: Any) -> Any:
    """FNet's token mixing."""
    return T.fft.fft(T.fft.fft(x, dim=-1), dim=-2).real


def global_filter(T: Any, x: Any, weight: Any) -> Any:
    """GFNet's layer."""
    spectrum = T.fft.rfft2(x, dim=(1, 2), norm="ortho") * T.view_as_complex(weight)
    return T.fft.irfft2(spectrum, s=tuple(x.shape[1:3]), dim=(1, 2), norm="ortho")


def rotary(T: Any, q: Any, k: Any, angles: Any) -> Any:
    """Rotary position embedding as in llama."""
    turns = T.polar(T.ones_like(angles), angles).view(1, q.shape[1], 1, q.shape[-1] // 2)
    turned = [T.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turns for x in (q, k)]
    return tuple(T.view_as_real(x).flatten(3) for x in turned)


def spectrogram_loss(T: Any, x: Any, y: Any, window: Any) -> Any:
    a, b = (T.stft(t, 16, 4, window=window, return_complex=True).abs() for t in (x, y))
    return T.norm(a - b) / T.norm(b) + (T.log(a + 1e-2) - T.log(b + 1e-2)).abs().mean()


def algebra(T: Any, x: Any, y: Any) -> Any:
    z = (x * y.conj() + 2j) / (y + 3) - x.exp()
    return T.view_as_real(z), T.cat([z.real, z.imag], -1), (z @ y.mH).abs(), z[..., 1:].sum(-1), T.where(x == y, x, z)


PROGRAMS: list[tuple[Program, tuple[Any, ...]]] = [
    (mixing, (drawn(2, 8, 6),)),
    (global_filter, (drawn(2, 8, 8, 3), drawn(8, 5, 3, 2))),
    (rotary, (drawn(2, 5, 3, 8), drawn(2, 5, 3, 8), drawn(5, 4))),
    (spectrogram_loss, (drawn(2, 64), drawn(2, 64) * 2, np.hanning(18)[1:-1].astype(np.float32))),
    (algebra, (drawn(4, 3, kind="complex64"), drawn(4, 3, kind="complex64"))),
]


def step_of(program: Program, library: Any) -> Program:
    """Results, and gradients of the sum of their squares."""

    def step(*args: Any) -> Any:
        found = program(library, *args)
        found = found if isinstance(found, tuple) else (found,)
        loss = sum((x.abs() ** 2).sum() for x in found)
        return found, library.autograd.grad(loss, args)

    return step


def run(step: Program, library: Any, arrays: tuple[Any, ...]) -> list[Any]:
    found, grads = step(*(library.tensor(a, requires_grad=True) for a in arrays))
    return [t.detach().resolve_conj().numpy() for t in (*found, *grads)]


@pytest.mark.parametrize(("program", "arrays"), PROGRAMS, ids=lambda x: getattr(x, "__name__", ""))
def test_values_and_gradients(program: Program, arrays: tuple[Any, ...]) -> None:
    want = run(step_of(program, torch), torch, arrays)
    eager = run(step_of(program, tracecomp), tracecomp, arrays)
    compiled = tracecomp.compile(step_of(program, tracecomp))
    natives = [run(compiled, tracecomp, arrays) for _ in range(3)]
    for found in (eager, *natives):
        for a, b in zip(found, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * float(np.max(np.abs(b))) + 1e-5)


class Filter(tracecomp.nn.Module):
    """One block of GFNet."""

    def __init__(self) -> None:
        super().__init__()
        tracecomp.manual_seed(0)
        self.weight = tracecomp.nn.Parameter(tracecomp.randn(8, 5, 4, 2) * 0.1)
        self.bias = tracecomp.nn.Parameter(tracecomp.zeros(4, dtype=tracecomp.cfloat))
        self.out = tracecomp.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.out(global_filter(tracecomp, x, self.weight) + (self.bias * 1j).real)


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_training_step_is_one_graph(optimizer: str) -> None:
    results = []
    for compiled in (False, True):
        model = Filter()
        rule = getattr(tracecomp.optim, optimizer)(model.parameters(), lr=0.01)

        def step(x: Any, y: Any, model: Any = model, rule: Any = rule) -> Any:
            rule.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            rule.step()
            return loss

        run_step = tracecomp.compile(step) if compiled else step
        x, y = tracecomp.tensor(drawn(2, 8, 8, 4)), tracecomp.tensor(drawn(2, 8, 8, 4) * 0.5)
        losses = [(run_step if compiled else by_numpy(run_step))(x, y).item() for _ in range(5)]
        results.append((losses, [p.detach().numpy().copy() for p in model.parameters()]))
    (eager, parameters), (native, others) = results
    assert eager[-1] < eager[0]
    np.testing.assert_allclose(native, eager, rtol=1e-5)
    for a, b in zip(parameters, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def same_compiled(fn: Program, *args: Any) -> None:
    compiled = tracecomp.compile(fn)
    want = by_numpy(fn)(*args)
    for _ in range(3):
        got = compiled(*args)
    for a, b in zip(want, got, strict=True):
        assert a.dtype is b.dtype
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-5)


X = tracecomp.tensor(drawn(5, 3, kind="complex64"))


def test_bodies_carry_complex_values() -> None:
    start = tracecomp.ones(3, dtype=tracecomp.cfloat)
    same_compiled(lambda xs: tracecomp.scan(lambda c, x: (c * x, c + x), start, xs), X)
    for scale in (1.0, 1e-3):
        chosen = lambda x: [tracecomp.cond(x.abs().sum() > 1, lambda t: t * 1j, lambda t: t - 1j, (x,))]  # noqa: E731
        same_compiled(chosen, X * scale)


def test_views_of_arguments_and_transposed_ones() -> None:
    def program(x: Any, y: Any) -> Any:
        return x.t(), x[None], x.real, tracecomp.view_as_real(x), y * (1 + 2j), x.conj(), tracecomp.fft.rfft(y), x.sum()

    same_compiled(program, X, X.abs())
    same_compiled(program, X.t(), X.t().abs())


def test_complex_state_is_updated_in_place() -> None:
    factor = tracecomp.tensor([1j, 2, 3])
    states = []
    for compiled in (False, True):
        state = tracecomp.zeros(3, dtype=tracecomp.cfloat)

        def step(x: Any, state: Any = state) -> Any:
            state.add_(x * factor)
            state.real.mul_(0.5)
            return state.abs()

        run_step = tracecomp.compile(step) if compiled else step
        for row in X:
            run_step(row)
        states.append(state.numpy().copy())
    np.testing.assert_allclose(states[1], states[0], rtol=1e-5)


def test_python_may_look_at_complex_values() -> None:
    compiled = tracecomp.compile(lambda x: x * 2 if (x.sum().item() == 0) else x * 1j)
    for x in (X, X - X, X, X):
        np.testing.assert_allclose(compiled(x).numpy(), (x * 1j).numpy())


def test_gradient_of_a_compiled_complex_result() -> None:
    compiled = tracecomp.compile(lambda x: tracecomp.fft.ifft(x) * x)
    for _ in range(3):
        x = X.detach().clone().requires_grad_()
        compiled(x).abs().sum().backward()
        other = X.detach().clone().requires_grad_()
        with numpy_reference():
            (tracecomp.fft.ifft(other) * other).abs().sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), other.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_no_code_sees_complex_types() -> None:
    graph = tracecomp.trace(lambda x: mixing(tracecomp, x * 2) + 1, tracecomp.ones(4, 4))
    split = split_complex(graph, Log())
    nodes = list(split.live_nodes())
    assert [n.op.name for n in nodes].count("dft") == 2
    assert not any(v.dtype.is_complex for n in nodes for v in (*n.inputs, *n.outputs))
    real = tracecomp.trace(lambda x: x * 2, tracecomp.ones(4))
    assert split_complex(real, Log()) is real


def test_comparison_of_stages() -> None:
    weight = tracecomp.tensor(drawn(4, 4, 2), requires_grad=True)
    result = tracecomp.compare(
        lambda x: tracecomp.fft.irfft2(tracecomp.fft.rfft2(x) * tracecomp.view_as_complex(weight), s=(4, 6)),
        tracecomp.tensor(drawn(4, 6)),
    )
    assert result.ok
