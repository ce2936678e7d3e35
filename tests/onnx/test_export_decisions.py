"""Decisions by dynamic sizes: the exported graph gives what the model gives on both sides of each, or is refused."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracecomp as torch
from tracecomp.export import Dim
from tracecomp.nn import functional as F

pytest.importorskip("onnx")
onnx: Any = importlib.import_module("tracecomp.onnx")

SIZES = (1, 2, 3, 4, 5, 6, 7, 9, 16, 31, 101, 300)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "pads short inputs": lambda x: F.pad(x, (0, max(0, 4 - x.shape[0])))[:4],
    "cuts long inputs": lambda x: x[: min(x.shape[0], 50)] * 2,
    "cuts by a slice": lambda x: x[:5] * 2,
    "less": lambda x: x * 2 if x.shape[0] < 5 else x * 3,
    "more": lambda x: x * 2 if x.size(0) > 100 else x * 3,
    "equal": lambda x: x * 2 if x.shape[0] == 31 else x * 3,
    "unlike": lambda x: x * 2 if x.shape[0] not in (9, 300) else x * 3,
    "one": lambda x: x * 2 if x.shape[0] == 1 else x * 3,
    "even": lambda x: x * 2 if x.shape[0] % 2 else x * 3,
    "count of elements": lambda x: x * 2 if x.numel() >= 16 else x * 3,
    "square": lambda x: x * 2 if x.shape[0] ** 2 > 200 else x * 3,
    "product": lambda x: x * 2 if x.shape[0] * x.shape[0] > 200 else x * 3,
    "length": lambda x: x * 2 if len(x) > 100 else x * 3,
    "plain number": lambda x: x * 2 if int(x.shape[0]) > 3 else x * 3,
    "nested": lambda x: x * (2 if x.shape[0] > 6 else 3) if x.shape[0] < 31 else x,
    "after a result": lambda x: x * 2 if torch.cat([x, x]).shape[0] > 14 else x * 3,
    "loop": lambda x: sum((x * k for k in range(min(x.shape[0], 7))), x),
    "squeezed": lambda x: x.squeeze() * 2,
    "while": lambda x: _doubled(x),
    "no decision": lambda x: (x.reshape(len(x), 1) * 2).sum(1),
}


def _doubled(x: Any) -> Any:
    while x.shape[0] < 9:
        x = torch.cat([x, x])
    return x


@pytest.mark.parametrize("example", [6, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_other_sizes_give_what_the_model_gives_or_the_export_is_refused(name: str, example: int) -> None:
    fn = PROGRAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = onnx.export(fn, torch.ones(example), input_names=["x"], dynamic_axes={"x": {0: "n"}})
        except onnx.UnsupportedError as error:
            assert "size" in str(error)
            assert example == 3 or name not in ("cuts by a slice", "no decision")
            return
    loaded = onnx.load(program)
    for n in SIZES:
        x = torch.linspace(1.0, 2.0, n)
        got, want = loaded(x), fn(x)
        assert got.shape == want.shape and np.allclose(got, want), n


def test_a_range_excludes_the_other_side() -> None:
    shapes = {"x": {0: Dim("n", min=4, max=64)}}
    fn = PROGRAMS["pads short inputs"]
    program = onnx.export(lambda x: fn(x), torch.ones(6), dynamic_shapes=shapes)
    assert onnx.load(program)(torch.ones(9)).shape == (4,)
    with pytest.raises(onnx.UnsupportedError, match=r"At n=3 it takes a different path .* Dim\('n', min=2\)"):
        onnx.export(lambda x: fn(x), torch.ones(6), dynamic_shapes={"x": {0: Dim("n", min=2, max=64)}})


def test_a_size_that_is_read_as_a_plain_number_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"reads size 'n' as a plain number \(.*test_export_decisions.py"):
        onnx.export(PROGRAMS["no decision"], torch.ones(6), input_names=["x"], dynamic_axes={"x": {0: "n"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        onnx.export(PROGRAMS["cuts by a slice"], torch.ones(6), input_names=["x"], dynamic_axes={"x": {0: "n"}})
