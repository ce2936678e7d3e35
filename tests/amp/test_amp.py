"""autocast and GradScaler against torch; compiled steps equal eager ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp
from tests.references import by_numpy
from tracecomp import functional, nn
from tracecomp.functional.autocast import RULES
from tracecomp.utils.checkpoint import checkpoint

X = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
Y = np.array([0, 2, 1, 3])

# The dtype and value of each program's result are compared.
PROGRAMS: dict[str, Callable[..., Any]] = {
    "matmul": lambda lib, x, y: x @ x,
    "mm": lambda lib, x, y: lib.mm(x, x),
    "method": lambda lib, x, y: x.matmul(x.t()),
    "linear": lambda lib, x, y: lib.nn.functional.linear(x, x, x[0]),
    "conv": lambda lib, x, y: lib.nn.functional.conv1d(x.reshape(1, 4, 4), x[:2].reshape(2, 4, 1)),
    "einsum": lambda lib, x, y: lib.einsum("ij,jk->ik", x, x),
    "addition": lambda lib, x, y: (x @ x) + x,
    "exponential": lambda lib, x, y: (x @ x).exp(),
    "loss": lambda lib, x, y: lib.nn.functional.cross_entropy(x @ x, y),
    "squares": lambda lib, x, y: lib.nn.functional.mse_loss(x @ x, (x @ x) * 0),
    "cat": lambda lib, x, y: lib.cat([x @ x, x]),
    "stack": lambda lib, x, y: lib.stack([x @ x, x @ x]),
    "double": lambda lib, x, y: x.double() @ x.double(),
    "integers": lambda lib, x, y: y * 2,
    "prod": lambda lib, x, y: (x @ x).prod(),
    "mv": lambda lib, x, y: lib.mv(x, x[0]),
}


def run(lib: Any, name: str, dtype: str) -> Any:
    with lib.autocast("cpu", dtype=getattr(lib, dtype)):
        return PROGRAMS[name](lib, lib.from_numpy(X), lib.from_numpy(Y))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_dtypes_and_values_are_those_of_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    found, expected = run(tracecomp, name, dtype), run(torch, name, dtype)
    assert str(found.dtype) == str(expected.dtype)
    tolerance = 0.05 if dtype == "bfloat16" else 0.01
    np.testing.assert_allclose(found.double().numpy(), expected.double().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled(name: str) -> None:
    compiled = tracecomp.compile(lambda: run(tracecomp, name, "float16"))
    for _ in range(2):
        found = compiled()
    expected = run(tracecomp, name, "float16")
    assert found.dtype is expected.dtype
    np.testing.assert_allclose(found.double().numpy(), expected.double().numpy(), rtol=2e-3, atol=2e-3)


def test_a_recording_belongs_to_its_mode() -> None:
    compiled = tracecomp.compile(lambda x: x @ x)
    x = tracecomp.from_numpy(X)
    kinds = []
    for enabled in (False, True, False, True):
        with tracecomp.autocast("cpu", dtype=tracecomp.float16, enabled=enabled):
            kinds.append(compiled(x).dtype.name)
    assert kinds == ["float32", "float16", "float32", "float16"] and compiled.recordings == 2


def test_scopes_and_gradients() -> None:
    w = tracecomp.from_numpy(X.copy()).requires_grad_()
    with tracecomp.autocast("cpu", dtype=tracecomp.float16):
        assert tracecomp.amp.is_autocast_enabled("cpu")
        with tracecomp.autocast("cpu", enabled=False):
            assert (w @ w).dtype is tracecomp.float32
        loss = (w @ w).float().sum()
    loss.backward()
    assert w.grad is not None and w.grad.dtype is tracecomp.float32
    assert not tracecomp.amp.is_autocast_enabled("cpu")
    decorated = tracecomp.autocast("cpu", dtype=tracecomp.float16)(lambda: (w @ w).dtype)
    assert decorated() is tracecomp.float16


def test_every_listed_function_exists() -> None:
    here = {*functional.NAMESPACES["torch"], *dir(nn.functional), *functional.NAMESPACES["linalg"]}
    here |= {*functional.NAMESPACES["fft"]}
    assert set(RULES) - here == {"convolution", "transposed"}  # all convolutions of nn.functional call it


def test_devices_and_errors() -> None:
    with pytest.warns(UserWarning, match="no such device"), tracecomp.autocast("cuda"):
        assert not tracecomp.amp.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        tracecomp.autocast("abacus")
    with pytest.warns(UserWarning, match="only supports"):
        tracecomp.autocast("cpu", dtype=tracecomp.float32)


def scaled_steps(lib: Any, compile: Callable[..., Any]) -> list[Any]:
    w = lib.nn.Parameter(lib.from_numpy(X.copy()))
    optimizer = lib.optim.SGD([w], lr=0.1)
    scaler = lib.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    @compile
    def step(factor: Any) -> Any:
        optimizer.zero_grad()
        loss = (w**2).mean() * factor
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        lib.nn.utils.clip_grad_norm_([w], 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    found = []
    for factor in (1.0, 1.0, float("inf"), 1.0, 1.0, 1.0):
        found.append((float(step(lib.tensor(factor))), scaler.get_scale(), float(w.detach().sum())))
    return found


def test_grad_scaler_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(scaled_steps(tracecomp, lambda f: f), scaled_steps(torch, lambda f: f), rtol=1e-5)


def test_grad_scaler_compiled() -> None:
    np.testing.assert_allclose(
        scaled_steps(tracecomp, tracecomp.compile), by_numpy(scaled_steps)(tracecomp, lambda f: f), rtol=1e-5
    )


def test_grad_scaler_order_of_calls_and_state() -> None:
    w = tracecomp.nn.Parameter(tracecomp.ones(2))
    optimizer = tracecomp.optim.SGD([w], lr=0.1)
    scaler = tracecomp.amp.GradScaler("cpu")
    scaler.scale((w * 2).sum()).backward()
    scaler.unscale_(optimizer)
    assert w.grad is not None and w.grad.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)
    scaler.update(8.0)
    other = tracecomp.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8.0
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})
    with pytest.warns(UserWarning, match="Disabling"):
        off = tracecomp.amp.GradScaler()
    assert not off.is_enabled() and off.scale(w) is w and off.get_scale() == 1.0


@pytest.mark.parametrize("inside", [True, False])
def test_checkpoints_run_again_with_the_autocast_of_the_first_run(inside: bool) -> None:
    """Backward is called where autocast is the other way round."""
    layer = nn.Linear(4, 3)

    def gradients(x: Any, *, saved: bool) -> Any:
        with tracecomp.autocast("cpu", dtype=tracecomp.float16, enabled=inside):
            y = layer(x) if saved else checkpoint(layer, x, use_reentrant=False)
        with tracecomp.autocast("cpu", dtype=tracecomp.float16, enabled=not inside):
            return tracecomp.autograd.grad(y.float().square().sum(), [layer.weight, layer.bias])

    x = tracecomp.from_numpy(X)
    wanted = gradients(x, saved=True)
    compiled = tracecomp.compile(gradients)
    for found in (gradients(x, saved=False), compiled(x, saved=False), compiled(x, saved=False)):
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=2e-6)


@pytest.mark.parametrize("cast_inputs", [None, "float32"])
def test_functions_marked_for_autocast(cast_inputs: str | None) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")

    def run(t: Any) -> Any:
        seen = []

        class Product(t.autograd.Function):
            @staticmethod
            @t.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs and getattr(t, cast_inputs))
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                ctx.save_for_backward(a, b)
                seen.append(str((a @ b).dtype))
                return a @ b

            @staticmethod
            @t.amp.custom_bwd(device_type="cpu")
            def backward(ctx: Any, g: Any) -> Any:
                a, b = ctx.saved_tensors
                seen.append(str((a @ b).dtype))
                return g.to(a.dtype) @ b.T, a.T @ g.to(a.dtype)

        x = t.ones(2, 2, requires_grad=True)
        with t.autocast("cpu", dtype=t.bfloat16):
            y = Product.apply(x, x.bfloat16() if cast_inputs else x)
        y.float().sum().backward()
        return [*seen, str(y.dtype), x.grad.tolist()]

    assert run(tracecomp) == run(torch)


RECURRENT = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")


def recurrent(lib: Any, name: str, compiled: bool) -> tuple[list[str], list[float]]:
    """Types and sums of what a recurrent layer gives under autocast."""
    layer = getattr(lib.nn, name)(4, 5)
    for p in layer.parameters():
        p.data.fill_(0.1)
    x = lib.ones(2, 4) if name.endswith("Cell") else lib.ones(3, 2, 4)
    run = lib.compile(lambda x: layer(x)) if compiled else layer
    found: Any = None
    for _ in range(3):
        with lib.autocast("cpu", lib.bfloat16):
            found = run(x)
    flat = [t for part in (found if isinstance(found, tuple) else (found,)) for t in _tensors(part)]
    sum(t.float().sum() for t in flat).backward()
    assert all(p.grad is not None for p in layer.parameters())
    return [str(t.dtype).removeprefix("torch.") for t in flat], [float(t.float().sum().detach()) for t in flat]


def _tensors(x: Any) -> list[Any]:
    return list(x) if isinstance(x, tuple) else [x]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_under_autocast_are_those_of_torch(name: str, compiled: bool) -> None:
    torch = pytest.importorskip("torch")
    try:
        want, expected = recurrent(torch, name, False)
    except RuntimeError as error:  # as on processors without AVX-512
        pytest.skip(f"PyTorch cannot run this layer in bfloat16 on this processor: {error}")
    dtypes, sums = recurrent(tracecomp, name, compiled)
    assert dtypes == want
    np.testing.assert_allclose(sums, expected, rtol=1e-2)


LISTED = {
    "max_pool3d": lambda t, x: t.nn.functional.max_pool3d(x, 2),
    "adaptive_avg_pool3d": lambda t, x: t.nn.functional.adaptive_avg_pool3d(x, 1),
    "adaptive_max_pool3d": lambda t, x: t.nn.functional.adaptive_max_pool3d(x, 1),
    "rfft": lambda t, x: t.fft.rfft(x).real,
    "fftn": lambda t, x: t.fft.fftn(x).real,
    "polar": lambda t, x: t.polar(x, x).real,
    "stft": lambda t, x: t.stft(x.reshape(-1), 8, return_complex=True).real,
    "prod": lambda t, x: t.prod(x),
}


@pytest.mark.parametrize("name", LISTED)
def test_operators_that_autocast_runs_in_float32(name: str) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for lib in (tracecomp, torch):
        x = lib.ones(1, 2, 4, 4, 4, dtype=lib.bfloat16)
        with lib.autocast("cpu", lib.bfloat16):
            found.append(str(LISTED[name](lib, x).dtype).removeprefix("torch."))
    assert found[0] == found[1] == "float32"


def test_optimizers_that_are_gone_leave_no_stage_behind() -> None:
    """The next one has the identity of the last: its gradients would count as divided by the scale already."""
    scaler = tracecomp.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(20):
        param = nn.Parameter(tracecomp.ones(1))
        optimizer = tracecomp.optim.SGD([param], lr=1.0)
        param.grad = tracecomp.full((1,), 4.0)
        scaler.unscale_(optimizer)
        assert param.grad.item() == 1.0
        del param, optimizer
