"""Names of torch that public programs use around their tensors: marks, queries, helpers of sizes."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tracecomp

torch = pytest.importorskip("torch")
PAIR = (tracecomp, torch)


@pytest.mark.parametrize("name", ["is_available", "device_count", "current_accelerator"])
def test_queries_of_accelerators_answer_as_torch_on_a_cpu(name: str) -> None:
    own, its = (getattr(T.accelerator, name)() for T in PAIR)
    assert own == its


@pytest.mark.parametrize("name", ["current_device_index", "set_device_index", "synchronize"])
def test_requests_of_accelerators_are_refused_as_by_torch(name: str) -> None:
    for T in PAIR:
        with pytest.raises(RuntimeError, match="none is available"):
            getattr(T.accelerator, name)(*[0] * (name == "set_device_index"))


def test_jit_marks_leave_functions_and_answers_alone() -> None:
    for T in PAIR:
        jit = T.jit
        assert not jit.is_scripting() and not jit.is_tracing()

        def double(x: Any) -> Any:
            return x * 2

        for mark in (jit.export, jit.unused, jit.ignore, jit.ignore(drop=False), jit.script_if_tracing):
            assert mark(double)(4) == 8
        assert jit.annotate(int, 3) == 3


def test_a_scripted_function_is_captured_with_its_caller() -> None:
    scripted = tracecomp.jit.script(lambda x: x * tracecomp.sigmoid(x))
    compiled = tracecomp.compile(lambda x: scripted(x) + 1)
    x = tracecomp.linspace(-2, 2, 5)
    for _ in range(2):
        assert tracecomp.allclose(compiled(x), x * tracecomp.sigmoid(x) + 1)
    assert len(compiled.graphs) == 1


def test_fx_wrap_and_assert() -> None:
    for fx, T in zip((tracecomp.fx, importlib.import_module("torch.fx")), PAIR, strict=True):
        with pytest.raises(RuntimeError, match="Unsupported type for global function"):
            fx.wrap(3)
        with pytest.raises(NotImplementedError, match="top level"):
            fx.wrap("some_function")
        T._assert(True, "not said")
        with pytest.raises(AssertionError, match="said"):
            T._assert(False, "said")


def test_helpers_of_sizes_agree_with_torch() -> None:
    own, its = (importlib.import_module(f"{name}.nn.modules.utils") for name in ("tracecomp", "torch"))
    for name in ("_single", "_pair", "_triple", "_quadruple"):
        for value in (3, (1, 2, 3, 4), [5, 6]):
            assert getattr(own, name)(value) == getattr(its, name)(value)
    assert own._ntuple(5)(2) == its._ntuple(5)(2)
    assert own._reverse_repeat_tuple((1, 2), 2) == its._reverse_repeat_tuple((1, 2), 2)
    assert own._list_with_default([None, 3], [4, 5, 6]) == its._list_with_default([None, 3], [4, 5, 6])
    for helpers in (own, its):
        with pytest.raises(ValueError, match="at least 3"):
            helpers._list_with_default([None, 3], [4, 5])


def test_serialization_allows_what_it_is_told(tmp_path: Any) -> None:
    serialization = importlib.import_module("tracecomp.serialization")
    layer = tracecomp.nn.Linear(2, 3)
    serialization.save(layer, tmp_path / "layer.pt")
    with serialization.safe_globals([tracecomp.nn.Linear]):
        loaded = serialization.load(tmp_path / "layer.pt")
    assert tracecomp.equal(loaded.weight, layer.weight)
    assert serialization.get_safe_globals() == []


def test_the_implementation_of_attention_can_be_named() -> None:
    attention = [importlib.import_module(f"{T.__name__}.nn.attention") for T in PAIR]
    own, its = ({name: int(getattr(b, "value", b)) for name, b in a.SDPBackend.__members__.items()} for a in attention)
    assert own == its
    for T, a in zip(PAIR, attention, strict=True):
        q = T.ones(1, 2, 3, 4)
        for chosen in (a.SDPBackend.MATH, [a.SDPBackend.FLASH_ATTENTION, a.SDPBackend.MATH]):
            with a.sdpa_kernel(chosen):
                assert T.equal(T.nn.functional.scaled_dot_product_attention(q, q, q), q)
        with pytest.raises(AssertionError, match="SDPBackend"), a.sdpa_kernel("math"):
            pass


def test_traced_functions_run_once_and_go_on() -> None:
    calls = []

    def fn(x: Any, y: Any = 1) -> Any:
        calls.append(y)
        return x * y

    traced = tracecomp.jit.trace(fn, (tracecomp.ones(2), 3))
    assert calls == [3] and traced(tracecomp.ones(2), 2).tolist() == [2, 2]
    assert tracecomp.jit.trace(fn, tracecomp.ones(2)).__wrapped__ is fn and calls == [3, 2, 1]
    with pytest.raises(RuntimeError, match="freeze"):
        tracecomp.jit.freeze(traced)  # only modules, as in PyTorch
    module = tracecomp.nn.ReLU()
    traced = tracecomp.jit.trace_module(module, {"forward": tracecomp.ones(2)})
    assert tracecomp.jit.optimize_for_inference(traced) is module
