"""Layers that ONNX has an operator for go out as that operator, for all sizes, and come back with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from tracecomp.onnx import OnnxExporterError, export, is_in_onnx_export, load, recorded  # noqa: E402
from tracecomp.onnx.whole_calls import spellings  # noqa: E402

F = nn.functional
IMAGE, ROWS, WORDS = (2, 4, 9, 12), (3, 8), (2, 5, 8)
OPEN = {IMAGE: {0: "b", 2: "h", 3: "w"}, ROWS: {0: "b"}, WORDS: {0: "b", 1: "t"}}


class First(nn.Module):
    """The first of what a layer gives."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0].clone()


Case = tuple[Callable[[], Any], tuple[int, ...], int, str]
CASES: dict[str, Case] = {
    "conv": (lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2), IMAGE, 11, "Conv"),
    "conv same": (lambda: nn.Conv2d(4, 6, 4, padding="same", dilation=2), IMAGE, 11, "Conv"),
    "conv transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE, 11, "ConvTranspose"),
    "linear": (lambda: nn.Linear(8, 3), ROWS, 11, "Gemm"),
    "linear without bias": (lambda: nn.Linear(8, 3, bias=False), ROWS, 11, "Gemm"),
    "batch norm": (lambda: nn.BatchNorm2d(4), IMAGE, 11, "BatchNormalization"),
    "batch norm of rows": (lambda: nn.BatchNorm1d(8, affine=False), ROWS, 11, "BatchNormalization"),
    "layer norm": (lambda: nn.LayerNorm((5, 8)[1:], 1e-3), WORDS, 17, "LayerNormalization"),
    "layer norm without weights": (lambda: nn.LayerNorm(8, elementwise_affine=False), WORDS, 17, "LayerNormalization"),
    "rms norm": (lambda: nn.RMSNorm(8), WORDS, 23, "RMSNormalization"),
    "group norm": (lambda: nn.GroupNorm(2, 4), IMAGE, 21, "GroupNormalization"),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE, 11, "InstanceNormalization"),
    "softmax": (lambda: nn.Softmax(1), WORDS, 13, "Softmax"),
    "log softmax": (lambda: nn.LogSoftmax(-1), WORDS, 11, "LogSoftmax"),
    "gelu": (nn.GELU, WORDS, 20, "Gelu"),
    "gelu by tanh": (lambda: nn.GELU("tanh"), WORDS, 20, "Gelu"),
    "elu": (lambda: nn.ELU(0.7), WORDS, 11, "Elu"),
    "celu": (lambda: nn.CELU(0.7), WORDS, 12, "Celu"),
    "selu": (nn.SELU, WORDS, 11, "Selu"),
    "leaky relu": (lambda: nn.LeakyReLU(0.2), WORDS, 11, "LeakyRelu"),
    "hardsigmoid": (nn.Hardsigmoid, WORDS, 11, "HardSigmoid"),
    "hardswish": (lambda: nn.Sequential(nn.Tanh(), nn.Hardswish(inplace=True)), WORDS, 14, "Tanh HardSwish"),
    "mish": (nn.Mish, WORDS, 18, "Mish"),
    "softsign": (nn.Softsign, WORDS, 11, "Softsign"),
    "softplus": (nn.Softplus, WORDS, 11, "Softplus"),
    "relu6": (lambda: nn.Sequential(nn.ELU(), nn.ReLU6(inplace=True)), WORDS, 11, "Elu Clip"),
    "relu6 of a function": (lambda: F.relu6, WORDS, 11, "Clip"),
    "hardtanh": (lambda: nn.Hardtanh(-0.5, 0.25), WORDS, 11, "Clip"),
    "prelu": (lambda: nn.PReLU(4), IMAGE, 11, "Reshape PRelu"),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE, 11, "MaxPool"),
    "max pool dilated": (lambda: nn.MaxPool2d(2, dilation=2), IMAGE, 11, "MaxPool"),
    "average pool": (lambda: nn.AvgPool2d(3, 2, 1), IMAGE, 11, "AveragePool"),
    "average pool of what is there": (lambda: nn.AvgPool2d(3, 1, 1, False, False), IMAGE, 11, "AveragePool"),
    "global average": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE, 11, "GlobalAveragePool"),
    "global greatest": (lambda: nn.AdaptiveMaxPool2d((1, 1)), IMAGE, 11, "GlobalMaxPool"),
    "nearest": (lambda: nn.Upsample(scale_factor=2), IMAGE, 13, "Resize"),
    "bilinear": (lambda: nn.UpsamplingBilinear2d(scale_factor=3), IMAGE, 13, "Resize"),
    "bicubic": (lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), IMAGE, 13, "Resize"),
    "pixel shuffle": (lambda: nn.PixelShuffle(2), IMAGE, 11, "DepthToSpace"),
    "sampled": (lambda: lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh() + 0, "bilinear", "border",
                                                True), IMAGE, 16, "Slice Transpose Tanh Add GridSample"),
    "lstm": (lambda: First(nn.LSTM(8, 3, batch_first=True)), WORDS, 11, "Transpose LSTM Squeeze Transpose"),
    "gru": (lambda: First(nn.GRU(8, 3, bias=False)), WORDS, 11, "GRU Squeeze"),
    "rnn": (lambda: First(nn.RNN(8, 3, 2, "relu")), WORDS, 11, "RNN Squeeze RNN Squeeze"),
    "both ways": (lambda: First(nn.LSTM(8, 3, bidirectional=True)), WORDS, 11, "LSTM Transpose Reshape"),
    "attention": (lambda: lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), IMAGE, 23, "Attention"),
}  # fmt: skip


def made(name: str) -> tuple[Any, Any]:
    """Return a model, whose weights and running values are not round numbers, and its input."""
    torch.manual_seed(len(name))
    make, shape, _, _ = CASES[name]
    model = make()
    if isinstance(model, nn.Module):
        model.eval()
        with torch.no_grad():
            for t in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
                t.copy_(torch.rand_like(t) + 0.1)
    return model, torch.randn(*shape)


def given_by(program: Any, x: Any) -> Any:
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


@pytest.mark.parametrize("name", CASES)
def test_a_layer_is_one_operator_and_comes_back_with_the_same_bits(name: str) -> None:
    model, x = made(name)
    _, shape, since, operators = CASES[name]
    for version in (since, 26):
        program = export(model, x.clone(), opset_version=version, input_names=["x"])
        kinds = [n.op_type for n in program.model_proto.graph.node if not n.op_type.startswith("Constant")]
        assert " ".join(k for k in kinds if k != "Cast") == operators
    with torch.no_grad():
        want = model(x.clone())
        found = load(program)(x.clone())
    exact = name not in ("attention", "softplus")  # formulas of onnx's
    assert np.array_equal(found.numpy(), want.numpy()) if exact else torch.allclose(found, want, 1e-5, 1e-6)
    program = export(model, x.clone(), opset_version=max(since, 20), input_names=["x"], dynamic_axes={"x": OPEN[shape]})
    for more in (1, 3):
        other = torch.randn(*[n + more * (k in OPEN[shape]) for k, n in enumerate(shape)])
        with torch.no_grad():
            want = model(other.clone())
        assert np.allclose(given_by(program, other), want.numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2] > 11])
def test_versions_without_the_operator_have_what_it_is_made_of(name: str) -> None:
    model, x = made(name)
    program = export(model, x.clone(), opset_version=CASES[name][2] - 1, input_names=["x"])
    assert CASES[name][3].split()[-1] not in [n.op_type for n in program.model_proto.graph.node]
    with torch.no_grad():
        assert np.allclose(given_by(program, x), model(x.clone()).numpy(), 1e-4, 1e-5)


UNSAID: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "double": (lambda x: x.double().softmax(-1), WORDS),
    "sizes rounded up": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), IMAGE),
    "a divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE),
    "no batch": (lambda x: F.max_pool2d(x[0], 2), IMAGE),
    "regions": (lambda x: F.adaptive_avg_pool2d(x, (2, 5)), IMAGE),
    "nearest of odd sizes": (lambda x: F.interpolate(x, size=(5, 7)), IMAGE),
    "a mask of bools": (lambda x: F.scaled_dot_product_attention(x, x, x, x[..., :9] > 0), IMAGE),
    "statistics of the batch": (lambda x: F.batch_norm(x, None, None, training=True), IMAGE),
    "a steep softplus": (lambda x: F.softplus(x, 3.0), WORDS),
    "nothing": (lambda x: F.gelu(x[:0]).sum(), WORDS),
}


@pytest.mark.parametrize("name", UNSAID)
def test_what_the_operator_cannot_say_is_exported_all_the_same(name: str) -> None:
    fn, shape = UNSAID[name]
    torch.manual_seed(0)
    x = torch.randn(*shape)
    program = export(fn, x, opset_version=24)
    assert np.allclose(given_by(program, x), fn(x).numpy(), 1e-4, 1e-5)


def test_one_hot_is_an_operator_when_the_number_of_classes_is_given() -> None:
    labels = torch.tensor([[1, 0, 3]])
    program = export(lambda x: F.one_hot(x, 5), labels, dynamic_axes={"x": {0: "b", 1: "t"}})
    more = torch.tensor([[1, 2, 3, 4], [0, 0, 4, 2]])
    assert np.array_equal(given_by(program, more), F.one_hot(more, 5).numpy())
    with pytest.raises(OnnxExporterError, match="path that depends on values"):
        export(lambda x: F.one_hot(x), labels)


RECURRENT: list[tuple[str, dict[str, Any]]] = [
    ("LSTM", {}), ("LSTM", {"num_layers": 2, "bidirectional": True}), ("LSTM", {"batch_first": True, "bias": False}),
    ("GRU", {"bidirectional": True, "batch_first": True}), ("GRU", {"num_layers": 3, "bias": False}),
    ("RNN", {"nonlinearity": "relu", "bidirectional": True}), ("RNN", {"num_layers": 2}), ("LSTM", {"proj_size": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "how"), RECURRENT)
@pytest.mark.parametrize("version", [11, 20])
def test_recurrent_layers_with_states_come_back_with_the_same_bits(
    kind: str, how: dict[str, Any], version: int
) -> None:
    torch.manual_seed(1)
    model = getattr(nn, kind)(5, 4, **how)
    ways, layers = 1 + how.get("bidirectional", False), how.get("num_layers", 1)
    x, batch = torch.randn(3, 6, 5), 3 if how.get("batch_first") else 6
    h, c = torch.randn(ways * layers, batch, how.get("proj_size", 4)), torch.randn(ways * layers, batch, 4)
    program = export(model, (x, (h, c) if kind == "LSTM" else h), opset_version=version)
    kinds = [n.op_type for n in program.model_proto.graph.node]
    assert kinds.count("Scan" if "proj_size" in how else kind) == layers  # ONNX has no projections
    with torch.no_grad():
        want = model(x, (h, c) if kind == "LSTM" else h)
        found = load(program)(x, h, c) if kind == "LSTM" else load(program)(x, h)
    last = want[1] if kind == "LSTM" else (want[1],)
    for a, b in zip(found, (want[0], *last), strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


def test_recurrent_weights_are_those_of_the_model_and_train() -> None:
    """Weights that are computed, and those of the model: both are written, and trained as the model trains."""
    torch.manual_seed(2)
    model = nn.GRU(3, 2)
    x = torch.randn(4, 2, 3)
    loaded = load(export(model, x))
    assert sorted(n for n, _ in loaded.named_parameters()) == ["B_l0", "R_l0", "W_l0"]
    for module in (model, loaded):
        optimizer = torch.optim.SGD(module.parameters(), 0.5)
        for _ in range(3):
            optimizer.zero_grad()
            module(x)[0].square().sum().backward()
            optimizer.step()
    with torch.no_grad():
        assert torch.allclose(model(x)[0], loaded(x)[0], 1e-5, 1e-6)
        doubled = export(lambda x: torch.func.functional_call(model, {"weight_hh_l0": model.weight_hh_l0 * 2}, (x,)), x)
        want = torch.func.functional_call(model, {"weight_hh_l0": model.weight_hh_l0 * 2}, (x,))
        assert np.array_equal(load(doubled)(x)[0].numpy(), want[0].numpy())
    assert "GRU" in [n.op_type for n in doubled.model_proto.graph.node]


def test_nothing_is_an_operator_while_types_are_cast() -> None:
    """Calls under autocast have other types than their operands."""
    model, x = nn.Linear(3, 2), torch.randn(2, 3)

    def cast(x: Any) -> Any:
        with torch.autocast("cpu", torch.float16):
            return model(x)

    program = export(cast, x)
    assert load(program)(x).dtype is torch.float16


def test_every_spelling_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function has a case here, or differs only in its dimensions from one that has."""
    used = set()

    def noting(fn: Any, spelling: Any) -> Any:
        def spelled(version: int, **given: Any) -> Any:
            used.add(fn.__name__)
            return spelling(version, **given)

        return spelled

    every = spellings()
    monkeypatch.setattr(recorded, "spellings", lambda: {f: noting(f, s) for f, s in every.items()})
    for case in CASES:
        export(*made(case), opset_version=26, check=False)
    export(lambda x: F.one_hot(x, 3), torch.tensor([1]), check=False)
    assert {f.__name__.replace("1d", "2d").replace("3d", "2d") for f in every} <= used


def test_a_model_knows_that_it_is_exported_and_wrong_options_are_errors() -> None:
    class Asking(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if is_in_onnx_export() else x - 1

    assert not is_in_onnx_export()
    assert given_by(export(Asking(), torch.zeros(2)), torch.zeros(2)).tolist() == [1, 1]
    assert not is_in_onnx_export()
    with pytest.raises(TypeError, match="opset_verison"):
        export(nn.ReLU(), torch.zeros(2), opset_verison=13)
    with pytest.raises(OnnxExporterError, match="custom_translation_table"):
        export(nn.ReLU(), torch.zeros(2), custom_translation_table={torch.relu: torch.relu})
    with pytest.warns(UserWarning, match="in evaluation mode"):
        export(nn.Dropout(), torch.zeros(2), training=torch.onnx.TrainingMode.TRAINING)
