"""Event files of ``SummaryWriter``, record by record those of PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as tc

pytest.importorskip("tensorboard")


def serial(path: Path) -> int:
    """The number of an event file among those of its process."""
    return int(path.name.split(".")[-2]) if "tfevents" in path.name else 0


def records(t: Any, folder: Path, write: Callable[[Any, Any], object]) -> list[str]:
    """The records below ``folder``, by file, without times, after ``write(writer, t)``."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    module = importlib.import_module(f"{t.__name__}.utils.tensorboard")
    with module.SummaryWriter(str(folder), filename_suffix=".x") as writer:
        write(writer, t)
    lines = []
    for path in sorted(folder.rglob("*"), key=lambda p: (str(p.parent), serial(p))):
        if "tfevents" in path.name:
            for raw in RawEventFileLoader(str(path)).Load():
                event = Event.FromString(raw)
                event.wall_time = 0
                event.source_metadata.Clear()
                lines.append(f"{path.parent.relative_to(folder)} {event}")
        elif path.is_file():
            lines.append(f"{path.relative_to(folder)} {path.read_bytes()!r}")
    return lines


def layout(w: Any, t: Any) -> None:
    w.add_custom_scalars({"a": {"b": ["Multiline", ["x", "y"]], "c": ["Margin", ["l", "m", "h"]]}})
    w.add_custom_scalars_multilinechart(["x"], "k", "t")
    w.add_custom_scalars_marginchart(["a", "b", "c"])


def embeddings(w: Any, t: Any) -> None:
    w.add_embedding(t.arange(6.0).reshape(3, 2), ["a", "b", "c"], t.ones(3, 1, 4, 4) / 2, 7, "a/b%")
    w.add_embedding(t.arange(4.0).reshape(2, 2), [["a", 1], ["b", 2]], metadata_header=["n", "i"])


def tensors(w: Any, t: Any) -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64", "int16", "int32", "int64", "bool", "complex64"):
        try:
            w.add_tensor(dtype, t.tensor([[1, 0], [3, 4]]).to(getattr(t, dtype)))
        except ValueError as error:  # of a field that TensorProto does not have, in PyTorch too
            w.add_text(dtype, str(error))


def numbers(w: Any, t: Any) -> None:
    w.add_scalar("a", t.tensor(1.5), 2)
    w.add_scalar("b", np.float64(3), new_style=True)
    w.add_scalar("c", 4, t.tensor(5), new_style=True, double_precision=True)
    w.add_scalar("d", t.tensor([[2.0]], dtype=t.bfloat16, requires_grad=True))
    w.add_scalars("m/n", {"x": 1, "y": 2.0}, 3)
    w.add_scalars("m/n", {"x": 2}, 4)


def histograms(w: Any, t: Any) -> None:
    values = t.arange(-8.0, 29.0) / 8
    for bins in ("tensorflow", "auto", 5, [0.0, 1.0, 2.0]):
        w.add_histogram("h", values, 1, bins=bins)
    w.add_histogram("m", values, bins=20, max_bins=6)
    w.add_histogram("z", t.zeros(3))
    w.add_histogram_raw("r", 0, 2, 3, 3, 5, [1, 2], [1, 2], 9)


def pictures(w: Any, t: Any) -> None:
    pytest.importorskip("PIL")
    gray = t.arange(12.0).reshape(1, 3, 4) / 12
    w.add_image("a", gray)
    w.add_image("b", (gray[0] * 255).to(t.uint8), dataformats="HW")
    w.add_image("c", gray.expand(3, 3, 4).permute(1, 2, 0), 1, dataformats="HWC")
    w.add_images("d", gray.expand(10, 3, 3, 4), 2)
    w.add_image_with_boxes("e", t.ones(3, 40, 40), t.tensor([[2.0, 3.0, 30.0, 38.0]]), labels="cat")
    w.add_image_with_boxes("f", t.ones(3, 40, 40), t.tensor([[2.0, 3.0, 30.0, 38.0]]), labels=["a", "b"])


def shapes(w: Any, t: Any) -> None:
    points = t.arange(6.0).reshape(1, 2, 3)
    w.add_mesh("a", points)
    w.add_mesh("b", points, points.int(), t.tensor([[[0, 1, 1]]]), {"camera": {"cls": "PerspectiveCamera"}}, 3)


def curves(w: Any, t: Any) -> None:
    labels, scores = t.tensor([0, 1, 1, 0, 1]), t.tensor([0.1, 0.9, 0.4, 0.6, 1.0])
    w.add_pr_curve("a", labels, scores, 1)
    w.add_pr_curve("b", labels, scores, num_thresholds=5, weights=np.array([1, 2, 1, 1, 1.0]))
    counts = np.array([[3.0, 2], [1, 0]])
    w.add_pr_curve_raw("c", *counts, *counts, *counts, num_thresholds=2)


def settings(w: Any, t: Any) -> None:
    values = {"lr": 0.1, "n": 3, "name": "x", "flag": True, "t": t.tensor([2.0]), "none": None}
    w.add_hparams(values, {"loss": 0.5, "acc": t.tensor(0.25)}, {"lr": [0.1, 0.2], "name": ["x", "y"]}, "run", 4)


def texts(w: Any, t: Any) -> None:
    w.add_text("a", "**b**", 3)
    w.close()
    w.add_text("a", "again")  # opens another file
    w.flush()


CASES = [numbers, tensors, histograms, pictures, shapes, curves, settings, texts, layout, embeddings]


@pytest.mark.parametrize("write", CASES, ids=lambda f: f.__name__)
def test_records_are_those_of_pytorch(write: Any, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    assert records(tc, tmp_path / "ours", write) == records(torch, tmp_path / "theirs", write)


BAD: dict[str, Callable[[Any, Any], object]] = {
    "several numbers": lambda w, t: w.add_scalar("a", t.ones(2)),
    "no number": lambda w, t: w.add_scalar("a", None),
    "no values": lambda w, t: w.add_histogram("a", t.ones(0)),
    "values outside": lambda w, t: w.add_histogram("a", t.ones(2), bins=[5.0, 6.0, 7.0]),
    "lengths": lambda w, t: w.add_histogram_raw("a", 0, 1, 1, 1, 1, [1], [1, 2]),
    "axes": lambda w, t: w.add_image("a", t.ones(2, 3)),
    "axes twice": lambda w, t: w.add_image("a", t.ones(2, 3), dataformats="HH"),
    "settings": lambda w, t: w.add_hparams([], {}),
    "kind of setting": lambda w, t: w.add_hparams({"a": []}, {}),
    "domain": lambda w, t: w.add_hparams({"a": 1}, {}, {"a": ["x"]}),
    "margin": lambda w, t: w.add_custom_scalars_marginchart(["a"]),
    "points": lambda w, t: w.add_embedding(t.ones(2, 2), ["a"]),
    "sound": lambda w, t: w.add_audio("a", t.ones(2, 2)),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_are_those_of_pytorch(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    errors = []
    for t in (tc, torch):
        with pytest.raises(Exception) as error:
            records(t, tmp_path / t.__name__, BAD[name])
        errors.append((error.type, str(error.value)))
    assert errors[0] == errors[1]


def test_sound_is_sixteen_bits(tmp_path: Path) -> None:
    lines = records(tc, tmp_path, lambda w, t: w.add_audio("a", t.tensor([0.0, 1.0, -1.0]), sample_rate=8000))
    assert "audio/wav" in lines[-1] and "length_frames: 3" in lines[-1]


class Net(tc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = tc.nn.Sequential(tc.nn.Linear(3, 4), tc.nn.ReLU())
        self.last = tc.nn.Linear(4, 2)

    def forward(self, x: tc.Tensor) -> tc.Tensor:
        return self.last(self.block(x)) + 1


def test_graphs_of_models_name_modules_functions_and_shapes(tmp_path: Path) -> None:
    from tracecomp.utils.tensorboard._pytorch_graph import graph

    model = Net().train()
    nodes = {node.name: node for node in graph(model, tc.ones(5, 3))[0].node}
    assert model.training and not model.last._forward_hooks
    ops = {name: node.op for name, node in nodes.items()}
    assert ops["input/x.1"] == ops["output/output.1"] == "IO Node"
    assert ops["Net/Sequential[block]/Linear[0]/weight"] == "prim::GetAttr"
    kinds = [op for op in ops.values() if op.startswith("aten")]
    assert kinds == ["aten::linear", "aten::relu", "aten::linear", "aten::add"]
    linear = next(node for name, node in nodes.items() if name.startswith("Net/Linear[last]/linear"))
    assert [d.size for d in linear.attr["_output_shapes"].list.shape[0].dim] == [5, 2]
    assert all(source in nodes for node in nodes.values() for source in node.input)
    records(tc, tmp_path, lambda w, t: w.add_graph(model, tc.ones(5, 3)))
