"""The operators' official tests, as the installed onnx has them: each passes, or is listed below with its reason."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import tracecomp as torch

onnx = pytest.importorskip("onnx")
from tracecomp.onnx.small_types import widened  # noqa: E402

REASONS = {
    r"^test_(str|string|regex|tfidf|label_encoder|equal_string|cast.*STRING)|normalizer|_STRING": "text",
    r"image_decoder": "pictures in files",
    r"ai_onnx_ml|tree_ensemble|label_encoder": "ai.onnx.ml",
    r"^test_(adagrad|adam|momentum|nesterov|gradient)": "ai.onnx.preview.training",
    r"bernoulli|training_dropout(?!.*zero)": "random: the test has numpy's numbers",
    r"attention.*bf16|4d_causal_fp16": "a unit of the last place: the reference rounds every step of its own order",
}
"""By pattern of a test's name: why it need not pass."""


@cache
def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference overflows on purpose
        from onnx.backend.test.loader import load_model_tests

        return [case for kind in ("node", "simple") for case in load_model_tests(kind=kind) if case.model is not None]


def reason(name: str) -> str | None:
    return next((why for pattern, why in REASONS.items() if re.search(pattern, name)), None)


def given(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.to_array(value)
    if isinstance(value, list):
        return [given(v) for v in value]
    array = None if value is None else widened(np.asarray(value))
    return array if array is None or array.dtype.kind in "OSU" else torch.from_numpy(np.array(array))


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def differences(found: Any, wanted: Any, case: Any) -> Iterator[str]:
    if isinstance(wanted, onnx.TensorProto):
        wanted = onnx.numpy_helper.to_array(wanted)
    if wanted is None or isinstance(wanted, list):
        if wanted is None or not isinstance(found, list) or len(found) != len(wanted):
            if found is not wanted:
                yield f"{found!r} for {wanted!r}"
            return
        for a, b in zip(found, wanted, strict=True):
            yield from differences(a, b, case)
        return
    a, b = np.asarray(found), widened(np.asarray(wanted))
    if a.shape != b.shape or a.dtype != b.dtype:
        yield f"{a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
    else:
        wide = (np.float64,) if a.dtype.kind in "fV" else ()
        if not np.allclose(a.astype(*wide) if wide else a, b.astype(*wide) if wide else b, case.rtol, case.atol, True):
            yield "other values"


def failure(case: Any) -> str | None:
    """Return the error, if any."""
    from tracecomp.onnx import load

    try:
        module = load(case.model)
        for inputs, outputs in case.data_sets:
            found = module(*map(given, inputs))
            found = found if isinstance(found, tuple) else (found,)
            for a, b in zip(map(plain, found), outputs, strict=False):
                for difference in differences(a, b, case):
                    return difference
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.slow
def test_every_operator_passes_its_tests_or_has_a_reason_not_to() -> None:
    torch.manual_seed(0)
    failed = {case.name: failure(case) for case in cases() if reason(case.name) is None}
    wrong = [f"{name}: {why}" for name, why in failed.items() if why is not None]
    assert not wrong, "\n".join(wrong)
    assert len(failed) > 1800


@pytest.mark.slow
def test_the_reasons_are_needed() -> None:
    names = [case.name for case in cases()]
    unused = [pattern for pattern in REASONS if not any(re.search(pattern, name) for name in names)]
    assert not unused
