"""Functions that are called often: machine code takes over, and nothing but time changes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tests.compiled.frequent_calls import CALLS, bits, data, heated, needs_native_calls, served
from tests.references import by_numpy
from tracecomp.base import config
from tracecomp.eager.overrides import TorchFunctionMode
from tracecomp.eager_kernels import background
from tracecomp.functional.warm import EVERY, Warm
from tracecomp.nn import functional as F
from tracecomp.nn.hooks import register_module_forward_hook
from tracecomp.runtime.object_layout import objects_are_known

Tensor = torch.Tensor
pytestmark = pytest.mark.usefixtures("served_at_once")

CASES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, y: torch.add(x, y),
    "add by a number": lambda x, y: x + 2.5,
    "gelu": lambda x, y: F.gelu(x),
    "softmax": lambda x, y: F.softmax(x, dim=-1),
    "log_softmax": lambda x, y: torch.log_softmax(x, 0),
    "layer_norm": lambda x, y: F.layer_norm(x, (9,)),
    "std": lambda x, y: torch.std(x),
    "var of columns": lambda x, y: torch.var(x, dim=0, keepdim=True),
    "sum": lambda x, y: torch.sum(x, 1),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y),
    "where": lambda x, y: torch.where(x > y, x, y),
    "logsumexp": lambda x, y: torch.logsumexp(x, 1),
    "norm": lambda x, y: torch.linalg.norm(x),
    "silu": lambda x, y: F.silu(x),
    "one operand twice": lambda x, y: torch.addcmul(x, x, y),
    "the same thrice": lambda x, y: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "its square": lambda x, y: torch.matmul(x[:, :6], x[:, :6]),
    "several results": lambda x, y: torch.std_mean(x, 1),
    "cumsum": lambda x, y: torch.cumsum(x, 1),
    "clamp": lambda x, y: torch.clamp(x, -0.5, 0.5),
    "cross_entropy": lambda x, y: F.cross_entropy(x, torch.arange(6)),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_machine_code_gives_the_bits_of_the_first_call(name: str) -> None:
    x, y = data(6, 9), data(6, 9).flip(0).contiguous()
    first, *rest = heated(lambda: CASES[name](x, y))
    assert all(bits(again) == bits(first) for again in rest)
    torch.testing.assert_close(rest[-1], by_numpy(CASES[name])(x, y))


@pytest.mark.parametrize("name", CASES)
def test_compiled_functions_give_them_too(name: str) -> None:
    x, y = data(6, 9), data(6, 9).flip(0).contiguous()
    compiled = torch.compile(CASES[name])
    assert bits(CASES[name](x, y)) == bits(compiled(x, y)) == bits(compiled(x, y)) == bits(compiled(x, y))


@needs_native_calls
def test_calls_are_served_without_their_operators_being_run(monkeypatch: pytest.MonkeyPatch) -> None:
    x = data(5, 4)
    heated(lambda: torch.logit(x, 0.25))
    assert served(torch.logit)
    monkeypatch.setattr(Tensor, "__tracecomp_apply__", staticmethod(lambda *args: pytest.fail("ran eagerly")))
    torch.logit(x, 0.25)


def test_other_shapes_types_and_layouts_are_other_calls() -> None:
    x = data(6, 9)
    heated(lambda: F.softmax(x, 1))
    for other in (data(9, 6), data(6, 9).double(), x.t(), x[1:], x[:, ::2], data(6, 9, 2), x.half()):
        want = torch.exp(other - other.amax(1, keepdim=True))
        want = want / want.sum(1, keepdim=True)
        assert torch.allclose(F.softmax(other, 1), want, atol=1e-3)
        assert F.softmax(other, 1).dtype is other.dtype and F.softmax(other, 1).shape == other.shape


SIGNED: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "product": lambda x, zero: x * zero,
    "copysign": lambda x, zero: torch.copysign(x, zero),
    "masked_fill": lambda x, zero: x.masked_fill(x == x, zero),
    "threshold": lambda x, zero: F.threshold(x, 5.0, zero),
    "where": lambda x, zero: torch.where(x < 0, x, zero),
}
"""Functions whose results have the sign of a zero among their other arguments."""


@pytest.mark.parametrize("lies", ["row-major", "turned", "with gradient history"])
@pytest.mark.parametrize("name", SIGNED)
def test_zeros_of_both_signs_stay_apart(name: str, lies: str) -> None:
    x = torch.ones(3, 2).T if lies == "turned" else torch.ones(3, 2)
    x.requires_grad_(lies == "with gradient history")
    for zero in (-0.0, 0.0, -0.0, 0.0):
        for found in heated(partial(SIGNED[name], x, zero)):
            signs = np.signbit(found.detach().numpy())
            assert (signs == np.signbit(zero)).all()


@needs_native_calls
def test_a_zero_among_the_arguments_keeps_no_call_from_being_served() -> None:
    x = data(5, 7)
    heated(lambda: F.threshold(x, 0.0, 0.25))
    assert served(F.threshold)


def test_numbers_of_other_types_stay_apart() -> None:
    x = torch.arange(1, 4)
    assert all(r.dtype is torch.int64 for r in heated(lambda: x * 2))
    assert all(r.dtype is torch.float32 for r in heated(lambda: x * 2.0))
    assert all(r.dtype is torch.int64 for r in heated(lambda: x * True))


def test_random_numbers_are_those_of_the_program_alone() -> None:
    x = data(4, 5)

    def draws() -> list[bytes]:
        torch.manual_seed(3)
        found = [bits(F.dropout(x, 0.5)) for _ in range(CALLS)]
        background.finish()
        return [b for one in found for b in one]

    assert draws() == draws()


def test_gradients_and_their_gradients_keep_their_bits() -> None:
    def run() -> list[Any]:
        x, w = data(4, 6).requires_grad_(), torch.linspace(0.5, 2, 6).requires_grad_()
        y = F.layer_norm(x, (6,), w)
        (gx, gw) = torch.autograd.grad((y * y).sum() + F.silu(y).sum(), (x, w), create_graph=True)
        (second,) = torch.autograd.grad((gx * gx).sum() + gw.sum(), x)
        return [y, gx, gw, second]

    first, *rest = map(bits, heated(run))
    assert all(again == first for again in rest)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["permuted", "expanded", "sliced", "reversed"])
def test_gradients_that_lie_in_another_order_are_added_in_it(layout: str) -> None:
    x = data(40, 70).requires_grad_()
    weights = data(70, 40)

    def run() -> list[Any]:
        w, b = data(70).requires_grad_(), torch.zeros(70, requires_grad=True)
        y = F.layer_norm(x, (70,), w, b)
        if layout == "permuted":
            z = (y.t() * weights).sum()
        elif layout == "expanded":
            z = y.mean(0).sum()
        else:
            z = (y[:, ::2] * 2).sum() if layout == "sliced" else (y.flip(1) * weights.t()).sum()
        return list(torch.autograd.grad(z, (x, w, b)))

    first, *rest = map(bits, heated(run))
    assert all(again == first for again in rest)


def test_hooks_and_retained_gradients_follow_a_history_that_unfolds() -> None:
    x = data(3, 4).requires_grad_()
    heated(lambda: torch.tanh(x))
    y = torch.tanh(x)
    met: list[list[bytes]] = []
    handle = y.register_hook(lambda g: met.append(bits(g)))
    y.retain_grad()
    (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    g.sum().backward(retain_graph=True)
    assert len(met) == 2 and y.grad is not None
    handle.remove()
    torch.autograd.grad((y * y).sum(), x, retain_graph=True)
    assert len(met) == 2


def test_histories_keep_their_rules() -> None:
    x = data(3, 4).requires_grad_()
    y = heated(lambda: torch.sigmoid(x * 1.0))[-1]
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()
    a = data(3, 4)
    heated(lambda: F.silu(a * x))
    b = (x * 1.0) * a
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.sum().backward()
    names = [t.grad_fn.name() for t in heated(lambda: F.softmax(x, 1))]
    assert len(set(names)) == 1


def test_what_is_written_without_a_version_is_seen_by_every_gradient_alike() -> None:
    """Eager nodes read results that were written through ``.data``; so do they however often they are made."""
    weights = torch.arange(6.0).reshape(2, 3)

    def gradient() -> Tensor:
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        y = torch.tanh(x)
        y.data.mul_(0.5)
        return torch.autograd.grad((y * weights).sum(), x)[0]

    first = gradient()
    assert torch.allclose(first, weights * (1 - (torch.linspace(-1, 1, 6).reshape(2, 3).tanh() / 2) ** 2))
    assert {*bits(heated(gradient))} == {*bits(first)}


def test_modes_are_seen() -> None:
    x = data(3, 4)
    heated(lambda: F.silu(x))
    with torch.inference_mode():
        assert F.silu(x).is_inference()
    with torch.no_grad():
        leaf = data(3, 4).requires_grad_()
        assert not any(r.requires_grad for r in heated(lambda: F.silu(leaf)))
    assert F.silu(leaf).requires_grad
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Mode():
        F.silu(x)
    assert "silu" in seen


def test_a_recording_sees_the_operators() -> None:
    x = data(3, 4)
    heated(lambda: F.softmax(x, 1))
    graph = torch.trace(lambda t: F.softmax(t, 1), x)
    assert "exp" in {n.op.name for n in graph.nodes}


def test_a_profile_sees_the_operators() -> None:
    x = data(3, 4)
    heated(lambda: F.softmax(x, 1))
    with torch.autograd.profiler.profile() as profile:
        F.softmax(x, 1)
    assert any("exp" in e.key for e in profile.key_averages())


def test_results_are_new_memory_as_long_as_somebody_holds_them() -> None:
    x = data(3, 4)
    held = [F.silu(x)]
    heated(lambda: F.silu(x))
    held += [F.silu(x) for _ in range(20)]
    assert len({t.data_ptr() for t in held}) == len(held)
    held[3].fill_(7)
    assert bits(held[4]) == bits(held[0])


def test_wrong_arguments_have_their_errors() -> None:
    x = data(3, 4)
    heated(lambda: torch.add(x, x))
    with pytest.raises(RuntimeError, match="must match"):
        torch.add(x, data(3, 5))
    with pytest.raises(TypeError):
        torch.add(x, "three")  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        F.softmax(x, 2)


def test_threads_share_machine_code() -> None:
    x = data(64, 33)
    want = bits(F.softmax(x, 1))
    wrong: list[int] = []

    def work() -> None:
        for n in range(10 * EVERY):
            if bits(F.softmax(x, 1)) != want:
                wrong.append(n)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_a_forked_child_goes_on() -> None:
    x = data(3, 4)
    want = bits(heated(lambda: F.silu(x))[0])
    child = os.fork()
    if not child:
        y = data(5, 4)
        good = bits(F.silu(x)) == want and len({b for _ in range(CALLS) for b in bits(F.gelu(y))}) == 1
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_numpy_alone_makes_no_machine_code() -> None:
    x = data(2, 3)
    with config.override(eager="numpy"):
        heated(lambda: torch.erfc(x))
    assert not served(torch.erfc)


def test_a_program_may_end_while_machine_code_is_made() -> None:
    code = "import tracecomp as t; x = t.randn(4, 5)\nfor _ in range(200): t.softmax(x, 1); t.std(x); t.logsumexp(x, 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_one_operand_in_two_places_is_told_from_two_that_are_alike(order: tuple[int, int]) -> None:
    x, y = torch.eye(5) * 2, torch.eye(5) * 3
    pairs = [(x, x), (x, y)]
    for n in order:
        heated(lambda: torch.hypot(*pairs[n]))  # noqa: B023 - called within its round
        for a, b in [*pairs, (y, y), (y, x), (x, x[:])]:
            np.testing.assert_array_equal(torch.hypot(a, b).numpy(), np.hypot(a.numpy(), b.numpy()))


def test_calls_that_find_too_much_waiting_are_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    x, b = data(6, 11), data(11)

    def call() -> Any:
        return torch.nn.functional.layer_norm(x, (11,), b)

    background.finish()
    monkeypatch.setattr(background, "MOST_WAITING", 0)
    heated(call)
    monkeypatch.undo()
    told: list[str] = []
    begin = background.begin
    monkeypatch.setattr(background, "begin", lambda name, *work: told.append(name) or begin(name, *work))
    heated(call)
    assert told.count("layer_norm") == 1


@pytest.mark.parametrize("name", ["gelu", "several results", "clamp", "one operand twice"])
def test_calls_in_inference_mode_make_inference_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(4, 9), data(4, 9).flip(0).contiguous()
    with torch.no_grad():
        first, *_ = heated(lambda: CASES[name](x, y))
    with torch.inference_mode():
        found = heated(lambda: CASES[name](x, y))[1:]
        with monkeypatch.context() as patch:
            if objects_are_known():
                patch.setattr(Warm, "__call__", lambda *given: pytest.fail("the call is not served"))
            found.append(CASES[name](x, y))
    results = [t for one in found for t in (one if isinstance(one, tuple) else (one,))]
    assert all(bits(one) == bits(first) for one in found) and all(t.is_inference() for t in results)
    outside = CASES[name](x, y)
    assert not any(t.is_inference() for t in (outside if isinstance(outside, tuple) else (outside,)))
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        results[-1] * data(4, 9).sum().requires_grad_()


def test_writes_in_inference_mode_stay_eager() -> None:
    x = torch.zeros(3)
    with torch.inference_mode():
        for _ in range(CALLS):
            x.add_(1.0)
        background.finish()
        x.add_(1.0)
    assert x.tolist() == [CALLS + 1.0] * 3 and not x.is_inference()


@needs_native_calls
def test_changes_of_modules_leave_functions_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute that was set on any module, as by ``eval()``, once ended the machine code of all functions."""
    x = data(5, 13)
    heated(lambda: torch.sinc(x))
    model = torch.nn.Linear(3, 3)
    model.eval().note = "anything"
    eager: list[object] = []
    monkeypatch.setattr(Warm, "__call__", lambda warm, *args: eager.append(warm) or warm.run(*args))
    with model.register_forward_hook(lambda *given: None):
        torch.sinc(x)
    assert not eager
    with register_module_forward_hook(lambda *given: None):
        torch.sinc(x)
    assert eager  # the hook might concern modules of the call
    del eager[:]
    torch.sinc(x)
    assert not eager


def test_shapes_beyond_those_tried_in_turn_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop over 40 lengths: in time, machine code serves all, each with the first call's bits."""
    xs = [data(n, 7) for n in range(1, 41)]
    first = [bits(F.silu(x)) for x in xs]

    def unserved() -> int:
        calls: list[object] = []
        with monkeypatch.context() as patch:
            patch.setattr(Warm, "__call__", lambda warm, *args: calls.append(warm) or warm.run(*args))
            assert [bits(F.silu(x)) for x in xs] == first
        return len(calls)

    wanted = 0 if objects_are_known() else len(xs)
    for _ in range(100):
        for _ in range(20):
            for x in xs:
                F.silu(x)
        background.finish()
        if (left := unserved()) == wanted:
            break
    assert left == wanted
