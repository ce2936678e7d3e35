"""Recorded graphs as ONNX models: onnxruntime agrees, and coming back gives the same numbers."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn

pytest.importorskip("onnx")
from tracecomp.base.errors import CaptureError
from tracecomp.onnx import UnsupportedError, export, load

F = nn.functional


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(16, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3),
    )  # fmt: skip


class Recurrent(nn.Module):
    """The series and the states of a recurrent layer, as one tensor."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        series, states = self.layer(x)
        states = states if isinstance(states, tuple) else (states,)
        return torch.cat([series.flatten(), *[s.flatten() for s in states]])


def branching(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def looping(x: Any) -> Any:
    return torch.while_loop(lambda x, n: n < 3, lambda x, n: (x * 1.5, n + 1), (x, torch.tensor(0)))[0]


def assigning(x: Any) -> Any:
    y = x.clone()
    y[1:, ::2] = 7.0
    return y


CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "convolutional": (convolutional, (2, 1, 8, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "transposed": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), (1, 2, 4, 4)),
    "grouped": (lambda: nn.Conv1d(4, 6, 3, stride=2, dilation=2, groups=2), (2, 4, 12)),
    "scalars": (lambda: lambda x: torch.log1p(x.abs()) + x.clamp(-1, 1) ** 2 - torch.where(x > 0, x, 2 * x), (3, 4)),
    "reductions": (lambda: lambda x: x.amax(1) + x.prod(1) - x.var(1) + x.argmax(1), (3, 4)),
    "views": (lambda: lambda x: torch.cat([x.flip(1)[:, ::2], F.pad(x, (1, 2), value=3.0)], 1).t() * 1, (3, 4)),
    "indices": (lambda: lambda x: x[:, [2, 0]] + x.gather(1, torch.tensor([[0, 1], [3, 2], [1, 1]])), (3, 4)),
    "sums": (lambda: lambda x: x.cumsum(1) + torch.einsum("ab,cb->ac", x, x).sum(), (3, 4)),
    "recurrent": (lambda: Recurrent(nn.LSTM(4, 3, 2, bidirectional=True)), (5, 2, 4)),
    "gated": (lambda: Recurrent(nn.GRU(4, 3, batch_first=True)), (2, 5, 4)),
    "simple": (lambda: Recurrent(nn.RNN(4, 3, nonlinearity="relu")), (5, 2, 4)),
    "branch": (lambda: branching, (3, 4)),
    "loop": (lambda: looping, (3, 4)),
    "reflected": (lambda: lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), (1, 3, 4, 5)),
    "around": (lambda: lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"), (1, 3, 4, 5)),
    "seen": (lambda: lambda x: (x + 1).t()[1:], (3, 4)),
    "given": (lambda: lambda x: x, (3, 4)),
    "resized": (lambda: lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), (1, 2, 4, 6)),
    "sampled": (lambda: lambda x: F.grid_sample(x, x.permute(0, 2, 3, 1).tanh(), align_corners=False), (2, 2, 4, 5)),
    "permuted": (lambda: lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (16,)), (2, 16, 4, 4)),
    "assigned": (lambda: assigning, (3, 4)),
    "row by row": (lambda: lambda x: torch.einsum("...i,...i->...", x, x + 1), (3, 4)),
    "sorted": (lambda: lambda x: x.sort(1)[0] + x.topk(4, 1)[0], (3, 4)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_goes_out_and_comes_back(name: str) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    model, x = make(), torch.randn(*shape)
    proto = export(model, x).model_proto
    if isinstance(model, nn.Module):
        assert all(m.training for m in model.modules())
        model.eval()
    with torch.no_grad():
        want = model(x)
        back = load(proto)(x)
    assert back.dtype is want.dtype and np.allclose(back.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert np.allclose(found, want.numpy(), rtol=1e-4, atol=1e-5)


def test_names_are_those_that_are_given_or_the_functions(tmp_path: Path) -> None:
    proto = export(nn.Linear(3, 2), torch.ones(1, 3), tmp_path / "m.onnx", output_names=["y"]).model_proto
    assert [i.name for i in proto.graph.input] == ["input"] and [o.name for o in proto.graph.output] == ["y"]
    assert {w.name for w in proto.graph.initializer} >= {"weight", "bias"}
    assert load(tmp_path / "m.onnx").input_names == ["input"]


class Several(nn.Module):
    def forward(self, x: Any, more: Any, flag: bool = True, *, scale: Any = None) -> Any:
        y = x + more["a"] * 2 - more["b"][0]
        y = -y if flag else y
        return y if scale is None else y * scale


def test_arguments_come_by_name_and_nested(tmp_path: Path) -> None:
    x, a, b, scale = (torch.randn(2, 3) for _ in range(4))
    more = {"a": a, "b": [b]}
    for args, kwargs, want in (
        ((x, more), {"scale": scale}, -(x + a * 2 - b) * scale),
        ((x, more, False), None, x + a * 2 - b),
        ((x,), {"flag": False, "more": more}, x + a * 2 - b),
    ):
        program = export(Several(), args, tmp_path / "m.onnx", kwargs=kwargs, opset_version=13, input_names=["first"])
        names = load(tmp_path / "m.onnx").input_names
        assert names[0] == "first" and len(names) == 3 + (kwargs is not None and "scale" in kwargs)
        given = [x, a, b, *([scale] if len(names) > 3 else [])]
        assert torch.allclose(load(program)(*given), want)
    linear = nn.Linear(3, 2)
    program = export(linear, ({"input": x},))  # as PyTorch: the last dict is arguments by name
    assert load(program).input_names == ["input"] and torch.equal(load(program)(x), linear(x))
    pytest.importorskip("onnxruntime")
    assert torch.allclose(program(x)[0], linear(x)) and torch.allclose(program(input=x)[0], linear(x))
    with pytest.raises(TypeError, match="the model takes input"):
        program(x, x)


def test_arguments_that_are_not_read_or_are_given_twice_are_inputs_all_the_same() -> None:
    x, y = torch.randn(3, 4), torch.randn(2)
    program = export(lambda x, y: x + 1, (x, y), dynamic_axes={"y": {0: "n"}})
    told = program.model_proto.graph.input
    assert [i.name for i in told] == ["x", "y"] and told[1].type.tensor_type.shape.dim[0].dim_param == "n"
    assert torch.equal(load(program)(x, y), x + 1)
    back = load(export(lambda a, b, c: a @ b + c, (x[:, :3], x[:, :3], x[:, 1:])))
    a, b, c = torch.randn(3, 3), torch.randn(3, 3), torch.randn(3, 3)
    assert torch.allclose(back(a, b, c), a @ b + c)


def test_programs_of_export_and_scripts_are_exported() -> None:
    model, x = nn.Sequential(nn.Linear(3, 2), nn.ReLU()), torch.randn(4, 3)
    exported = torch.export.export(model, (x,))
    for program in (export(exported), export(exported, (x,)), export(torch.jit.trace(model, x), x)):
        assert torch.equal(load(program)(x), model(x))
        assert len([*load(program).parameters()]) == 2


def test_a_program_is_saved_without_weights_with_them_as_inputs_and_beside_itself(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    linear, x = nn.Linear(3, 2), torch.randn(4, 3)
    program = export(linear, x, dynamo=True)
    program.optimize()
    program.save(tmp_path / "beside.onnx", external_data=True)
    assert (tmp_path / "beside.onnx.data").stat().st_size >= 32
    assert torch.equal(load(tmp_path / "beside.onnx")(x), linear(x))
    program.save(str(tmp_path / "without.onnx"), include_initializers=False, keep_initializers_as_inputs=True)
    bare = onnx.load(tmp_path / "without.onnx").graph
    assert {i.name for i in bare.input} == {"input", "weight", "bias"} and not bare.initializer
    with pytest.raises(TypeError, match="needs a destination path"):
        program.save(io.BytesIO(), external_data=True)
    other = nn.Linear(3, 2)
    program.apply_weights(other.state_dict())
    assert torch.equal(load(program)(x), other(x))
    assert torch.allclose(program.call_reference(x)[0], other(x))
    pytest.importorskip("onnxruntime")
    deeper = export(nn.Sequential(other, nn.ReLU()), x)
    inner = deeper.model_proto.graph.node[-1].input[0]
    assert torch.allclose(deeper.compute_values([inner], (x,))[0], other(x))


def test_everything_that_has_no_operator_is_said_before_anything_is_written(tmp_path: Path) -> None:
    def fn(x: Any) -> Any:
        return torch.lgamma(x) + torch.digamma(x)

    with pytest.raises(UnsupportedError, match=r"digamma \(ONNX lacks this function.*lgamma"):
        export(fn, torch.ones(2), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match=r"opset_version must be 11 to .*, got 9"):
        export(torch.exp, torch.ones(2), tmp_path / "m.onnx", opset_version=9)
    with pytest.raises(CaptureError, match="path that depends on values"):
        export(lambda x: x if x.sum() > 0 else -x, torch.ones(2), tmp_path / "m.onnx")
    assert not [*tmp_path.iterdir()]


def attention() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


OPEN: dict[str, tuple[Callable[[], Any], tuple[int, ...], dict[int, str], list[tuple[int, ...]]]] = {
    "batch": (convolutional, (2, 1, 8, 8), {0: "batch"}, [(1, 1, 8, 8), (7, 1, 8, 8)]),
    "batch and sequence": (attention, (2, 5, 8), {0: "batch", 1: "time"}, [(1, 1, 8), (3, 9, 8), (4, 4, 8)]),
    "picture": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                (1, 2, 4, 6), {0: "n", 2: "h", 3: "w"}, [(2, 2, 5, 7), (1, 2, 9, 3)]),
    "mean": (lambda: lambda x: x.mean(0) + x.var(0) + x.sum() / x.shape[0], (3, 4), {0: "n"}, [(1 + 1, 4), (9, 4)]),
    "positions": (lambda: lambda x: x + torch.arange(x.shape[1]) * torch.ones(x.shape[0], 1), (2, 4), {0: "a", 1: "b"},
                  [(3, 3), (1, 8)]),
    "halves": (lambda: lambda x: torch.cat([x[: x.shape[0] // 2] * 2, x[x.shape[0] // 2 :]]), (4, 3), {0: "n"},
               [(5, 3), (8, 3), (1, 3)]),
    "flat": (lambda: lambda x: x.reshape(-1, 3).softmax(0).flatten() * x.shape[1], (2, 4, 3), {0: "a", 1: "b"},
             [(3, 5, 3), (1, 2, 3)]),
    "causal": (lambda: lambda x: (x @ x.mT).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -9.0),
               (2, 3, 4), {1: "time"}, [(2, 1, 4), (2, 7, 4)]),
    "multiples": (lambda: lambda x: x.view(-1, 4).sum(1), (8,), {0: "n"}, [(4,), (12,), (20,)]),
}  # fmt: skip


def relative(x: Any) -> Any:
    """A table of as many rows as there are pairs of places."""
    t = torch.arange(x.shape[1])
    pairs = (t[:, None] - t).flatten().abs()
    return torch.ones(x.shape[1] * x.shape[1])[pairs].view(1, x.shape[1], -1) + x @ x.mT


class First(nn.Module):
    def forward(self, given: Any) -> Any:
        return given[0]


OPEN["recurrent"] = (lambda: nn.Sequential(nn.LSTM(4, 3), First()), (5, 2, 4), {0: "t", 1: "n"}, [(1, 1, 4), (9, 3, 4)])
OPEN["assigned"] = (lambda: assigning, (3, 4), {0: "a", 1: "b"}, [(2, 2), (7, 5)])
OPEN["pairs"] = (lambda: relative, (2, 4, 3), {0: "batch", 1: "time"}, [(1, 1, 3), (3, 9, 3)])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPEN)
def test_open_sizes_take_other_sizes_than_the_examples(name: str) -> None:
    torch.manual_seed(0)
    make, shape, axes, others = OPEN[name]
    model = make()
    proto = export(model, torch.randn(*shape), input_names=["x"], dynamic_axes={"x": axes}).model_proto
    told = proto.graph.input[0].type.tensor_type.shape.dim
    assert {k: d.dim_param for k, d in enumerate(told) if d.dim_param} == axes
    if isinstance(model, nn.Module):
        model.eval()
    for other in [shape, *others]:
        x = torch.randn(*other)
        with torch.no_grad():
            want = model(x).numpy()
            assert np.allclose(load(proto)(x).numpy(), want, rtol=1e-5, atol=1e-6, equal_nan=True)
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        assert np.allclose(session.run(None, {"x": x.numpy()})[0], want, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_what_does_not_follow_from_open_sizes_is_refused_by_name() -> None:
    x = torch.ones(4, 3)
    for fn, said in {
        (lambda x: x * len([k for k in range(x.shape[0]) if x.shape[0] % (k + 1) == 0])): "depends|not polynomial",
        (lambda x: x + 1 if x.shape[0] > 5 else -x): "depends on an input size",
        (lambda x: F.interpolate(x.t()[None], scale_factor=1.5)): "constant .* depends on an input size",
        (lambda x: sum(x[k] for k in range(x.shape[0]))): "depends on an input size",
    }.items():
        with pytest.raises(UnsupportedError, match=said):
            export(fn, x, dynamic_axes={"x": [0]})
    with pytest.raises(ValueError, match="has no dimension 2"):
        export(torch.exp, x, input_names=["x"], dynamic_axes={"x": [2]})


def test_a_model_that_is_written_wrong_is_found_with_its_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    from tracecomp.onnx import export_rules

    monkeypatch.setitem(export_rules.RULES, "tanh", lambda e, node, x: e.node("Sin", [x]))
    with pytest.raises(RuntimeError, match=r"first at tanh 'v\d+' \(.*test_export.py"):
        export(lambda x: torch.tanh(x.exp()) + 1, torch.linspace(-1, 1, 5))


def test_random_numbers_are_drawn_by_whoever_runs_the_model() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    proto = export(lambda x: torch.stack([torch.rand(x.shape[0], 100), torch.randn(x.shape[0], 100)]) + x * 0,
                   torch.ones(3, 1), input_names=["x"], dynamic_axes={"x": [0]}).model_proto  # fmt: skip
    assert torch.equal(before, torch.get_rng_state())
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    back = load(proto)
    assert not [*back.parameters()]  # constants are not trained
    ours = back(torch.ones(50, 1))
    for uniform, normal in (session.run(None, {"x": np.ones((50, 1), np.float32)})[0], ours.numpy()):
        assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
        assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1


class Keeps(nn.Module):
    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.keep, self.busy, self.kept = keep, False, None

    def forward(self, x: Any) -> Any:
        self.busy = not self.busy
        y = x + 1
        if self.keep:
            self.kept = y
        return y * 2


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        self.last.copy_(x)
        return x * 2


def test_state_that_is_written_is_refused_also_when_it_is_written_with_an_input() -> None:
    with pytest.raises(CaptureError, match="writes state \\(last"):
        export(Remembers(), torch.ones(2))


def test_flags_of_pythons_are_no_part_of_a_model_but_kept_tensors_are_refused() -> None:
    assert load(export(Keeps(False), torch.ones(2)))(torch.ones(2)).tolist() == [4.0, 4.0]
    with pytest.raises(CaptureError, match="stores a tensor in a Python object"):
        export(Keeps(True), torch.ones(2))


def test_what_is_trained_comes_back_as_parameters_and_nothing_else_does() -> None:
    model = convolutional()
    assert isinstance(model, nn.Sequential)
    model[6].weight.requires_grad_(False)
    back = load(export(model, torch.randn(2, 1, 8, 8)))
    trained = {f"w{n.replace('.', '_')}" for n, p in model.named_parameters() if p.requires_grad}
    assert {n for n, _ in back.named_parameters()} == trained
    assert {n for n, _ in back.named_buffers()} == {"w1_running_mean", "w1_running_var", "w6_weight"}
