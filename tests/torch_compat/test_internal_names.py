"""Names with an underscore, and modules of torch's inside, that libraries use: they do what they do in PyTorch."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as tc

torch = pytest.importorskip("torch")


def both(make: Any) -> tuple[Any, Any]:
    """Return the results of ``make(torch)`` with tracecomp and with PyTorch."""
    return make(tc), make(torch)


def equal(make: Any) -> None:
    ours, theirs = both(make)
    for a, b in zip(ours, theirs, strict=True):
        assert str(a.dtype) == str(b.dtype)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_steps_of_public_functions() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    equal(lambda t: [t._shape_as_tensor(t.tensor(x))])
    equal(lambda t: [t._softmax_backward_data(t.tensor(x) + 1, t.tensor(x).softmax(1), 1, t.float32)])
    equal(lambda t: [t._log_softmax_backward_data(t.tensor(x) + 1, t.tensor(x).log_softmax(1), 1, t.float32)])
    rows = [0, 0, 2, 3, 3]
    equal(lambda t: [t._convert_indices_from_coo_to_csr(t.tensor(rows), 5, out_int32=small) for small in (True, False)])
    crows, columns = [0, 2, 2, 3, 5, 5], [1, 2, 0, 3, 4]
    equal(
        lambda t: [
            t._convert_indices_from_csr_to_coo(t.tensor(crows), t.tensor(columns), transpose=swap)
            for swap in (True, False)
        ]
    )


def test_files_are_mapped_into_memory(tmp_path: Path) -> None:
    for t in (tc, torch):
        path = str(tmp_path / f"{t.__name__}.bin")
        t.from_file(path, True, 4)[:] = t.arange(4.0)
        private = t.from_file(path, False, 3)
        private[0] = 9
        assert t.from_file(path, size=4).tolist() == [0, 1, 2, 3]
        with pytest.raises(RuntimeError):
            t.from_file(path, False, 500)
        with pytest.raises(TypeError):
            t.from_file(3, False, 1)


def test_prints_with_other_contents_and_options() -> None:
    for ours, theirs in [both(lambda t: importlib.import_module(f"{t.__name__}._tensor_str"))]:
        for make in (lambda t: t.arange(30.0), lambda t: t.zeros(0), lambda t: t.ones(2, 3, requires_grad=True)):
            a, b = both(make)
            assert ours._tensor_str(a, 7) == theirs._tensor_str(b, 7)
            assert a.__repr__(tensor_contents="[...]") == b.__repr__(tensor_contents="[...]")
            assert ours._str_intern(a, tensor_contents="?") == theirs._str_intern(b, tensor_contents="?")
        parts = ["size=(2, 3)", "x" * 70], 4, True
        assert ours._add_suffixes("t([1]", *parts) == theirs._add_suffixes("t([1]", *parts)
        for module, t in ((ours, tc), (theirs, torch)):
            with module.printoptions(precision=2):
                assert str(t.tensor([1.2345])) == "tensor([1.23])"
            assert str(t.tensor([1.2345])) == "tensor([1.2345])"


def test_questions_and_checks() -> None:
    for t in (tc, torch):
        for mode, number in (("warn", 1), (2, 2), ("default", 0)):
            t.set_deterministic_debug_mode(mode)
            assert t.get_deterministic_debug_mode() == number
        assert t.are_deterministic_algorithms_enabled() is False
        for bad, error in (("no", RuntimeError), (3, RuntimeError), (1.0, TypeError)):
            with pytest.raises(error):
                t.set_deterministic_debug_mode(bad)
        assert t.get_device_module() is t.get_device_module("cpu") is t.cpu
        assert t.get_device_module(t.device("cuda:1")) is t.cuda
        with pytest.raises(RuntimeError):
            t.get_device_module(3)
        with pytest.raises(RuntimeError, match="nothere"):
            t.classes.some.nothere()
        with pytest.raises(RuntimeError):
            t._assert_async(t.tensor(0.0))
        t._assert_async(t.tensor(1.0))
        with pytest.raises(KeyError, match="why"):
            t._check_tensor_all_with(KeyError, t.tensor([True, False]), lambda: "why")
        with pytest.raises(KeyError):
            t._check_with(KeyError, False, lambda: "")
        assert t.nn.modules.CELU is t.nn.CELU and t.nn.modules.transformer._get_activation_fn("relu") is not None


@pytest.mark.parametrize("t", [tc, torch], ids=["tracecomp", "torch"])
def test_optimizers_of_libraries_are_written_with_the_helpers(t: Any) -> None:
    module = importlib.import_module(f"{t.__name__}.optim.optimizer")

    class Descent(t.optim.Optimizer):
        @module._use_grad_for_differentiable
        def step(self) -> bool:
            fused, foreach = module._default_to_fused_or_foreach(self.param_groups[0]["params"], True)
            assert not fused and not foreach
            for p in self.param_groups[0]["params"]:
                p.data.add_(p.grad, alpha=-0.5)
            return bool(t.is_grad_enabled())

    w = t.nn.Parameter(t.ones(2))
    (w * 2).sum().backward()
    assert Descent([w], {"differentiable": False}).step() is False
    assert Descent([w], {"differentiable": True}).step() is True
    assert w.tolist() == [-1, -1]
    assert "cuda" in module._get_capturable_supported_devices()
