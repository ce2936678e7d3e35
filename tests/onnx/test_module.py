"""ONNX models as modules: equal to torch's, trained, compiled, refused where they are damaged."""

from __future__ import annotations

import io
import random
import sys
import tracemalloc
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.eager_kernels import background

onnx = pytest.importorskip("onnx")
from tracecomp.onnx import UnsupportedError, load, wire  # noqa: E402 - after the package that it needs

H = onnx.helper


def small(**weights: Any) -> Any:
    """y = relu(x @ w + b)"""
    w, b = np.arange(6, dtype=np.float32).reshape(3, 2) - 2, np.array([0.5, -1], np.float32)
    named = {"w": w, "b": b} | weights
    nodes = [
        H.make_node("MatMul", ["x", "w"], ["xw"]), H.make_node("Add", ["xw", "b"], ["sum"]),
        H.make_node("Relu", ["sum"], ["y"]),
    ]  # fmt: skip
    kind = onnx.TensorProto.FLOAT
    graph = H.make_graph(
        nodes, "small", [H.make_tensor_value_info("x", kind, ["n", 3])],
        [H.make_tensor_value_info("y", kind, ["n", 2])],
        [onnx.numpy_helper.from_array(v, k) for k, v in named.items()],
    )  # fmt: skip
    return H.make_model(graph, opset_imports=[H.make_opsetid("", 18)])


def test_a_model_runs_prints_as_python_and_has_parameters() -> None:
    module = load(small())
    x = torch.tensor([[1.0, 2, 3], [-1, 0, 1]])
    want = np.maximum(x.numpy() @ (np.arange(6, dtype=np.float32).reshape(3, 2) - 2) + [0.5, -1], 0)
    assert np.allclose(module(x).detach().numpy(), want) and module(x=x).equal(module(x))
    assert [n for n, _ in module.named_parameters()] == ["w", "b"]
    lines = ["xw = MatMul(x, self.w)", "sum = Add(xw, self.b)", "y = Relu(sum)", "return y"]
    assert module.code.splitlines() == ["def forward(x):", *[f"    {line}" for line in lines]]
    assert "MatMul(x, self.w)" in repr(module)
    with pytest.raises(TypeError, match="takes x; got nothing"):
        module()


def test_what_the_batch_is_does_not_matter_and_compiled_is_eager() -> None:
    module = load(small())
    compiled = torch.compile(module)
    for n in (1, 2, 5):
        x = torch.randn(n, 3)
        for _ in range(2):
            assert compiled(x).equal(module(x))


def test_bytes_files_and_external_data_are_read_and_only_those_of_the_folder(tmp_path: Path) -> None:
    model, x = small(), torch.randn(2, 3)
    want = load(model)(x)
    assert load(model.SerializeToString())(x).equal(want)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").exists() and load(tmp_path / "m.onnx")(x).equal(want)
    moved = tmp_path / "deeper"
    moved.mkdir()
    text = (tmp_path / "m.onnx").read_bytes().replace(b"m.data", b"../m.d")
    (tmp_path / "m.d").write_bytes((tmp_path / "m.data").read_bytes())
    (moved / "m.onnx").write_bytes(text)
    with pytest.raises(ValueError, match="outside the model's folder"):
        load(moved / "m.onnx")


def large() -> Any:
    """A model with a weight of 4,000,000 bytes between small ones."""
    model = small()
    model.graph.initializer.insert(1, onnx.numpy_helper.from_array(np.arange(1_000_000, dtype=np.float32), "large"))
    model.graph.node.append(H.make_node("ReduceSum", ["large"], ["total"], keepdims=0))
    model.graph.node.append(H.make_node("Add", ["y", "total"], ["z"]))
    model.graph.output[0].name = "z"
    return model


def test_large_weights_are_read_once_and_those_of_other_files_when_they_are_used(tmp_path: Path) -> None:
    model, x = large(), torch.ones(1, 3)
    data, want = model.SerializeToString(), load(model)(x)
    (tmp_path / "m.onnx").write_bytes(data)
    onnx.save(model, tmp_path / "e.onnx", save_as_external_data=True, location="e.data")
    for source, most in ((data, 1.1), (tmp_path / "m.onnx", 1.1), (tmp_path / "e.onnx", 0.1)):
        load(source)
        background.finish()  # work that other tests left to the background thread is counted, too
        tracemalloc.start()
        module = load(source)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < most * 4_000_000
        assert torch.equal(module(x), want)
        with torch.no_grad():
            module.large.mul_(2)  # the file keeps its values
        assert torch.equal(load(source)(x), want)


def test_weights_that_are_found_before_parsing_are_those_that_parsing_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LARGE", 0)
    for model in (large(), small(), looping()):
        data = model.SerializeToString()
        found = wire.skeleton(data, data)
        assert len(found.places) == sum(bool(t.raw_data) for t in model.graph.initializer)
        parsed = onnx.load_model_from_string(found.text)
        for k, tensor in enumerate(model.graph.initializer):
            assert np.array_equal(found.array(k, parsed.graph.initializer[k]), onnx.numpy_helper.to_array(tensor))
            tensor.ClearField("raw_data")
        assert parsed == model
    assert damage_models(100, 7)["refused"] > 20


def test_everything_that_cannot_be_run_is_said_at_once() -> None:
    model = small()
    model.graph.node.append(H.make_node("StringSplit", ["y"], ["a", "b"]))
    model.graph.node.append(H.make_node("Frob", ["y"], ["c"], domain="mine"))
    with pytest.raises(UnsupportedError, match="StringSplit, mine::Frob"):
        load(model)


class Patience:
    """A profile hook that ends a call after so many events: a changed count may ask for a loop of years."""

    def __init__(self, events: int) -> None:
        self.left = events

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise TimeoutError


def damage_models(count: int, seed: int) -> Counter[str]:
    """Count the outcomes for ``count`` models with changed or missing bytes."""
    rng, found = random.Random(seed), Counter[str]()
    kinds = [small().SerializeToString(), looping().SerializeToString()]
    for number in range(count):
        data = bytearray(kinds[number % 2])
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randint(len(data) // 2, len(data)) :]
        try:
            model = load(bytes(data))
        except (ValueError, UnsupportedError):
            found["refused"] += 1
            continue
        before = sys.getprofile()
        try:
            sys.setprofile(Patience(1_000_000))
            model(torch.ones(1, 3))
            found["ran"] += 1
        except TimeoutError:
            found["loops on"] += 1
        except (ValueError, TypeError, UnsupportedError, RuntimeError, IndexError):
            found["refused the call"] += 1
        finally:
            sys.setprofile(before)
    return found


def looping() -> Any:
    """y = x doubled four times, by a loop, then cut and turned."""
    names = {"inputs": [("i", "INT64"), ("go", "BOOL"), ("h", "FLOAT")]}
    given = [H.make_tensor_value_info(n, getattr(onnx.TensorProto, t), None) for n, t in names["inputs"]]
    results = [H.make_tensor_value_info(n, getattr(onnx.TensorProto, t), None) for n, t in
               (("go_on", "BOOL"), ("more", "FLOAT"))]  # fmt: skip
    body = H.make_graph(
        [H.make_node("Identity", ["go"], ["go_on"]), H.make_node("Add", ["h", "h"], ["more"])], "body", given, results
    )
    number = onnx.numpy_helper.from_array
    weights = [number(np.array(4), "count"), number(np.array([0]), "start"), number(np.array([2]), "stop")]
    nodes = [
        H.make_node("Loop", ["count", "", "x"], ["z"], body=body),
        H.make_node("Slice", ["z", "start", "stop", "start"], ["cut"]), H.make_node("Transpose", ["cut"], ["y"]),
    ]  # fmt: skip
    x = H.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3])
    graph = H.make_graph(nodes, "looping", [x], [H.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)], weights)
    return H.make_model(graph, opset_imports=[H.make_opsetid("", 17)])


def test_a_loop_runs() -> None:
    assert torch.equal(load(looping().SerializeToString())(torch.ones(3, 3)), torch.full((3, 2), 16.0))


@pytest.mark.parametrize("seed", range(2))
def test_damaged_models_are_clear_errors(seed: int) -> None:
    found = damage_models(100, seed)
    assert found["refused"] > 20 and found.total() == 100


def doubling(levels: int) -> bytes:
    """A model of some 100 bytes a level, each of whose functions calls the next one twice."""
    names = [*(f"f{k}" for k in range(levels)), "Neg"]
    sets = [H.make_opsetid("", 18), H.make_opsetid("own", 1)]
    functions = []
    for name, inner in pairwise(names):
        domain = "own" if inner[0] == "f" else ""
        nodes = [H.make_node(inner, [x], [y], domain=domain) for x, y in (("x", "h"), ("h", "y"))]
        functions.append(H.make_function("own", name, ["x"], ["y"], nodes, sets))
    x, y = (H.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy")
    graph = H.make_graph([H.make_node("f0", ["x"], ["y"], domain="own")], "doubling", [x], [y])
    return H.make_model(graph, opset_imports=sets, functions=functions).SerializeToString()


def test_small_models_do_not_grow_large() -> None:
    assert torch.equal(load(doubling(6))(torch.ones(2)), torch.ones(2))
    with pytest.raises(ValueError, match="too many operators for its size"):
        load(doubling(40))
    value = H.make_tensor("s", onnx.TensorProto.FLOAT, [1], [1.0])
    places = H.make_tensor("places", onnx.TensorProto.INT64, [1], [3])
    model = small()
    for size, right in ((10, True), (1 << 34, False)):
        del model.graph.sparse_initializer[:]
        model.graph.sparse_initializer.append(H.make_sparse_tensor(value, places, [size]))
        if right:
            assert load(model) is not None
        else:
            with pytest.raises(ValueError, match=r"would take .* bytes for 1 values"):
                load(model)


def exported(model: Any, x: Any) -> bytes:
    """Return the file of torch's exporter for ``model``."""
    reference = pytest.importorskip("torch")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "n"}}}
        training = reference.onnx.TrainingMode.PRESERVE
        options = {"dynamo": False, "opset_version": 17, "training": training, "do_constant_folding": False}
        reference.onnx.export(model, (x,), file, **names, **options)
    return file.getvalue()


def test_a_model_from_torch_is_trained_on_with_torchs_losses() -> None:
    reference = pytest.importorskip("torch")
    reference.manual_seed(0)
    layers = reference.nn
    model = layers.Sequential(
        layers.Conv2d(1, 4, 3, padding=1), layers.BatchNorm2d(4), layers.ReLU(), layers.MaxPool2d(2),
        layers.Conv2d(4, 8, 3), layers.GELU(), layers.Flatten(), layers.Linear(8 * 4, 16), layers.LayerNorm(16),
        layers.Tanh(), layers.Linear(16, 5),
    ).eval().double()  # fmt: skip
    for v in (model[1].weight, model[1].bias, model[1].running_mean, model[1].running_var):  # else joined
        v.data.uniform_(0.5, 1.5)
    x, y = reference.randn(6, 1, 8, 8).double(), reference.randint(0, 5, (6,))
    module = load(exported(model, x))
    own_x, own_y = torch.from_numpy(x.numpy()), torch.from_numpy(y.numpy())
    assert np.allclose(module(own_x).detach().numpy(), model(x).detach().numpy(), atol=1e-9)
    theirs = reference.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ours = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

    @torch.compile
    def step(x: Any, y: Any) -> Any:
        ours.zero_grad()
        loss = nn.functional.cross_entropy(module(x), y)
        loss.backward()
        ours.step()
        return loss

    for _ in range(10):
        theirs.zero_grad()
        loss = reference.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        theirs.step()
        assert abs(step(own_x, own_y).item() - loss.item()) < 1e-6  # its epsilon is a float32


def test_what_pytorchs_exporters_have_computed_of_constants_is_not_trained() -> None:
    weights = {"fc.weight": (3, 2), "val_1": (2, 2), "val_2": (), "running": (2,), "onnx::MatMul_3": (2, 2)}
    told = {"fc.weight": "PARAMETER", "running": "BUFFER"}
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "fc.weight"], ["a"]),
        onnx.helper.make_node("MatMul", ["a", "val_1"], ["b"]),
        onnx.helper.make_node("Mul", ["b", "val_2"], ["c"]), onnx.helper.make_node("Add", ["c", "running"], ["d"]),
        onnx.helper.make_node("MatMul", ["d", "onnx::MatMul_3"], ["y"]),
    ]  # fmt: skip
    kind = onnx.TensorProto.FLOAT
    values = {
        n: onnx.helper.make_tensor_value_info(n, kind, s) for n, s in {"x": (1, 3), "y": (1, 2), **weights}.items()
    }
    for name, what in told.items():
        values[name].metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value=what)
    graph = onnx.helper.make_graph(
        nodes, "g", [values["x"]], [values["y"]],
        [onnx.numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in weights.items()],
        value_info=[values[n] for n in told],
    )  # fmt: skip
    model = load(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10))
    assert {n for n, _ in model.named_parameters()} == {"fc_weight", "val_1", "onnx__MatMul_3"}
    assert {n for n, _ in model.named_buffers()} == {"val_2", "running"}
