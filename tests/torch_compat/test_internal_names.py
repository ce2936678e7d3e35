"""Names with an underscore, and modules of torch's inside, that libraries use: they do what they do in PyTorch."""

from __future__ import annotations

import importlib
from fractions import Fraction
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


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # by PyTorch, which rebuilds tensors from it
def test_tensors_are_rebuilt_from_their_storage() -> None:
    def rebuilt(t: Any) -> Any:
        utils = importlib.import_module(f"{t.__name__}._utils")
        x = t.arange(12.0)
        y = utils._rebuild_tensor_v2(x.storage(), 2, (2, 3), (4, 1), True, None)
        x[2] = 20  # in the same memory
        assert y.requires_grad and y[0, 0] == 20
        return [y, utils._rebuild_tensor(x.storage(), 1, (2,), (5,))]

    equal(rebuilt)
    for t in (tc, torch):
        module = importlib.import_module(f"{t.__name__}._utils")
        assert module._get_device_module("cuda") is t.cuda
        with pytest.raises(RuntimeError, match=r"'torch\.npu'"):
            module._get_device_module("npu")


def test_refused_names_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    for t in (tc, torch):
        for protocol in (2, 4) if t is tc else (2,):
            module, x = t.nn.Linear(1, 1), t.ones(1)
            t.save({"model": module, "fraction": Fraction(1, 2), "x": x}, path, pickle_protocol=protocol)
            unsafe = importlib.import_module(f"{t.__name__}.serialization").get_unsafe_globals_in_checkpoint
            kind = f"{type(module).__module__}.Linear"
            assert {"fractions.Fraction", kind} <= set(unsafe(path)) and not any("rebuild" in n for n in unsafe(path))
            with t.serialization.safe_globals([t.nn.Linear, Fraction]):
                assert not {"fractions.Fraction", kind} & set(unsafe(path))


def test_blocks_with_other_parameters_and_numbers_of_backward_passes() -> None:
    for t in (tc, torch):
        module, seen = t.nn.Linear(1, 1, bias=False), list[int]()
        stateless = importlib.import_module("tracecomp.func.stateless" if t is tc else "torch.nn.utils.stateless")
        with stateless._reparametrize_module(module, {"weight": t.full((1, 1), 3.0)}):
            assert module(t.ones(1)).item() == 3
        assert isinstance(module.weight, t.nn.Parameter)
        x = t.ones(1, requires_grad=True)
        x.register_hook(lambda _, t=t, seen=seen: seen.append(t._C._current_graph_task_id()))
        x.sum().backward()
        assert t._C._current_graph_task_id() == -1 != seen[0]


def test_names_without_an_effect_on_a_cpu() -> None:
    for t in (tc, torch):
        x = t.nn.Parameter(t.ones(2))
        groups = t.optim.SGD([x], 0.1)._group_tensors_by_device_and_dtype([[x]], with_indices=True)
        assert [places for _, places in groups.values()] == [[0]]
        fake = importlib.import_module(f"{t.__name__}._subclasses.fake_tensor")
        with fake.FakeTensorMode():
            assert fake.is_fake(t.ones(1))
        assert not fake.is_fake(x)
        assert not importlib.import_module(f"{t.__name__}.utils._triton").has_triton()
        assert t.nn.init._no_grad_fill_(x, 2.0) is x and x.tolist() == [2, 2]
        assert t.nn.init._no_grad_zero_(x).tolist() == [0, 0]
        assert isinstance(t.nn.UninitializedParameter(), t.nn.parameter.UninitializedTensorMixin)
        assert t.profiler.ProfilerActivity.HPU.name == "HPU" and t.profiler.ProfilerActivity.MTIA.name == "MTIA"
        assert [s.value for s in importlib.import_module(f"{t.__name__}.amp.grad_scaler").OptState] == [0, 1, 2]


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


def module(t: Any, name: str) -> Any:
    """A submodule of a library; PyTorch announces some of them as former names."""
    return importlib.import_module(f"{t.__name__}.{name}")


def test_operators_as_modules_hand_results_to_their_observer() -> None:
    def run(t: Any) -> Any:
        ops = module(t, "nn.quantized").FloatFunctional()
        x, y = t.arange(6.0).reshape(2, 3) - 2, t.ones(2, 3)
        seen: list[Any] = []
        ops.activation_post_process.register_forward_hook(lambda m, args, result: seen.append(result))
        found = [ops.add(x, y), ops.mul(x, y), ops.cat([x, y], dim=1), ops.add_relu(x, y), ops.matmul(x, y.T)]
        return [*found, ops.add_scalar(x, 2.0), ops.mul_scalar(x, 2.0), *seen]

    equal(run)
    for t in (tc, torch):
        with pytest.raises(RuntimeError, match="not intended to use the 'forward'"):
            module(t, "nn.quantized").FloatFunctional()(t.ones(2))


def test_members_are_swapped_by_dotted_names() -> None:
    def run(t: Any) -> Any:
        model = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.BatchNorm1d(2))
        members = module(t, "nn.utils._named_member_accessor").NamedMemberAccessor(model)
        before, _ = members.swap_tensors_dict({"0.bias": t.ones(2), "1.running_mean": t.zeros(2)})
        assert list(before) == ["0.bias", "1.running_mean"] and members.get_submodule("1") is model[1]
        with pytest.raises(RuntimeError, match="Missing key"):
            members.swap_tensors_dict({"0.bias": t.zeros(2), "0.other": t.ones(2)})
        assert not hasattr(model[0], "other")
        assert tuple(map(set, members.check_keys(["0.bias", "2.x"])))[1] == {"2.x"}
        return [members.get_tensor("0.bias"), model.get_buffer("1.running_mean"), before["1.running_mean"]]

    equal(run)
    for t in (tc, torch):
        swap = module(t, "nn.utils._named_member_accessor").swap_tensor
        with pytest.raises(KeyError):
            swap(t.nn.Linear(2, 2), "a.b", t.ones(1))
        with pytest.raises(AttributeError):
            swap(t.nn.Linear(2, 2), "other", t.ones(1))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_of_one_type() -> None:
    def run(t: Any) -> Any:
        storage = t.FloatStorage([1, 2])
        assert isinstance(t.ones(2).storage(), t.FloatStorage) and not isinstance(storage, t.LongStorage)
        assert len(t.HalfStorage(3)) == 3 and t.LongStorage([2, 3]).tolist() == [2, 3]
        data = np.arange(3, dtype=">f4").tobytes()
        with pytest.raises((ValueError, RuntimeError)):
            t.FloatStorage.from_buffer(data)
        bytes_, floats = t.ByteStorage.from_buffer(b"abc"), t.FloatStorage.from_buffer(data, "big")
        return [t.tensor(s.tolist(), dtype=s.dtype) for s in (storage, bytes_, floats)]

    equal(run)


def test_activations_of_chosen_parts_are_computed_again() -> None:
    def run(t: Any) -> Any:
        wrapper = module(t, "distributed.algorithms._checkpoint.checkpoint_wrapper")
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.Sequential(t.nn.Tanh(), t.nn.Linear(4, 2)))
        weights = {k: t.linspace(-0.3, 0.3, v.numel()).reshape(v.shape) for k, v in model.state_dict().items()}
        calls: list[Any] = []
        model[1][0].register_forward_pre_hook(lambda m, args: calls.append(m))
        wrapper.apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, t.nn.Tanh | t.nn.Linear))
        assert [isinstance(m, wrapper.CheckpointWrapper) for m in (model[0], model[1], model[1][0])] == [1, 0, 1]
        assert list(model.state_dict()) == list(weights)
        model.load_state_dict(weights)
        loss = model(t.ones(2, 3)).square().sum()
        loss.backward()
        assert len(calls) == 2
        return [loss, *(p.grad for p in model.parameters())]

    equal(run)


def test_former_and_inner_names() -> None:
    def run(t: Any) -> Any:
        x = t.arange(6.0).reshape(2, 3)
        cast = module(t, "amp.autocast_mode")._cast
        part = cast({"a": [x, x.double()], "b": "text"}, "cpu", t.bfloat16)
        assert part["b"] == "text" and module(t, "autograd.forward_ad")._current_level == -1
        assert module(t, "_guards").active_fake_mode() is None and x.layout is not t.jagged
        contiguous = module(t, "_prims_common").is_contiguous_or_false
        assert contiguous(x) and not contiguous(x.T) and t._C._is_alias_of(x, x.T) and not t._C._is_alias_of(x, x + 1)
        module(t, "cuda.random").manual_seed_all(3)
        operators = module(t, "onnx.operators")
        sizes = [operators.shape_as_tensor(y) for y in (x, x.T)]
        return [*[y.float() for y in part["a"]], *sizes, operators.reshape_from_tensor_shape(x, sizes[1])]

    equal(run)
