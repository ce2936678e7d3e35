"""Exported programs divide a dynamic size: other sizes have other remainders than the example."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

import tracecomp as torch

pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


class Program(torch.nn.Module):
    def __init__(self, fn: Callable[[Any], Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Any) -> Any:
        return self.fn(x)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "first half": lambda x: x[:, : x.shape[1] // 2],
    "second half": lambda x: x[:, x.shape[1] // 2 :],
    "rounded up": lambda x: x[:, : (x.shape[1] + 1) // 2],
    "half of the rows": lambda x: x[: x.shape[0] // 2],
    "halves swapped": lambda x: torch.cat([x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1),
}


CASES = [(n, e) for n in PROGRAMS for e in ((1, 6), (3, 7)) if (n, e) != ("half of the rows", (1, 6))]
"""Programs and sizes of their example; a single row has no half."""


@pytest.mark.parametrize(("name", "example"), CASES)
def test_every_remainder_has_its_result(name: str, example: tuple[int, int]) -> None:
    fn, file = PROGRAMS[name], BytesIO()
    axes = {"x": {0: "rows", 1: "columns"}}
    torch.onnx.export(Program(fn), (torch.ones(example),), file, input_names=["x"], dynamic_axes=axes)
    session = runtime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    for rows, columns in ((2, 4), (3, 5), (4, 6), (5, 7), (6, 8), (7, 9)):
        x = torch.arange(float(rows * columns)).reshape(rows, columns)
        assert session.run(None, {"x": x.numpy()})[0].tolist() == fn(x).tolist(), (rows, columns)
