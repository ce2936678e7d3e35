"""Calls with operands that are not row-major: served natively, with the bits and strides of the calls before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as tc
from tests.compiled.frequent_calls import CALLS, needs_native_calls
from tests.references import numpy_reference
from tracecomp.compiled import strided_calls
from tracecomp.compiled.trial_runs import copies
from tracecomp.eager_kernels import background
from tracecomp.nn import functional as F

pytestmark = pytest.mark.usefixtures("served_at_once")

LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x[:6, :4].t(),
    "a part": lambda x: x[:4, 2:8],
    "every second column": lambda x: x[:4, ::2],
    "expanded": lambda x: x[:4, :1].expand(4, 6),
    "turned": lambda x: x.reshape(3, 4, 8)[:, :, :6].permute(1, 2, 0),
}
CALLED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "softmax": lambda t, x, y: t.softmax(x, -1),
    "add": lambda t, x, y: t.add(x, y),
    "gelu": lambda t, x, y: t.nn.functional.gelu(x),
    "layer_norm": lambda t, x, y: t.nn.functional.layer_norm(x, (x.shape[-1],)),
    "product": lambda t, x, y: t.matmul(x, y.transpose(0, 1)) if x.ndim == 2 else t.sum(x, 0),
    "std_mean": lambda t, x, y: t.std_mean(x, 0),
    "where": lambda t, x, y: t.where(x > y, x, y),
    "cumsum": lambda t, x, y: t.cumsum(x, 0),
    "twice": lambda t, x, y: t.addcmul(x, x, y),
}


def made(t: Any, layout: str) -> Any:
    return LAYOUTS[layout](t.from_numpy(np.random.default_rng(5).standard_normal((12, 8)).astype(np.float32)))


def told(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [x for v in value for x in told(v)]
    return [(value.detach().numpy().tobytes(), value.shape, value.stride())]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLED)
def test_calls_give_the_bits_and_strides_of_the_first(name: str, layout: str) -> None:
    x = made(tc, layout)
    y = x.flip(0)
    first = told(CALLED[name](tc, x, y))
    for _ in range(3):
        for _ in range(CALLS):
            assert told(CALLED[name](tc, x, y)) == first
        background.finish()
    assert told(CALLED[name](tc, x, y)) == first


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CALLED)
def test_they_are_those_of_pytorch(name: str, layout: str) -> None:
    if (name, layout) == ("layer_norm", "expanded"):
        pytest.skip("equal numbers less their mean are nothing but rounding")
    torch = pytest.importorskip("torch")
    x, reference = made(tc, layout), made(torch, layout)
    y, other = x.flip(0), reference.flip(0)
    for _ in range(CALLS):
        CALLED[name](tc, x, y)
    background.finish()
    found, wanted = CALLED[name](tc, x, y), CALLED[name](torch, reference, other)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=2e-6)


@needs_native_calls
def test_they_are_served_unless_copies_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    x = made(tc, "transposed")
    monkeypatch.setattr(strided_calls, "_seconds", lambda call: 0.0)
    for _ in range(CALLS):
        F.mish(x)
    background.finish()
    with monkeypatch.context() as scope:
        scope.setattr(tc.Tensor, "__tracecomp_apply__", staticmethod(lambda *args: pytest.fail("ran eagerly")))
        F.mish(x)
    times, refused = iter([2.0, 1.0]), len(background.refused())
    monkeypatch.setattr(strided_calls, "_seconds", lambda call: next(times))
    for _ in range(CALLS):
        F.softsign(x)
    background.finish()
    assert any("copying" in why for _, why in background.refused()[refused:])


@needs_native_calls
def test_histories_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call served without gradients is not served when it needs them, and a call with gradients gives the same."""
    x = made(tc, "transposed")
    found, gradients = [], []
    for grad in (False, True, False, True):
        leaf = made(tc, "transposed").detach().requires_grad_() if grad else x
        for _ in range(CALLS):
            result = F.silu(leaf)
        background.finish()
        result = F.silu(leaf)
        assert result.requires_grad is grad
        found.append(told(result))
        if grad:
            (result * made(tc, "transposed")).sum().backward()
            gradients.append(told(leaf.grad))
    with numpy_reference():
        leaf = made(tc, "transposed").detach().requires_grad_()
        (F.silu(leaf) * made(tc, "transposed")).sum().backward()
    assert found[0] == found[1] == found[2] == found[3] and gradients[0] == gradients[1]
    np.testing.assert_allclose(np.frombuffer(gradients[0][0][0], np.float32), leaf.grad.numpy().ravel(), rtol=1e-5)


@pytest.mark.parametrize("step", [(1, -1), (-1, 1), (-1, -2), (-2, 2)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_what_is_tried_lies_as_what_was_given(step: tuple[int, int], turned: bool) -> None:
    """Otherwise the trial runs one kind of call and another is served: endlessly, if that one leads back here."""
    array = np.arange(12.0).reshape(3, 4)[:: step[0], :: step[1]]
    array = array.T if turned else array
    (copied,) = copies([tc.Tensor._wrap(array)])
    assert copied._data.strides == array.strides and np.array_equal(copied._data, array)
    assert not np.may_share_memory(copied._data, array)
