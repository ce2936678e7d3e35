"""Answers have the same bits whatever they were batched with: layers of all kinds, in every form of model file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp import nn
from tracecomp.base.errors import TracecompError
from tracecomp.export import Dim
from tracecomp.serve.batching import Batcher
from tracecomp.serve.frames import Parts
from tracecomp.serve.process import Done, Take
from tracecomp.serve.settings import Settings
from tracecomp.serve.tensors import TensorData, of_array
from tracecomp.serve.worker import Worker

MOST = 8


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 16), nn.Linear(16, 11)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.embedding(x).mean(1)), -1)


def conv(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16 * 4, 5))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "dense": (lambda: nn.Sequential(nn.Linear(130, 70), nn.GELU(), nn.Linear(70, 9)), (130,)),
    "winograd": (lambda: conv(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3)), (16, 16, 16)),
    "strided": (lambda: conv(nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.SiLU()), (3, 17, 17)),
    "depthwise": (lambda: conv(nn.Conv2d(16, 16, 3, groups=16), nn.GroupNorm(4, 16), nn.MaxPool2d(2)), (16, 12, 12)),
    "transposed": (lambda: conv(nn.ConvTranspose2d(4, 16, 3, stride=2), nn.Sigmoid()), (4, 7, 7)),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(100), nn.Tanh(), nn.RMSNorm(100), nn.Softmax(-1)), (100,)),
    "attention": (Attention, (9, 16)),
    "tokens": (Tokens, (12,)),
}  # fmt: skip


def module(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name][0]().eval()


def rows(name: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    shape = (count, *MODELS[name][1])
    return random.integers(0, 11, shape) if name == "tokens" else random.standard_normal(shape, np.float32)


def program_file(name: str, folder: Path) -> Path:
    net, sizes = module(name), {"x": {0: Dim("rows", max=MOST)}}
    compiled = torch.compile(lambda x: net(x))
    compiled.save(folder / "m.tcp", torch.tensor(rows(name, 2, 0)), kind="graph", dynamic_shapes=sizes)
    return folder / "m.tcp"


def exported_file(name: str, folder: Path) -> Path:
    example = torch.tensor(rows(name, 2, 0))
    program = torch.export.export(module(name), (example,), dynamic_shapes=({0: Dim("rows", max=MOST)},))
    torch.export.save(program, folder / "m.pt2")
    return folder / "m.pt2"


def onnx_file(name: str, folder: Path) -> Path:
    pytest.importorskip("onnx")
    example = torch.tensor(rows(name, 2, 0))
    path = folder / "m.onnx"
    torch.onnx.export(module(name), example, path, input_names=["x"], dynamic_axes={"x": {0: "rows"}}, check=False)
    return path


def mixed(worker: Worker, requests: Sequence[TensorData]) -> tuple[list[bytes], int]:
    """The answers of requests that wait together, and the number of batches that they took."""

    def run(parts: Parts, wanted: Sequence[str], take: Take | None, done: Done) -> None:
        given = [TensorData(n, kind, tuple(shape), b"".join(buffers)) for n, kind, shape, buffers in parts]
        asyncio.get_running_loop().call_soon(done, worker.run(given, wanted), None)

    async def main() -> tuple[list[bytes], int]:
        batcher = Batcher(run, 0.0, len(requests))
        tasks = [asyncio.ensure_future(batcher.submit([request])) for request in requests]
        await asyncio.sleep(0)
        batcher.resume(worker.signature.max_rows)
        answers = await asyncio.gather(*tasks)
        batcher.close()
        return [bytes(outputs[0].data) for outputs in answers], batcher.batches

    return asyncio.run(main())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("save", [program_file, exported_file, onnx_file])
@pytest.mark.parametrize("name", MODELS)
def test_answers_do_not_depend_on_batch_mates(name: str, save: Callable[[str, Path], Path], tmp_path: Path) -> None:
    worker = Worker(save(name, tmp_path), Settings(max_batch_size=MOST))
    assert worker.signature.max_rows == MOST, worker.signature.not_batched
    sizes = np.random.default_rng(1).integers(1, 4, 24)
    input_name = worker.signature.inputs[0].name
    requests = [of_array(input_name, rows(name, int(n), seed)) for seed, n in enumerate(sizes)]
    alone = [bytes(worker.run([request], ())[0].data) for request in requests]
    together, batches = mixed(worker, requests)
    assert batches < len(requests) / 2
    assert together == alone


def test_further_shapes_run_eagerly_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracecomp.serve.loading.MOST_SHAPES", 5)
    sizes = ({0: Dim("rows", max=4), 1: Dim("length", max=12)},)
    program = torch.export.export(module("attention"), (torch.ones(2, 9, 16),), dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "m.pt2")
    worker, random = Worker(tmp_path / "m.pt2", Settings()), np.random.default_rng(0)
    shapes = [(rows, length, 16) for length in (9, 5, 7) for rows in (1, 2)]
    requests = [of_array("x", random.standard_normal(shape, np.float32)) for shape in shapes * 2]
    alone = [bytes(worker.run([request], ())[0].data) for request in requests]
    assert mixed(worker, requests)[0] == alone


def test_open_lengths_are_stacked_by_equal_shape(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    axes = {"x": {0: "rows", 1: "length"}}
    torch.onnx.export(
        module("attention"),
        torch.ones(2, 9, 16),
        tmp_path / "m.onnx",
        input_names=["x"],
        dynamic_axes=axes,
        check=False,
    )
    worker, random = Worker(tmp_path / "m.onnx", Settings(max_batch_size=MOST)), np.random.default_rng(0)
    shapes = [(int(rows), int(length), 16) for rows, length in zip(*random.integers(1, 4, (2, 24)), strict=True)]
    requests = [of_array("x", random.standard_normal(shape, np.float32)) for shape in shapes]
    alone = [bytes(worker.run([request], ())[0].data) for request in requests]
    together, batches = mixed(worker, requests)
    assert batches < len(requests)
    assert together == alone


@pytest.mark.parametrize(
    ("mix", "reason"),
    [
        (lambda x: x - x.mean(0), "differs between a batch"),
        (lambda x: torch.softmax(x, 0), "differs between a batch"),
        (lambda x: x.sum(0), "has no row for each row"),
        (lambda x: x * 2 if x[0, 0] < 9 else x, "depends on values"),
    ],
)
def test_models_that_mix_rows_run_alone(mix: Callable[..., Any], reason: str, tmp_path: Path) -> None:
    sizes = {"x": {0: Dim("rows", max=4)}}
    torch.compile(mix).save(tmp_path / "m.tcp", torch.ones(2, 3), kind="graph", dynamic_shapes=sizes)
    worker = Worker(tmp_path / "m.tcp", Settings())
    assert worker.signature.max_rows == 0 and reason in worker.signature.not_batched
    x = np.random.default_rng(0).random((3, 3), np.float32)
    (answer,) = worker.run([of_array("x", x)], ())
    assert answer.array().tobytes() == np.asarray(mix(torch.tensor(x))).tobytes()


def test_programs_without_single_rows_run_alone(tmp_path: Path) -> None:
    sizes = {"x": {0: Dim("rows", min=2, max=4)}}
    torch.compile(lambda x: x * 2).save(tmp_path / "m.tcp", torch.ones(2, 3), kind="graph", dynamic_shapes=sizes)
    program = torch.export.export(nn.Tanh(), (torch.ones(2, 3),), dynamic_shapes=({0: Dim("rows", min=2, max=4)},))
    torch.export.save(program, tmp_path / "m.pt2")
    for name in ("m.tcp", "m.pt2"):
        worker = Worker(tmp_path / name, Settings())
        assert worker.signature.max_rows == 0 and "does not include 1" in worker.signature.not_batched


def test_programs_that_write_state_are_refused(tmp_path: Path) -> None:
    count = torch.zeros(1)

    @torch.compile
    def step(x: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return x + count

    step.save(tmp_path / "m.tcp", torch.ones(2), kind="graph")
    with pytest.raises(TracecompError, match=r"m\.tcp changes its state"):
        Worker(tmp_path / "m.tcp", Settings())
